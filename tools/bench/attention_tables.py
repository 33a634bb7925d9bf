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
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import sentencepiece
import torch

import wfstdec
from tools.bench.command import Run, bare_parser, exit_with, parse, profiles
from tools.bench.parts import (
    by_length,
    parts_of,
    phrase_figures,
    rare_words,
    table_flags,
    unsaid_words,
)
from tools.bench.report import Row, figure, text_figure, word_errors
from tools.data.transducer_greedy import words_of
from tools.peers.nemo_attention import NemoAttention
from wfstdec import AttentionOptions, TransducerOptions
from wfstdec.attention.model import TimedModel
from wfstdec.attention.rescoring import reweighed
from wfstdec.attention.torch_model import load_attention
from wfstdec.boost.phrases import PhraseOptions
from wfstdec.compare.speech import Speech
from wfstdec.graph.packed import PackedGraph
from wfstdec.lm.ngram import NgramLM
from wfstdec.metrics import GAP, align
from wfstdec.text.files import read_lines
from wfstdec.transducer.decoder import open_model

PROFILES = profiles(
    **{"utterances": 2, "beams": [1, 2], "ctc_weights": [0.0, 0.3]},
    **{"weights": [1.0], "unsaid": [0, 3], "sizes": [1, 2], "shares": [0.5]},
)
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
    add = table_flags(parser, TABLES)
    add("--model", type=Path, default=DEMO / "model.npz")
    add("--transducer", type=Path, default=Path("graphs/transducer_demo/model.npz"))
    add("--lm", type=Path, help="over pieces")
    add("--beams", nargs="+", type=int, default=[1, 3, 8])
    add("--ctc-weights", nargs="+", type=float, default=[0.0, 0.3])
    add("--weights", nargs="+", type=float, default=[0.25, 0.5, 1.0], help="of phrases")
    add("--uniform", action="store_true", help="all labels of a phrase are worth c0")
    add("--unsaid", nargs="+", type=int, default=[0, 1000])
    add("--sizes", nargs="+", type=int, default=[1, 4, 16, 64], help="of n-best lists")
    shares = [0.1, 0.2, 0.3, 0.5, 0.7, 1.0, 1.5, 2.0]
    add("--shares", nargs="+", type=float, default=shares, help="of attention")
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
        pairs = ((self.references[name], text.split()) for name, text in found.items())
        hung = sum(hung_on(reference, words) for reference, words in pairs)
        return word_errors(self.references, found) | {"hung_on": hung}


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
        speech, chosen = parts_of(args)
        self.parts = {name: Part(speech, own) for name, own in chosen.items()}
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

    @cached_property
    def graph(self) -> PackedGraph:
        """The demo's lexicon and trigram, for the phones' log-probs."""
        return wfstdec.build_graph(
            tokens=CTC / "tokens.txt",
            lexicon=CTC / "lexicon.txt.gz",
            lm=CTC / "lm.arpa.gz",
        )

    @cached_property
    def unsaid(self) -> list[str]:
        """Words of the text that nobody says."""
        args, everything = self.args, self.parts["all"].references
        return unsaid_words(read_lines(args.text), everything, args.letters, args.seed)

    def attended(
        self,
        part: str,
        lm: str,
        boosts: Any = None,
        batch_size: int = BATCH,
        **options: Any,
    ) -> Row:
        """Decode a part with the attention head."""
        decoder = wfstdec.AttentionDecoder(
            self.attention,
            lm=self._attention_lms[lm],
            options=AttentionOptions(lm_scale=self.args.lm_scale, **options),
            input="features",
            frame_shift_s=self.frame_shift_s * self.attention.stride,
            batch_size=batch_size,
        )
        row = {"model": "attention", "search": "beam", "lm": lm}
        row |= {"batch_size": batch_size} | options
        return self._decoded(row, part, self.attention, decoder, boosts)

    def by_nemo(self, part: str, beam_size: int, batch_size: int) -> Row:
        """Decode a part with NeMo's beam search on the same net, no LM."""
        own, names = self.parts[part], self.attention.tokens
        peer = NemoAttention(self.attention, beam_size)

        def decode(features: Any) -> list[str]:
            found = by_length(
                features,
                batch_size,
                lambda padded, lengths: peer.decode(
                    *self.attention.encode(padded.float(), lengths)
                ),
            )
            return [" ".join(words_of(names[t] for t in tokens)) for tokens in found]

        texts, seconds = measure(self.attention, decode, own.features)
        row = {"model": "attention", "search": "NeMo", "beam_size": beam_size}
        row |= {"part": part, "batch_size": batch_size}
        return row | own.figures(texts) | seconds

    def by_ctc(
        self, part: str, lm: str, search: str, boosts: Any = None, **options: Any
    ) -> Row:
        """Decode a part with the CTC head, by a search on bare pieces."""
        options = {"lm_scale": self.args.lm_scale, **options}
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
        row = {"model": "CTC head", "search": search, "lm": lm} | options
        return self._decoded(
            row,
            part,
            self.attention,
            decoder,
            boosts,
            lambda features: [
                self.attention.ctc(self.encoded(one)).numpy() for one in features
            ],
        )

    def encoded(self, features: Any) -> Any:
        """Frames of the attention net for an utterance."""
        one = features[None].float()
        return self.attention.encode(one, torch.tensor([len(features)]))[0][0]

    def transduced(self, part: str, lm: str, boosts: Any = None, **options: Any) -> Row:
        """Decode a part with the transducer demo."""
        decoder = self.transducer_decoder(lm, lm_scale=self.args.lm_scale, **options)
        row = {"model": "RNN-T", "search": options["strategy"], "lm": lm} | options
        return self._decoded(row, part, self.transducer, decoder, boosts)

    def transducer_decoder(self, lm: str, **options: Any) -> Any:
        """A decoder of features."""
        return wfstdec.TransducerDecoder(
            self.transducer,
            lm=self.lms[lm],
            options=TransducerOptions(**options),
            input="features",
            frame_shift_s=self.frame_shift_s * self.transducer.stride,
        )

    def wfst(self, **options: Any) -> Any:
        """CTC-WFST on the phones' log-probs."""
        settings = wfstdec.WfstOptions(lm_scale=LM_SCALE, **options)
        return wfstdec.WfstDecoder(self.graph, settings, threads=1)

    def spell(self, text: str) -> list[int]:
        """The pieces of a text; `<unk>`, the first, is none of the model's."""
        return [piece - 1 for piece in self._pieces.encode(text)]

    def phrases(self, part: str, unsaid: int) -> tuple[list[str], list[str]]:
        """Words of a part that are to be found, and the whole list."""
        said = rare_words(self.parts[part].references, self.args.letters)
        return said, said + self.unsaid[:unsaid]

    def _decoded(
        self,
        row: Row,
        part: str,
        model: TimedModel,
        decoder: Any,
        boosts: Any,
        inputs: Callable[[Any], Any] = lambda features: features,
    ) -> Row:
        """A row, with what a decoder finds; its texts are kept for `scored`."""
        own, given = self.parts[part], boosts and boosts(decoder)
        hyps, seconds = measure(
            model,
            lambda features: decoder.decode(inputs(features), boosts=given),
            own.features,
        )
        self._texts = [hyp.text for hyp in hyps]
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
    decode = tables.wfst().decode
    hyps, seconds = measure(tables.attention, decode, part.logprobs)
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
        frames = list(map(tables.encoded, own.features))
        wfst = tables.wfst(lattice_beam=8.0, nbest=most)
        options = {"strategy": "alsd", "beam_size": 16, "nbest": most}
        rnnt = tables.transducer_decoder("-", **options)
        first = {"WFST": (wfst, own.logprobs), "RNN-T": (rnnt, own.features)}
        for name, (decoder, given) in first.items():
            lists, seconds = measure(tables.attention, decoder.decode_nbest, given)
            row = {"model": name, "search": "rescored", "part": part}
            row["first_s"] = sum(seconds.values())
            for size in args.sizes:
                for found in _passes(tables, own, frames, lists, size):
                    yield row | found


def _passes(
    tables: Tables, own: Part, frames: Sequence[Any], lists: Sequence[Any], size: int
) -> Iterator[Row]:
    """Rows of a size, by weight; the texts are scored once."""
    cut = [hyps[:size] for hyps in lists]
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
        row = {"nbest": size, "weight": weight, "ctc_weight": ctc_weight}
        yield row | {"oracle_wer": oracle} | seconds | own.figures(texts)


TABLES = {"searches": searches, "phrases": phrases, "rescoring": rescoring}


def main(argv: Sequence[str] | None = None) -> int:
    """Make a table, row by row."""
    args = parse_arguments(argv)
    torch.set_num_threads(1)
    torch.set_grad_enabled(False)
    run = Run("tools.bench.attention_tables", args)
    return run.finish(TABLES[args.table](Tables(args)), COLUMNS)


if __name__ == "__main__":
    exit_with(main)
