"""Tables of the attention demo: searches, phrases and the end, a second pass.

    python -m tools.bench.attention_tables --table searches --lm pieces.arpa \\
        --output run.json

    searches   greedy and beams x language model x CTC weight; beside them the CTC head,
               the transducer demo and CTC-WFST on the same utterances, and NeMo's beam
               search on the same net, where it is installed
    phrases    "TurboBias" (arXiv 2508.07014) in small: CTC, RNN-T, attention x greedy
               and beam x lists and their weight; attention by its rule for the end
    rescoring  n-best lists of CTC-WFST and of the transducer in the order of the
               attention head: size of the list x weight

The speech is that of speakers none of the models was trained on. `phrases` and
`rescoring` have it in two parts: every second utterance is for choosing weights
(`tune`), the others are for telling (`test`). Seconds are CPU time of one thread: of
the model (the encoder too) and of all else, the search; they are noisy where others
run. "hung on" are words behind the last one of a reference, as the alignment with the
fewest errors has them. A list is the words of --letters letters or more that the
references of a part have once, and so many words of a text that nobody says.
"""

from __future__ import annotations

import argparse
import importlib.util
import itertools
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import sentencepiece
import torch

import wfstdec
from tools.bench.command import Run, bare_parser, exit_with, parse
from tools.bench.data import DATA
from tools.bench.phrase_lists import phrase_figures, rare_words, unsaid_words
from tools.bench.report import Row, figure, format_table, text_figure, word_errors
from tools.bench.transducer_tables import SPEAKERS
from tools.data.transducer_greedy import words_of
from tools.peers.nemo_attention import NemoAttention
from wfstdec import AttentionOptions, TransducerOptions
from wfstdec.attention.joint_net import load_attention
from wfstdec.attention.rescoring import reweighed
from wfstdec.autoregressive.model import TimedModel
from wfstdec.boost.phrases import PhraseOptions
from wfstdec.compare.speech import Speech, evenly_spaced, read_speech
from wfstdec.lm.ngram import NgramLM
from wfstdec.metrics import GAP, align
from wfstdec.text.files import read_lines
from wfstdec.transducer.decoder import open_model

PROFILES: dict[str, Row] = {
    "full": {},
    "small": {
        **{"utterances": 2, "beams": [1, 2], "ctc_weights": [0.0, 0.3]},
        **{"weights": [1.0], "unsaid": [0, 3], "sizes": [1, 2], "shares": [0.5]},
    },
}
DEMO, CTC = Path("graphs/attention_demo"), Path("graphs/librispeech_demo")
BATCH = 24
LM_SCALE = 0.8
"""Of CTC-WFST's language model over words."""
COLUMNS = {
    "model": text_figure("model"),
    "part": lambda row: row.get("part", "-"),
    "search": text_figure("search"),
    "K": figure("beam_size", "d"),
    "LM": lambda row: row.get("lm", "-"),
    "CTC": figure("ctc_weight", "g"),
    "norm": lambda row: row.get("length_norm", "-"),
    "end": lambda row: row.get("end_rule", "-"),
    "weight": figure("weight", "g"),
    "unsaid": figure("unsaid", "d"),
    "batch": figure("batch_size", "d"),
    "n": figure("nbest", "d"),
    "WER %": figure("wer", ".2f"),
    "best %": figure("oracle_wer", ".2f"),
    "hung on": figure("hung_on", "d"),
    "P %": figure("precision", ".1f"),
    "R %": figure("recall", ".1f"),
    "F %": figure("f_score", ".1f"),
    "model s": figure("model_s", ".1f"),
    "search s": figure("search_s", ".1f"),
}


