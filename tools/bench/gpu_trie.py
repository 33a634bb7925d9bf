"""The trie on a GPU beside our CPU and NeMo's search: rows of `tools.bench.gpu`.

bench = TrieBench(case, args, Gpu(), skip)
setting = TrieSetting(beam_size=32, beam=8.0)
expected = bench.expect(setting)                     # by utterance, from the CPU
rows = [*bench.cpu(setting), *bench.ours(setting, expected)]
rows += bench.nemo(setting, expected, peer)          # bare tokens: it has no lexicon

NeMo has the batches, the language model, the size and the beam that ours has; its costs
stand beside ours in the row. There is none where its search is not one CUDA graph.

Its language model is Witten-Bell, of what other utterances say, where no text and no
tool that estimates models can be had: an n-gram seen in a history h has the probability
(c(hw) + n(h) P(w | shorter h)) / (c(h) + n(h)), with n(h) different tokens seen behind
h; what was not seen backs off with the weight n(h) / (c(h) + n(h)).
"""

from __future__ import annotations

import argparse
import math
import time
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cached_property, partial
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple

from tools.bench.cases import Case, Inputs
from tools.bench.costs import compare_costs, found_by_us
from tools.bench.data import SpeechSet, write_arpa
from tools.bench.gpu_device import Padded, Timing
from tools.bench.gpu_measure import Measuring, each, phases_of
from tools.bench.report import Row
from tools.peers.nemo_ctc import NemoPeer
from wfstdec.compare.comparison import Outcome
from wfstdec.compare.speech import evenly_spaced
from wfstdec.search.hypothesis import Hypothesis
from wfstdec.text.lexicon import Lexicon, read_lexicon
from wfstdec.text.tokens import read_tokens
from wfstdec.trie.decoder import TrieDecoder
from wfstdec.trie.gpu.batch import DeviceBatch
from wfstdec.trie.gpu.layout import PHASES, form_for
from wfstdec.trie.options import TrieOptions

TOKENS = "tokens"
"""What reports call the language model over tokens."""
WHOLE = "full_graph"
"""NeMo's own name for a search that is one CUDA graph."""
ORDER = 6
_BEGIN, _END = "<s>", "</s>"
_NEVER = -99.0
"""What ARPA files say of a token that no history has behind it."""

Gram = tuple[str, ...]


class TrieSetting(NamedTuple):
    """Setting of a search that is timed over batches.

    Attributes:
        beam_size: As in `TrieOptions`.
        beam: Likewise.
    """

    beam_size: int
    beam: float


def token_case(speech: SpeechSet, inputs: Inputs, args: argparse.Namespace) -> Case:
    """Half of a set as bare tokens, with a model of what the other half says."""
    decoded, held_out = halves(speech)
    recipe = speech.recipe
    table = read_tokens(recipe.tokens)
    lexicon = read_lexicon(recipe.lexicon, table, separator=recipe.separator)
    references = list(held_out.references.values())
    spelled = sentences(references, lexicon, table.names, recipe.separator)
    inputs.cache.mkdir(parents=True, exist_ok=True)
    arpa = inputs.cache / f"{TOKENS}-{recipe.name}.arpa"
    heard = [name for t, name in enumerate(table.names) if t != table.blank]
    write_token_lm(spelled, heard, arpa)
    names = evenly_spaced(list(decoded.logprobs), max(args.batches))
    note = f"every other utterance; {speech.note}".rstrip("; ")
    decoded = replace(decoded.take(names), note=note)
    return Case(decoded, TOKENS, arpa, inputs.token_lm_scale, None)


