"""The tables of the papers on transducers: what a beam, a scale, a batch, a list does.

    python -m tools.bench.transducer_tables --table beams --lm in=pieces.arpa \\
        --lm out=other.arpa --output run.json

After "Efficient batched beam search for transducers" (ALSD++, AES++; arXiv 2505.23185)
and "TurboBias" (phrases; arXiv 2508.07014), in small:

    expansions  AES++: rounds x gamma x language model, of both parts of the speech
    beams       search x K x language model
    scales      search x lambda x language model, in and out of its domain
    batches     search x batch size, with the first language model and without
    phrases     search x size of the list x tree or uniform x language model

The speech is that of some speakers, in two parts: every second utterance is for
choosing (`tune`), the others are for telling (`test`). Seconds are of one thread's CPU
time, the fastest of all turns, the encoder left out; they are noisy where others run.
A list of phrases is the words of
`--letters` letters or more that the references of the part have once, and as many more
as make its size, words of the text that no reference has. P, R and F are of those that
are said.
"""

from __future__ import annotations

import argparse
import itertools
import time
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import torch

from tools.bench.command import Run, bare_parser, exit_with, parse, profiles
from tools.bench.parts import (
    parts_of,
    phrase_figures,
    rare_words,
    table_flags,
    unsaid_words,
)
from tools.bench.report import Row, figure, text_figure, word_errors
from wfstdec import TransducerDecoder, TransducerOptions
from wfstdec.boost.phrases import PhraseOptions
from wfstdec.lm.ngram import NgramLM
from wfstdec.text.files import read_lines
from wfstdec.transducer.decoder import open_model

PROFILES = profiles(
    **{"utterances": 2, "heads": ["rnnt"], "beams": [2], "scales": [0.3]},
    **{"rounds": [1], "gammas": [2.3], "batches": [1, 2], "sizes": [3]},
)
COLUMNS = {
    "head": text_figure("head"),
    "part": text_figure("part"),
    "search": text_figure("strategy"),
    "LM": text_figure("lm"),
    "lambda": figure("lm_scale", "g"),
    "K": figure("beam_size", "d"),
    "batch": figure("batch_size", "d"),
    "rounds": figure("expansion_rounds", "d"),
    "gamma": figure("expansion_gamma", "g"),
    "phrases": figure("phrases", "d"),
    "spread": lambda row: row.get("spread", "-"),
    "WER %": figure("wer", ".2f"),
    "P %": figure("precision", ".1f"),
    "R %": figure("recall", ".1f"),
    "F %": figure("f_score", ".1f"),
    "CPU s": figure("cpu_s", ".2f"),
}