def parse_arguments(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = bare_parser(__doc__)
    parser.set_defaults(repeats=1)
    add = parser.add_argument
    sets = DATA / "posteriors"
    add("--table", choices=sorted(TABLES), required=True)
    add("--model", type=Path, default=DEMO / "model.npz")
    add("--transducer", type=Path, default=Path("graphs/transducer_demo/model.npz"))
    add("--logprobs", type=Path, default=sets / "librispeech_dev.npz")
    add("--ref", type=Path, default=sets / "librispeech_dev.txt")
    add("--speakers", nargs="+", default=SPEAKERS)
    add("--utterances", type=int, help="so many of each part, evenly spread")
    add("--lm", type=Path, help="over pieces")
    add("--lm-scale", type=float, default=0.3)
    add("--beams", nargs="+", type=int, default=[1, 3, 8])
    add("--ctc-weights", nargs="+", type=float, default=[0.0, 0.3])
    add("--weights", nargs="+", type=float, default=[0.25, 0.5, 1.0], help="of phrases")
    add("--uniform", action="store_true", help="all labels of a phrase are worth c0")
    add("--unsaid", nargs="+", type=int, default=[0, 1000])
    add("--sizes", nargs="+", type=int, default=[1, 4, 16, 64], help="of n-best lists")
    shares = [0.1, 0.2, 0.3, 0.5, 0.7, 1.0, 1.5, 2.0]
    add("--shares", nargs="+", type=float, default=shares, help="of attention")
    add("--letters", type=int, default=7, help="a phrase's fewest")
    add("--text", type=Path, default=DATA / "text/standardebooks_9.1Mwords.txt.gz")
    add("--seed", type=int, default=1)
    add("--output", type=Path, help="write all figures as JSON, row by row")
    return parse(parser, argv, PROFILES)


def measure(
    model: TimedModel, call: Callable[[Any], Any], given: Any
) -> tuple[Any, Row]:
    """Result of a call, and its seconds; its first row goes through before."""
    call(given[:1])
    model.cpu_s, begin = 0.0, time.process_time()
    found = call(given)
    whole = time.process_time() - begin
    return found, {"model_s": model.cpu_s, "search_s": whole - model.cpu_s}


class Part:
    """Utterances, decoded by every family.

    Args:
        speech: All of them.
        ids: Those of the part.
    """

    def __init__(self, speech: Speech, ids: Sequence[str]) -> None:
        self.ids = ids
        self.references = {one: speech.references[one] for one in ids}
        self.logprobs = [speech.logprobs[one] for one in ids]
        self.features = [torch.from_numpy(np.array(rows)) for rows in self.logprobs]

    def figures(self, texts: Sequence[str]) -> Row:
        """The word error rate, and words that are hung on."""
        found = dict(zip(self.ids, texts, strict=True))
        told = word_errors(self.references, found)
        told["hung_on"] = sum(
            hung_on(self.references[name], text.split()) for name, text in found.items()
        )
        return told


def hung_on(reference: Sequence[str], words: Sequence[str]) -> int:
    """Words behind the last one that the reference has."""
    pairs = align(reference, list(words))
    behind = itertools.takewhile(lambda pair: pair[0] == GAP, pairs[::-1])
    return sum(1 for _ in behind)


class Tables:
    """Models and parts, and what is asked of them.

    Args:
        args: The flags.
    """

    def __init__(self, args: argparse.Namespace) -> None:
        self.args = args
        speech = read_speech(args.logprobs, args.ref)
        ids = sorted(n for n in speech.logprobs if n.split("-")[0] in args.speakers)
        chosen = {"all": ids, "tune": ids[1::2], "test": ids[::2]}
        self.parts = {
            name: Part(speech, evenly_spaced(own, args.utterances))
            for name, own in chosen.items()
        }
        self.frame_shift_s = speech.frame_shift_s
        self.attention: Any = TimedModel(load_attention(args.model))
        self.transducer: Any = TimedModel(open_model(args.transducer, "rnnt"))
        names = [*self.attention.tokens[: self.attention.eos], "<blank>"]
        self.tokens = wfstdec.token_table(names)
        self.lms: dict[str, NgramLM | None] = {"-": None}
        self._attention_lms = dict(self.lms)
        if args.lm:
            tokens = wfstdec.AttentionDecoder(self.attention).tokens
            self.lms["pieces"] = NgramLM.from_arpa(args.lm, self.tokens)
            self._attention_lms["pieces"] = NgramLM.from_arpa(args.lm, tokens)
        file = str(args.model.parent / "bpe.model")
        self._pieces = sentencepiece.SentencePieceProcessor(model_file=file)
        self._lists: dict[Any, Any] = {}

    def attended(
        self,
        part: str,
        lm: str,
        boosts: Any = None,
        batch_size: int = BATCH,
        **options: Any,
    ) -> Row:
        """Decode a part with the attention head."""
        own, scale = self.parts[part], self.args.lm_scale
        decoder = wfstdec.AttentionDecoder(
            self.attention,
            lm=self._attention_lms[lm],
            options=AttentionOptions(lm_scale=scale, **options),
            input="features",
            frame_shift_s=self.frame_shift_s * self.attention.stride,
            batch_size=batch_size,
        )
        given = boosts and boosts(decoder)
        found = measure(
            self.attention,
            lambda rows: decoder.decode(rows, boosts=given),
            own.features,
        )
        row = {"model": "attention", "search": "beam", "lm": lm}
        row["batch_size"] = batch_size
        return self._row(row | options, part, *found)

    def by_nemo(self, part: str, beam_size: int, batch_size: int) -> Row:
        """Decode a part with NeMo's beam search on the same net, no LM."""
        own = self.parts[part]
        peer = NemoAttention(self.attention, beam_size)

        def decode(features: Any) -> list[list[str]]:
            found: dict[int, tuple[int, ...]] = {}
            order = sorted(range(len(features)), key=lambda i: len(features[i]))
            for first in range(0, len(order), batch_size):
                rows = order[first : first + batch_size]
                chosen = [features[i].float() for i in rows]
                lengths = torch.tensor([len(one) for one in chosen])
                padded = torch.nn.utils.rnn.pad_sequence(chosen, batch_first=True)
                texts = peer.decode(*self.attention.encode(padded, lengths))
                found |= zip(rows, texts, strict=True)
            names = self.attention.tokens
            return [
                words_of([names[token] for token in found[i]])
                for i in range(len(order))
            ]

        texts, seconds = measure(self.attention, decode, own.features)
        row = {"model": "attention", "search": "NeMo", "beam_size": beam_size}
        row |= {"part": part, "batch_size": batch_size}
        return row | own.figures([" ".join(words) for words in texts]) | seconds

    def by_ctc(
        self, part: str, lm: str, search: str, boosts: Any = None, **options: Any
    ) -> Row:
        """Decode a part with the CTC head, by a search on bare pieces."""
        own, scale = self.parts[part], self.args.lm_scale
        options = {"lm_scale": scale, **options}
        kinds: Any = {
            "greedy": (wfstdec.GreedyDecoder, wfstdec.GreedyOptions),
            "trie": (wfstdec.TrieDecoder, wfstdec.TrieOptions),
        }
        kind, settings = kinds[search]
        decoder = kind(
            tokens=self.tokens,
            lm=self.lms[lm],
            options=settings(**options),
            frame_shift_s=self.frame_shift_s * self.attention.stride,
        )
        given = boosts and boosts(decoder)

        def decode(features: Any) -> Any:
            rows = []
            for one in features:
                frames, _ = self.attention.encode(
                    one[None].float(), torch.tensor([len(one)])
                )
                rows.append(self.attention.ctc(frames[0]).numpy())
            return decoder.decode(rows, boosts=given)

        row = {"model": "CTC head", "search": search, "lm": lm}
        found = measure(self.attention, decode, own.features)
        return self._row(row | options, part, *found)

    def transduced(self, part: str, lm: str, boosts: Any = None, **options: Any) -> Row:
        """Decode a part with the transducer demo."""
        own, scale = self.parts[part], self.args.lm_scale
        decoder = self.transducer_decoder(
            lm, TransducerOptions(lm_scale=scale, **options)
        )
        given = boosts and boosts(decoder)
        found = measure(
            self.transducer,
            lambda rows: decoder.decode(rows, boosts=given),
            own.features,
        )
        row = {"model": "RNN-T", "search": options["strategy"], "lm": lm}
        return self._row(row | options, part, *found)

    def transducer_decoder(self, lm: str, options: TransducerOptions) -> Any:
        """A decoder of features."""
        return wfstdec.TransducerDecoder(
            self.transducer,
            lm=self.lms[lm],
            options=options,
            input="features",
            frame_shift_s=self.frame_shift_s * self.transducer.stride,
        )

    def wfst(self, **options: Any) -> Any:
        """CTC-WFST on the phones' log-probs, with the demo's lexicon and trigram."""
        if "graph" not in self._lists:
            self._lists["graph"] = wfstdec.build_graph(
                tokens=CTC / "tokens.txt",
                lexicon=CTC / "lexicon.txt.gz",
                lm=CTC / "lm.arpa.gz",
            )
        settings = wfstdec.WfstOptions(**options)
        return wfstdec.WfstDecoder(self._lists["graph"], settings, threads=1)

    def spell(self, text: str) -> list[int]:
        """The pieces of a text; `<unk>`, the first, is none of the model's."""
        return [piece - 1 for piece in self._pieces.encode(text)]

    def phrases(self, part: str, unsaid: int) -> tuple[list[str], list[str]]:
        """Words of a part that are to be found, and the whole list."""
        args, own = self.args, self.parts[part]
        if "text" not in self._lists:
            everything = self.parts["all"].references
            found = unsaid_words(
                read_lines(args.text), everything, args.letters, args.seed
            )
            self._lists["text"] = found
        said = rare_words(own.references, args.letters)
        return said, said + self._lists["text"][:unsaid]

    def _row(self, row: Row, part: str, hyps: Sequence[Any], seconds: Row) -> Row:
        """A row; its texts are kept for `scored`."""
        own, self._texts = self.parts[part], [hyp.text for hyp in hyps]
        return row | {"part": part} | own.figures(self._texts) | seconds

    def scored(self, row: Row, said: Sequence[str]) -> Row:
        """The last row, and how the phrases of its texts are found."""
        own = self.parts[row["part"]]
        texts = dict(zip(own.ids, self._texts, strict=True))
        return row | phrase_figures(said, own.references, texts)


def searches(tables: Tables) -> Iterator[Row]:
    """Every family on all utterances, model and search apart."""
    args = tables.args
    part = tables.parts["all"]
    nemo_is_there = importlib.util.find_spec("nemo") is not None
    decoder = tables.wfst(lm_scale=LM_SCALE)
    hyps, seconds = measure(tables.attention, decoder.decode, part.logprobs)
    row = {"model": "CTC phones", "search": "WFST", "lm": "words", "part": "all"}
    row |= part.figures([hyp.text for hyp in hyps]) | seconds
    yield row | {"model_s": None}
    for lm in tables.lms:
        yield tables.by_ctc("all", lm, "greedy")
        yield tables.by_ctc("all", lm, "trie")
        yield tables.transduced("all", lm, strategy="greedy", beam_size=1)
        yield tables.transduced("all", lm, strategy="alsd", beam_size=6)
        for beam, ctc in itertools.product(args.beams, args.ctc_weights):
            yield tables.attended("all", lm, beam_size=beam, ctc_weight=ctc)
        if lm == "-":
            for beam, size in itertools.product(args.beams, (1, BATCH)):
                yield tables.attended("all", lm, beam_size=beam, batch_size=size)
                if nemo_is_there:
                    yield tables.by_nemo("all", beam, size)
        longest = {"beam_size": max(args.beams), "length_norm": "mean"}
        yield tables.attended("all", lm, **longest)


def phrases(tables: Tables) -> Iterator[Row]:
    """Families by lists, weights and rules for the end."""
    args = tables.args
    lists = [(0.0, 0), *itertools.product(args.weights, args.unsaid)]
    for part, (weight, unsaid) in itertools.product(("tune", "test"), lists):
        said, listed = tables.phrases(part, unsaid)
        boosts = _compiler(listed, weight, args.uniform)
        told = {"weight": weight, "unsaid": unsaid, "phrases": len(listed)}
        for found in _boosted(tables, part, boosts):
            yield tables.scored(found, said) | told


def _boosted(tables: Tables, part: str, boosts: Any) -> Iterator[Row]:
    """Every family with a list, or without one."""
    yield tables.by_ctc(part, "-", "greedy", boosts)
    yield tables.by_ctc(part, "-", "trie", boosts)
    yield tables.transduced(part, "-", boosts, strategy="greedy", beam_size=1)
    yield tables.transduced(part, "-", boosts, strategy="alsd", beam_size=6)
    rules = ["closed"] if boosts is None else ["closed", "compensated", "none"]
    for beam, rule in itertools.product(tables.args.beams, rules):
        yield tables.attended(part, "-", boosts, beam_size=beam, end_rule=rule)


def _compiler(
    listed: Sequence[str], weight: float, uniform: bool
) -> Callable[[Any], Any] | None:
    if not weight:
        return None
    weighed, options = dict.fromkeys(listed, weight), PhraseOptions(uniform=uniform)
    return lambda decoder: decoder.phrase_compiler(options).compile(weighed)


def rescoring(tables: Tables) -> Iterator[Row]:
    """Second passes of n-best lists by the attention head."""
    args = tables.args
    most = max(args.sizes)
    for part in "tune", "test":
        own = tables.parts[part]
        frames = [
            tables.attention.encode(one[None].float(), torch.tensor([len(one)]))[0][0]
            for one in own.features
        ]
        wfst = tables.wfst(lm_scale=LM_SCALE, lattice_beam=8.0, nbest=most)
        options = TransducerOptions(strategy="alsd", beam_size=16, nbest=most)
        rnnt = tables.transducer_decoder("-", options)
        first = {"WFST": (wfst, own.logprobs), "RNN-T": (rnnt, own.features)}
        for name, (decoder, given) in first.items():
            lists, seconds = measure(tables.attention, decoder.decode_nbest, given)
            first_s = sum(seconds.values())
            for size in args.sizes:
                yield from _passes(tables, part, name, frames, lists, size, first_s)


def _passes(
    tables: Tables,
    part: str,
    name: str,
    frames: Sequence[Any],
    lists: Sequence[Any],
    size: int,
    first_s: float,
) -> Iterator[Row]:
    """Rows of a size, by weight; the texts are scored once."""
    own, cut = tables.parts[part], [hyps[:size] for hyps in lists]
    ctc = max(tables.args.ctc_weights)
    again, seconds = measure(
        tables.attention,
        lambda lists: wfstdec.rescore(
            tables.attention,
            frames[: len(lists)],
            lists,
            weight=1.0,
            spell=tables.spell,
            ctc_weight=ctc,
        ),
        cut,
    )
    best = [
        min(
            (hyp.text for hyp in hyps),
            key=lambda text, name=one: word_errors(
                {name: own.references[name]}, {name: text}
            )["wer"],
            default="",
        )
        for one, hyps in zip(own.ids, cut, strict=True)
    ]
    oracle = own.figures(best)["wer"]
    settings = [(0.0, 0.0)]
    if size > 1:
        settings += itertools.product(tables.args.shares, tables.args.ctc_weights)
    for weight, ctc_weight in settings:
        found = reweighed(again, weight=weight, ctc_weight=ctc_weight)
        texts = [one[0].hypothesis.text if one else "" for one in found]
        row = {"model": name, "search": "rescored", "part": part, "nbest": size}
        row |= {"weight": weight, "ctc_weight": ctc_weight, "oracle_wer": oracle}
        yield row | {"first_s": first_s, **seconds} | own.figures(texts)


TABLES = {"searches": searches, "phrases": phrases, "rescoring": rescoring}


def main(argv: Sequence[str] | None = None) -> int:
    """Make a table, row by row."""
    args = parse_arguments(argv)
    torch.set_num_threads(1)
    torch.set_grad_enabled(False)
    run, tables = Run("tools.bench.attention_tables", args), Tables(args)
    rows: list[Row] = []
    for row in TABLES[args.table](tables):
        rows.append(row)
        print(format_table(COLUMNS, [row]).splitlines()[-1], flush=True)
        run.write(rows)
    print(format_table(COLUMNS, rows))
    print(run.footer())
    return 0


if __name__ == "__main__":
    exit_with(main)