@dataclass(frozen=True, eq=False)
class TrieBench(Measuring):
    """Measures the trie on a case; each method gives rows of figures."""

    @cached_property
    def _cpu(self) -> TrieDecoder:
        """Ours on the CPU, a thread per processor."""
        return self.case.trie_decoder(TrieOptions(lm_scale=self.case.lm_scale), None)

    def _decoder(self, setting: TrieSetting) -> TrieDecoder:
        return self._cpu.with_options(**setting._asdict())

    def expect(self, setting: TrieSetting) -> dict[str, Hypothesis]:
        """Decode all utterances on the CPU."""
        found = self._decoder(setting).decode(self.case.utterances)
        return dict(zip(self.case.speech.logprobs, found, strict=True))

    def cpu(self, setting: TrieSetting) -> Iterator[Row]:
        """Rows per batch for the CPU, a thread per processor."""
        decoder, logprobs = self._decoder(setting), self.case.speech.logprobs
        for size in self.args.batches:
            told = {"decoder": "cpu trie", "threads": decoder.threads}
            row = self.row(setting, size, **told)
            if self.skip(row):
                continue
            names = self.batches(size)
            batches = [[logprobs[name] for name in one] for one in names]
            texts = [one.text for batch in batches for one in decoder.decode(batch)]
            ends = [time.perf_counter()]
            for _ in range(self.args.repeats):
                for batch in batches:
                    decoder.decode(batch)
                ends.append(time.perf_counter())
            seconds = [b - a for a, b in zip(ends, ends[1:], strict=False)]
            yield row | self._figures(names, texts, Timing(seconds, seconds))

    def ours(
        self, setting: TrieSetting, expected: dict[str, Hypothesis]
    ) -> Iterator[Row]:
        """Rows per batch; without times where answers are not the CPU's."""
        form = form_for(setting.beam_size, len(self.case.tokens))
        for size in self.args.batches:
            told = {"decoder": "trie", "dtype": "float32", "threads": form.threads}
            row = self.row(setting, size, **told)
            if self.skip(row):
                continue
            decoder = self._decoder(setting)
            decoder._backend = self.gpu.trie_backend(decoder._space)
            names = self.batches(size)
            batches = self._upload(names, "float32")
            run = partial(each, batches, decoder.decode)
            found = run()
            pairs = zip(chain(*names), found, strict=True)
            differ = sum(hypothesis != expected[name] for name, hypothesis in pairs)
            row["differ"] = differ
            if not differ:
                timing = self.gpu.time(run, self.args.repeats)
                row |= self._figures(names, [one.text for one in found], timing)
                row |= self._phases(decoder, batches[0])
            yield row

    def _phases(self, decoder: TrieDecoder, batch: Padded) -> Row:
        """Work of a frame, and microseconds of a frame and block by phase."""
        backend: Any = decoder._backend
        chunks = backend.inputs(*batch)
        boosts = decoder._boosts.compile(None, len(chunks))
        lengths = [len(chunk) for chunk in chunks]
        made = backend.device_space, backend._cpu, decoder.options, boosts, lengths
        counts, row = phases_of(lambda: DeviceBatch(*made), chunks, PHASES)
        frames = max(1, counts["frames"])
        work = ("active", "candidates", "entries")
        return row | {f"{name}_per_frame": counts[name] / frames for name in work}

    def nemo(
        self, setting: TrieSetting, expected: dict[str, Hypothesis], peer: NemoPeer
    ) -> Iterator[Row]:
        """Rows per batch for NeMo's search, its log-probs on the GPU in its order."""
        logprobs = self.case.speech.logprobs
        for size in self.args.batches:
            row = self.row(setting, size, decoder="nemo")
            if self.skip(row):
                continue
            names = self.batches(size)
            padded = [peer.pad([logprobs[name] for name in one]) for one in names]
            batches = [tuple(map(self.gpu.tensor, batch)) for batch in padded]
            # One for each size of batch: its graph takes as long for fewer.
            search = peer.search(
                {"beam_size": setting.beam_size, "beam_threshold": setting.beam}
            )
            found = [
                one
                for batch, (_, lengths) in zip(batches, padded, strict=True)
                for one in peer.read(search(*batch), lengths)
            ]
            mode = search.cuda_graphs_mode
            if str(getattr(mode, "value", mode)) != WHOLE:
                print(f"NeMo's CUDA graphs: {mode}, not {WHOLE}: no row", flush=True)
                return
            run = partial(_each_labels, search, batches)
            timing = self.gpu.time(run, self.args.repeats)
            row |= {
                "cuda_graphs_mode": WHOLE,
                "costs": self._costs(names, expected, found),
            }
            yield row | self._figures(names, [text for text, _ in found], timing)

    def _costs(
        self,
        names: list[list[str]],
        expected: dict[str, Hypothesis],
        found: list[tuple[str, float]],
    ) -> Row:
        """The costs of both, each utterance once."""
        by_name = dict(zip(chain(*names), found, strict=True))
        theirs = [Outcome(text, -score, True) for text, score in by_name.values()]
        ours = [found_by_us(expected[name]) for name in by_name]
        ours = [one._replace(reached_final=True) for one in ours]
        costs = asdict(compare_costs(list(by_name), ours, theirs))
        if self.case.separator is not None:  # NeMo's text knows no separator
            del costs["texts_differ"]
        return costs

    def _figures(self, names: list[list[str]], texts: list[str], timing: Timing) -> Row:
        """`_times`, without a word error rate where phones are what is found."""
        row = self._times(names, texts, timing)
        if self.case.graph is None and self.case.separator is not None:
            del row["wer"], row["errors"], row["words"]
        return row


