"""The part of `results.py` on real speech: all decoders, on the pruned 3-gram.

real = Real(recording, data, folder)
real.record_graphs()
real.record_wfst()
real.record_trie()
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from functools import cache, cached_property
from pathlib import Path
from typing import Any

import numpy as np
import real_sets
from recordings import Recording, digest_of, hex_of

import wfstdec
from wfstdec.boost import phrases as spelling

DISCOUNT = 0.7
BEGIN, END = "<s>", "</s>"
DEV, LJ, FEW = 13, 7, 15
"""Every 13th and every 7th utterance; of the former so many where it is enough."""
TOPOLOGIES = (
    *("normal", "compact", "eesen", "minimal"),
    *("normal-selfless", "compact-selfless"),
)
WFST = {
    "beam 8": {"beam": 8.0, "lm_scale": 0.8},
    "beam 13": {"beam": 13.0, "max_active": 7000, "lm_scale": 0.8},
    "scale 1": {"beam": 11.0, "max_active": None},
    "few active": {
        "beam": 13.0,
        "max_active": 40,
        "min_active": 10,
        "beam_delta": 0.5,
        "lm_scale": 0.8,
    },
    "many at least": {"beam": 2.0, "min_active": 60, "lm_scale": 0.8},
    "one active": {"beam": 6.0, "max_active": 1},
    "blanks skipped": {"beam": 10.0, "blank_skip_threshold": 0.95, "lm_scale": 0.8},
    "blank penalty": {"beam": 10.0, "blank_penalty": 1.25, "lm_scale": 0.8},
    "words cheaper": {"beam": 10.0, "word_insertion": -0.7, "lm_scale": 0.8},
    "words dearer": {"beam": 10.0, "word_insertion": 1.1, "lm_scale": 0.8},
    "acoustic scale": {"beam": 9.0, "acoustic_scale": 0.45, "beam_delta": 0.25},
}
"""Options by case."""
TRIE = {
    "6:16": {"beam": 6.0, "beam_size": 16, "lm_scale": 0.8},
    "12:128": {"beam": 12.0, "beam_size": 128, "lm_scale": 0.8},
    "sum": {"beam": 9.0, "beam_size": 48, "lm_scale": 0.8, "merge": "sum"},
    "n-best": {"beam": 11.0, "beam_size": 96, "lm_scale": 0.8, "nbest": 5},
    "n-best of sums": {"beam": 11.0, "beam_size": 96, "nbest": 5, "merge": "sum"},
}
TRIE_MORE = {
    "14:256": {"beam": 14.0, "beam_size": 256, "lm_scale": 0.8},
    "top tokens": {"beam": 10.0, "beam_size": 64, "token_top_k": 4},
    "blanks skipped": {"beam": 10.0, "beam_size": 64, "blank_skip_threshold": 0.95},
    "penalties": {
        "beam": 10.0,
        "beam_size": 64,
        "blank_penalty": 1.25,
        "word_insertion": -0.7,
        "token_insertion": 0.2,
        "acoustic_scale": 0.7,
    },
}
TOKENS = {
    "8:32": {"beam": 8.0, "beam_size": 32, "lm_scale": 0.5},
    "sum": {"beam": 8.0, "beam_size": 64, "lm_scale": 0.5, "merge": "sum"},
    "n-best": {
        "beam": 10.0,
        "beam_size": 64,
        "lm_scale": 0.5,
        "nbest": 5,
        "merge": "sum",
        "token_insertion": 0.3,
    },
}
GREEDY = {
    "plain": {},
    "scaled": {
        "acoustic_scale": 0.8,
        "lm_scale": 0.4,
        "token_insertion": 0.5,
        "blank_penalty": 1.5,
    },
}


class Real:
    """Records of real speech.

    Args:
        recording: Where they go.
        data: The project's data.
        folder: For files that are written.
    """

    def __init__(self, recording: Recording, data: Path, folder: Path) -> None:
        self.recording, self.data, self.folder = recording, data, folder
        self.arpa = data / real_sets.ARPA
        self.dev = real_sets.read_speech(data, "librispeech_dev", DEV)
        self.few = self.dev.some(FEW)
        self.lj = real_sets.read_speech(data, "ljspeech", LJ)
        self.common = {"threads": recording.threads}
        self.graph = cache(self._build)

    def record_graphs(self) -> None:
        """A graph of each topology, and what it finds."""
        cases = ("beam 8", "beam 13", "few active")
        for topology in TOPOLOGIES:
            graph = self.graph(topology)
            self.recording.note(topology, graph_record(graph))
            for case in cases if topology != "normal" else ():
                options = wfstdec.WfstOptions(**WFST[case])
                decoder = wfstdec.WfstDecoder(graph, options, "cpu", **self.common)
                name = f"{topology}, {case}"
                self.recording.decode(name, decoder, self.few.logprobs)
                if case == "beam 8":
                    for kind, boosts in self._boosts(graph, self.few):
                        named = f"{name}, {kind}"
                        self.recording.decode(named, decoder, self.few.logprobs, boosts)

    def record_wfst(self) -> None:
        """The search on the normal graph, from a file: options, boosts, chunks."""
        record, path = self.recording, self.folder / "graph.npz"
        self.graph("normal").save(path)
        graph = wfstdec.load_graph(path)
        record.note("loaded", graph_record(graph))
        options = wfstdec.WfstOptions(**WFST["beam 8"])
        decoder = wfstdec.WfstDecoder(graph, options, "cpu", **self.common)
        for case, changes in WFST.items():
            changed = wfstdec.WfstOptions(**changes)
            other = wfstdec.WfstDecoder(graph, changed, "cpu", **self.common)
            record.decode(f"dev, {case}", other, self.dev.logprobs)
            record.decode(f"lj, {case}", other, self.lj.logprobs)
        record.in_chunks("chunks", decoder, self.dev.logprobs)
        record.padded("padded", decoder, self.few.logprobs)
        for kind in (np.float16, np.float64):
            given = {name: x.astype(kind) for name, x in self.few.logprobs.items()}
            record.decode(kind.__name__, decoder, given)
        narrow = decoder.with_options(max_active=50, beam_delta=1.0)
        for kind, boosts in self._boosts(graph, self.dev):
            record.decode(kind, decoder, self.dev.logprobs, boosts)
            record.decode(f"narrow, {kind}", narrow, self.dev.logprobs, boosts)
            record.in_chunks(f"{kind}, chunks", decoder, self.dev.logprobs, boosts)

    def record_trie(self) -> None:
        """The trie search: options, look-aheads, boosts, chunks."""
        record, first = self.recording, self._trie("ngram", self.arpa)
        for lookahead in ("ngram", "unigram", "none"):
            decoder = first
            if lookahead != "ngram":
                decoder = self._trie(lookahead, first.lm)
            for case, changes in TRIE.items():
                other = decoder.with_options(**changes)
                record.decode(f"{lookahead}, {case}", other, self.few.logprobs)
        for case, changes in TRIE_MORE.items():
            other = first.with_options(**changes)
            record.decode(f"dev, {case}", other, self.dev.logprobs)
            record.decode(f"lj, {case}", other, self.lj.logprobs)
        record.padded("padded", first.with_options(**TRIE["6:16"]), self.few.logprobs)
        optional = self._trie("ngram", None, separator_optional=True)
        record.decode("no model", optional, self.few.logprobs)
        for case in ("12:128", "sum", "n-best"):
            decoder = first.with_options(**TRIE[case])
            for kind, boosts in self._boosts(first, self.few):
                name = f"{case}, {kind}"
                record.decode(name, decoder, self.few.logprobs, boosts)
                record.in_chunks(f"{name}, chunks", decoder, self.few.logprobs, boosts)

    def record_tokens(self) -> None:
        """Bare tokens, with the beam and greedily, with and without a model."""
        record, speech = self.recording, self.few.logprobs
        files = {"tokens": self.data / real_sets.TOKENS, "separator": "<wb>"}
        for name, lm in (("3-gram", self.token_arpa), ("no model", None)):
            for kind, cases in (("Trie", TOKENS), ("Greedy", GREEDY)):
                decoder = getattr(wfstdec, f"{kind}Decoder")(
                    **files, lm=lm, **self.common
                )
                phrases = list(self._token_phrases(decoder.tokens, self.few))
                for case, changes in cases.items():
                    other = decoder.with_options(**changes)
                    key = f"{kind.lower()}, {name}, {case}"
                    record.decode(key, other, speech)
                    record.in_chunks(f"{key}, chunks", other, speech)
                    for said, boosts in phrases:
                        record.decode(f"{key}, {said}", other, speech, boosts)

    def record_models(self) -> None:
        """Language models and compiled phrases, asked by themselves."""
        record, make = self.recording, wfstdec.NgramLM.from_arpa
        graph = self.graph("normal")
        for name, arpa, labels, unk_cost in (
            ("words", self.arpa, graph.words, None),
            ("fewer words", self.arpa, graph.words[:2000], 7.5),
            ("tokens", self.token_arpa, graph.tokens, None),
        ):
            model = make(arpa, labels, unk_cost=unk_cost)
            folder = self.folder / f"model of {name}"
            model.save(folder)
            files = {
                path.name: digest_of(np.frombuffer(path.read_bytes(), np.uint8))
                for path in sorted(folder.iterdir())
            }
            record.note(name, files | {"walks": walks(model)})
            record.note(f"{name}, saved", {"walks": walks(wfstdec.load_lm(folder))})
        for kind, phrases in self._boosts(graph, self.dev):
            if hasattr(phrases, "automaton"):
                sizes = {"num_states": phrases.num_states, "num_arcs": phrases.num_arcs}
                sizes["unknown"] = list(phrases.unknown)
                record.note(kind, {"walks": walks(phrases), **sizes})

    @cached_property
    def token_arpa(self) -> Path:
        """A 3-gram over tokens, of the words that are said in all of dev."""
        said = dict(reversed(real_sets.read_lexicon(self.data)))
        sentences = [
            [token for w in words if w in said for token in (*said[w], "<wb>")]
            for words in real_sets.read_references(self.data, "librispeech_dev")
        ]
        known = sorted({token for sentence in sentences for token in sentence})
        path = self.folder / "tokens.arpa"
        path.write_text(arpa_text(sentences, 3, known), "utf-8")
        return path

    def _build(self, topology: str) -> Any:
        return wfstdec.build_graph(**self._files(), arpa=self.arpa, topology=topology)

    def _trie(self, lookahead: str, lm: Any, **more: Any) -> Any:
        options = wfstdec.TrieOptions(lookahead=lookahead)
        return wfstdec.TrieDecoder(
            **self._files(), lm=lm, options=options, **self.common, **more
        )

    def _files(self) -> dict[str, Any]:
        files = {"tokens": self.data / real_sets.TOKENS}
        files["lexicon"] = self.data / real_sets.LEXICON
        return {**files, "separator": real_sets.SEPARATOR}

    def _boosts(
        self, tables: Any, speech: real_sets.Speech
    ) -> Iterator[tuple[str, Any]]:
        """Every kind of boosts for the words and tokens of a graph or a decoder."""
        yield from self._word_boosts(tables.words, speech)
        yield from self._token_phrases(tables.tokens, speech)

    def _word_boosts(
        self, words: tuple[str, ...], speech: real_sets.Speech
    ) -> Iterator[tuple[str, Any]]:
        """Words, keys of several words, phrases of words, and both."""
        ids = {word: i for i, word in enumerate(words) if i}
        said = real_sets.said_phrases(speech, ids)
        lists = real_sets.own_words(speech, ids)
        yield "words", lists
        yield "one list", {"the": -1.0, "little": 2.5, "house": 30.0, "nosuchword": 1.0}
        yield "several words", real_sets.own_pairs(speech, ids)
        for name, options in (
            ("credits", {}),
            ("totals", {"weights_are_totals": True}),
            ("outside", {"uniform": True, "outside_cost": 0.125}),
        ):
            how = wfstdec.PhraseOptions(**options)
            compiler = wfstdec.PhraseCompiler(spelling.by_words(ids), words, how)
            phrases = compiler.compile(said)
            yield f"phrases of words, {name}", phrases
        both = [wfstdec.Boosts(own or {}, phrases) for own in lists]
        yield "words and phrases", both

    def _token_phrases(
        self, tokens: Any, speech: real_sets.Speech
    ) -> Iterator[tuple[str, Any]]:
        """Phrases of tokens: anywhere, between boundaries, and for some utterances."""
        lexicon = real_sets.read_pronunciations(self.data, tokens)
        separator = tokens.ids[real_sets.SEPARATOR]
        said = real_sets.said_phrases(speech, set(lexicon.words))
        speller = spelling.by_lexicon(lexicon, separator=separator)
        make, options = wfstdec.PhraseCompiler, wfstdec.PhraseOptions
        yield "phrases of tokens", make(speller, tokens).compile(said)
        how = options(weights_are_totals=True)
        whole = make(speller, tokens, how, separator).compile(said)
        yield "phrases of tokens, whole words", whole
        low = {phrase: -2 * weight for phrase, weight in said.items()}
        other = make(speller, tokens, options(c0=0.6, beta=0.5)).compile(low)
        turns = [(whole, None, other)[i % 3] for i in range(len(speech.logprobs))]
        yield "phrases of tokens by turns", turns


def graph_record(graph: Any) -> dict[str, Any]:
    """Record of a graph: its size, contents and tables."""
    return {
        "fingerprint": graph.fingerprint,
        "num_states": graph.num_states,
        "num_arcs": graph.num_arcs,
        "ranks": digest_of(graph.epsilon_rank, graph.state_num_epsilons),
        "words": digest_of(np.array(graph.words)),
        "tokens": graph.tokens.fingerprint,
        "blank": graph.tokens.blank,
        "fillers": list(graph.vocabulary.separators),
        "topology": graph.topology,
    }


def walks(model: Any, count: int = 40, length: int = 25) -> list[list[Any]]:
    """Costs and states along random labels, many of which have an arc."""
    rng, found = np.random.default_rng(5), []
    for _ in range(count):
        state, costs, states = model.start, [], []
        for _ in range(length):
            row, _ = model.row(state)
            near = np.argsort(row, kind="stable")[:50]
            label = rng.choice(near) if rng.random() < 0.7 else rng.integers(len(row))
            cost, state = model.step(state, int(label))
            costs.append(cost)
            states.append(int(state))
        found.append([hex_of([*costs, model.final(state)]), states])
    return found


def arpa_text(sentences: Iterable[Sequence[str]], order: int, words: list[str]) -> str:
    """An ARPA model of the n-grams of sentences, by absolute discounting.

    It need not be a good one: its probabilities add up to no more than about 1.

    Args:
        sentences: Sequences of words, or of tokens.
        order: The longest n-grams.
        words: All that can be said; each is counted once more.
    """
    counts = [Counter((word,) for word in words)]
    counts += [Counter() for _ in range(order - 1)]
    for sentence in sentences:
        marked = (BEGIN, *sentence, END)
        for n, table in enumerate(counts, 1):
            table.update(marked[i : i + n] for i in range(len(marked) - n + 1))
    total = sum(counts[0].values()) - counts[0][BEGIN,]
    lines = ["\\data\\"]
    lines += [f"ngram {n}={len(table)}" for n, table in enumerate(counts, 1)]
    for n, table in enumerate(counts, 1):
        mass = _left_over(counts[n] if n < order else {})
        lines += ["", f"\\{n}-grams:"]
        for ngram, count in sorted(table.items()):
            part = (count - DISCOUNT) / counts[n - 2][ngram[:-1]] if n > 1 else 0
            prob = np.log10(part if n > 1 else count / total)
            shown = "-99" if ngram == (BEGIN,) else f"{prob:.4f}"
            backoff = f"\t{np.log10(mass[ngram]):.4f}" if ngram in mass else ""
            lines.append(f"{shown}\t{' '.join(ngram)}{backoff}")
    return "\n".join([*lines, "", "\\end\\", ""])


def _left_over(longer: dict[tuple[str, ...], int]) -> dict[tuple[str, ...], float]:
    """The share of each history that discounting leaves to what did not follow it."""
    followed, kinds = Counter(), Counter()
    for ngram, count in longer.items():
        followed[ngram[:-1]] += count
        kinds[ngram[:-1]] += 1
    return {h: DISCOUNT * kinds[h] / followed[h] for h in followed}
