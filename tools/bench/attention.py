"""How much of the time a search with an attention decoder takes of the model's.

    python -m tools.bench.attention --output run.json

A random decoder of Whisper-tiny's shape (4 layers of 384, 51,865 outputs), frames of
noise, phrases of two to four tokens. Of each beam and batch: CPU time in `start`,
`step` and `take` of the model, and in everything else, the search; medians of turns.
Texts run to --tokens: a random model ends nowhere, which says nothing of error rates.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterator
from itertools import product
from typing import Any

import numpy as np
import torch

from tools.bench.command import Run, exit_with, make_parser, parse
from tools.bench.report import Row, figure
from wfstdec import AttentionDecoder, AttentionOptions
from wfstdec.attention.model import TimedModel
from wfstdec.attention.torch_model import AttentionNet, AttentionSizes, TorchAttention
from wfstdec.boost.compile import PhraseCompiler

NUM_TOKENS, EOS = 51_865, 50_257
COLUMNS = {
    "K": figure("beam_size", "d"),
    "batch": figure("batch", "d"),
    "phrases": figure("phrases", ",d"),
    "steps": figure("steps", "d"),
    "model ms a step": figure("model_ms", ".1f"),
    "search ms a step": figure("search_ms", ".2f"),
    "search % of all": figure("share", ".1f"),
}


class CountedWords(TorchAttention):
    """A model whose steps are counted."""

    steps = 0

    def step(self, *given: Any) -> Any:
        self.steps += 1
        return super().step(*given)


def parse_arguments(argv: list[str] | None) -> argparse.Namespace:
    parser = make_parser(__doc__)
    add = parser.add_argument
    add("--beams", nargs="+", type=int, default=[1, 8])
    add("--batches", nargs="+", type=int, default=[1, 24])
    add("--sizes", nargs="+", type=int, default=[0, 1000])
    add("--tokens", type=int, default=12)
    return parse(parser, argv)


def main(argv: list[str] | None = None) -> int:
    """Time every beam, batch and list."""
    torch.set_num_threads(1)
    args = parse_arguments(argv)
    torch.manual_seed(0)
    sizes = AttentionSizes(NUM_TOKENS, 384, 384, heads=6, layers=4)
    names = [f"t{i}" for i in range(NUM_TOKENS)]
    timed = TimedModel(CountedWords(AttentionNet(sizes), names, EOS, prompt=(0,)))
    frames = torch.randn(max(args.batches), args.tokens, 384)

    def rows() -> Iterator[Row]:
        for size, beam, batch in product(args.sizes, args.beams, args.batches):
            options = AttentionOptions(beam_size=beam, stop="never")
            decoder = AttentionDecoder(timed, options=options, batch_size=batch)
            boosts = phrases(decoder, size)
            row: Row = {"beam_size": beam, "batch": batch, "phrases": size}
            figures = measured(decoder, timed, frames[:batch], boosts, args.repeats)
            yield row | figures

    return Run("tools.bench.attention", args).finish(rows(), COLUMNS)


def phrases(decoder: Any, num: int) -> Any:
    """Random phrases of two to four tokens."""
    if not num:
        return None
    draw = np.random.default_rng(0)
    spelt = {
        f"p{i}": [tuple(draw.integers(EOS, size=draw.integers(2, 5)).tolist())]
        for i in range(num)
    }
    compiler = PhraseCompiler(lambda texts: [spelt[t] for t in texts], decoder.tokens)
    return compiler.compile(list(spelt))


def measured(
    decoder: Any, timed: TimedModel, frames: Any, boosts: Any, repeats: int
) -> Row:
    """Medians of some turns, milliseconds a step."""
    decoder.texts(frames[:1, :2], boosts=boosts)
    found = []
    for _ in range(repeats):
        timed.cpu_s, timed.model.steps = 0.0, 0
        begin = time.process_time()
        decoder.texts(frames, boosts=boosts)
        found.append((time.process_time() - begin, timed.cpu_s, timed.model.steps))
    shares = [100 * (1 - model / whole) for whole, model, _ in found]
    place = int(np.argsort(shares)[len(shares) // 2])
    whole, model, steps = found[place]
    return {
        "steps": steps,
        "model_ms": 1e3 * model / steps,
        "search_ms": 1e3 * (whole - model) / steps,
        "share": shares[place],
        "shares": sorted(shares),
    }


if __name__ == "__main__":
    exit_with(main)