def _each_labels(search: Any, batches: list[tuple[Any, ...]]) -> list[Any]:
    """Search batches one after the other; the best labels of each, on the host."""
    found = []
    for batch in batches:
        beams = search(*batch)
        beams.flatten_sort_(score_norm=False)
        found += beams.transcript_wb[:, 0].tolist()  # waits for the device
    return found


# ------------------------------------------------- a language model over tokens
def halves(speech: SpeechSet) -> tuple[SpeechSet, SpeechSet]:
    """Every other utterance, and those between: to decode, and to learn from."""
    names = list(speech.logprobs)
    return speech.take(names[::2]), speech.take(names[1::2] or names)


def sentences(
    references: Iterable[Sequence[str]],
    lexicon: Lexicon,
    names: Sequence[str],
    separator: str | None,
) -> list[list[str]]:
    """Spell references as tokens, a word by its first pronunciation.

    Args:
        references: Words of each.
        lexicon: Pronunciations; words that it lacks are left out.
        names: The token table's.
        separator: The token between words.
    """
    spelled: dict[str, list[str]] = {}
    for word, spelling in zip(lexicon.words, lexicon.pronunciations, strict=True):
        spelled.setdefault(word, [names[token] for token in spelling])
    between = [] if separator is None else [separator]
    found = []
    for words in references:
        known = [spelled[word] for word in words if word in spelled]
        found.append([token for one in known for token in (*one, *between)])
    return [tokens[: len(tokens) - len(between)] for tokens in found if tokens]


def write_token_lm(
    spelled: Sequence[Sequence[str]], tokens: Iterable[str], path: Path
) -> None:
    """Write a model of order `ORDER` as an ARPA file.

    Args:
        spelled: Sentences to count.
        tokens: All that there are but the blank; each gets a probability.
        path: The file.
    """
    behind: defaultdict[Gram, Counter[str]] = defaultdict(Counter)
    for sentence in spelled:
        marked = (_BEGIN, *sentence, _END)
        for end in range(1, len(marked)):
            for length in range(min(ORDER, end + 1)):
                behind[marked[end - length : end]][marked[end]] += 1
    everyone = [*tokens, _END]
    levels: list[dict[Gram, float]] = [{} for _ in range(ORDER)]
    seen, types = behind[()].total(), len(behind[()])
    for token in everyone:
        share = types / len(everyone)
        levels[0][(token,)] = (behind[()][token] + share) / (seen + types)
    for history in sorted(behind, key=lambda one: (len(one), one)):
        counts = behind[history] if history else Counter()
        n, total = len(counts), counts.total()
        for token, count in counts.items():
            shorter = levels[len(history) - 1][(*history[1:], token)]
            levels[len(history)][(*history, token)] = (count + n * shorter) / (
                total + n
            )
    levels[0][(_BEGIN,)] = 0.0
    orders = []
    for level in filter(None, levels):
        lines = []
        for gram, probability in sorted(level.items()):
            logprob = math.log10(probability) if probability else _NEVER
            fields = [f"{logprob:.6f}", " ".join(gram)]
            if len(gram) < ORDER and gram in behind:
                n, total = len(behind[gram]), behind[gram].total()
                fields.append(f"{math.log10(n / (n + total)):.6f}")
            lines.append(fields)
        orders.append(lines)
    write_arpa(path, orders)