def parse_arguments(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = bare_parser(__doc__)
    add = table_flags(parser, TABLES)
    add("--model", type=Path, default=Path("graphs/transducer_demo/model.npz"))
    add("--heads", nargs="+", default=["rnnt", "tdt"])
    add("--lm", action="append", default=[], metavar="NAME=ARPA", help="over pieces")
    add("--strategies", nargs="+", default=["alsd", "aes"])
    add("--beam-size", type=int, default=6)
    add("--beams", nargs="+", type=int, default=[1, 2, 4, 6, 8, 10, 12])
    add("--scales", nargs="+", type=float, default=[0.1, 0.2, 0.3, 0.4, 0.5, 0.7])
    add("--rounds", nargs="+", type=int, default=[1, 2, 3, 4])
    gammas = [1.0, 2.3, 4.0, 6.0, 8.0, 12.0]
    add("--gammas", nargs="+", type=float, default=gammas)
    add("--batches", nargs="+", type=int, default=[1, 2, 4, 8, 16, 32, 64])
    add("--sizes", nargs="+", type=int, default=[100, 1000, 20000])
    return parse(parser, argv, PROFILES)


class Tables:
    """Decodes parts by settings.

    Args:
        args: The flags.
    """

    def __init__(self, args: argparse.Namespace) -> None:
        self.args = args
        self._speech, self._ids = parts_of(args)
        self._models = {head: open_model(args.model, head) for head in args.heads}
        self._frames = cache(self._encoded)
        self._words = cache(self._rare_and_unsaid)
        tokens = TransducerDecoder(self._models[args.heads[0]]).tokens
        self.lms: dict[str, NgramLM | None] = {"-": None}
        for given in args.lm:
            name, _, path = given.partition("=")
            self.lms[name] = NgramLM.from_arpa(Path(path), tokens)
        self._boosts: dict[Any, Any] = {}

    def _encoded(self, part: str, head: str) -> list[Any]:
        """The frames of a part."""
        rows = [self._speech.logprobs[one] for one in self._ids[part]]
        decoder = TransducerDecoder(self._models[head], input="features")
        return decoder.encode(list(map(torch.from_numpy, rows)))

    def row(self, setting: Row) -> Row:
        """Decode a part by a setting."""
        part, args = setting.get("part", "test"), self.args
        ids, speech = self._ids[part], self._speech
        references = {one: speech.references[one] for one in ids}
        given = {"head": args.heads[0], "lm": "-", "batch_size": 32} | setting
        options = {"beam_size": args.beam_size, "lm_scale": args.lm_scale} | {
            name: value for name, value in given.items() if name in _OPTIONS
        }
        decoder = TransducerDecoder(
            self._models[given["head"]],
            lm=self.lms[given["lm"]],
            options=TransducerOptions(**options),
            batch_size=given["batch_size"],
        )
        boosts, said = None, []
        if "phrases" in given:
            said, others = self._words(part)
            boosts = self._list(decoder, said, others, given)
        frames = self._frames(part, given["head"])
        seconds = float("inf")
        for _ in range(args.repeats):
            began = time.process_time()
            hyps = decoder.decode(frames, boosts=boosts)
            seconds = min(seconds, time.process_time() - began)
        texts = dict(zip(ids, (hyp.text for hyp in hyps), strict=True))
        num_frames = sum(len(speech.logprobs[one]) for one in ids)
        row = {"part": part, **options, **given, "cpu_s": seconds}
        row |= {"audio_s": num_frames * speech.frame_shift_s}
        row |= word_errors(references, texts)
        return row | phrase_figures(said, references, texts) if said else row

    def _list(
        self,
        decoder: TransducerDecoder,
        said: list[str],
        others: list[str],
        given: Row,
    ) -> Any:
        """The list of a size and a spread, compiled; None for no phrases."""
        key = given["phrases"], given["spread"]
        if not given["phrases"]:
            return None
        if key not in self._boosts:
            spread = PhraseOptions(uniform=given["spread"] == "uniform")
            phrases = said + others[: max(given["phrases"] - len(said), 0)]
            self._boosts[key] = decoder.phrase_compiler(spread).compile(phrases)
        return self._boosts[key]

    def _rare_and_unsaid(self, part: str) -> tuple[list[str], list[str]]:
        """Rare words of a part, and words of the text that nobody says there."""
        args = self.args
        references = {one: self._speech.references[one] for one in self._ids[part]}
        said = rare_words(references, args.letters)[: min(args.sizes)]
        lines = read_lines(args.text)
        return said, unsaid_words(lines, references, args.letters, args.seed)


_OPTIONS = frozenset(TransducerOptions.__dataclass_fields__)


def expansions(args: argparse.Namespace, lms: Sequence[str]) -> Iterator[Row]:
    """Settings of AES++, on both parts."""
    axes = args.heads, lms, args.rounds, args.gammas, ("tune", "test")
    for head, lm, rounds, gamma, part in itertools.product(*axes):
        more = {"expansion_rounds": rounds, "expansion_gamma": gamma}
        yield {"head": head, "strategy": "aes", "lm": lm, "part": part, **more}


def beams(args: argparse.Namespace, lms: Sequence[str]) -> Iterator[Row]:
    """Settings over K; greedy before them."""
    for head, lm in itertools.product(args.heads, lms):
        yield {"head": head, "strategy": "greedy", "lm": lm, "beam_size": 1}
        for strategy, beam in itertools.product(args.strategies, args.beams):
            yield {"head": head, "strategy": strategy, "lm": lm, "beam_size": beam}


def scales(args: argparse.Namespace, lms: Sequence[str]) -> Iterator[Row]:
    """Settings over lambda."""
    axes = args.heads, args.strategies, lms[1:], args.scales
    for head, strategy, lm, scale in itertools.product(*axes):
        yield {"head": head, "strategy": strategy, "lm": lm, "lm_scale": scale}


def batches(args: argparse.Namespace, lms: Sequence[str]) -> Iterator[Row]:
    """Settings over the batch size; 1 is the plain search."""
    axes = args.heads, ("greedy", *args.strategies), lms[:2], args.batches
    for head, strategy, lm, size in itertools.product(*axes):
        yield {"head": head, "strategy": strategy, "lm": lm, "batch_size": size}


def phrases(args: argparse.Namespace, lms: Sequence[str]) -> Iterator[Row]:
    """Settings over lists; without one before them."""
    axes = args.heads, ("greedy", *args.strategies), lms[:2]
    for head, strategy, lm in itertools.product(*axes):
        one = {"head": head, "strategy": strategy, "lm": lm}
        yield {**one, "phrases": 0, "spread": "-"}
        for size, spread in itertools.product(args.sizes, ("tree", "uniform")):
            yield {**one, "phrases": size, "spread": spread}


TABLES = {
    "expansions": expansions,
    "beams": beams,
    "scales": scales,
    "batches": batches,
    "phrases": phrases,
}


@torch.no_grad()
def main(argv: Sequence[str] | None = None) -> int:
    args = parse_arguments(argv)
    torch.set_num_threads(1)
    run, tables = Run("tools.bench.transducer_tables", args), Tables(args)
    tables.row({"strategy": "aes", "head": args.heads[-1], "part": "test"})  # compiles
    settings = TABLES[args.table](args, list(tables.lms))
    return run.finish(map(tables.row, settings), COLUMNS)


if __name__ == "__main__":
    exit_with(main)
