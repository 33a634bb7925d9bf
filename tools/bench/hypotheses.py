"""Time of the host after a search: paths to hypotheses, microseconds each.

    python -m tools.bench.hypotheses --data graphs/librispeech_demo      # no GPU needed
    python -m tools.bench.hypotheses --utterances 400 --output run.json

Of a batch of `--batch` utterances (those of the set, again and again), in CPU time of
one thread:

    steps to paths       what a GPU's host reads of the arcs that came back
    paths to hypotheses  what `decode` then does before it returns
    all words            reading the words of all hypotheses, with their times
    all tokens           and their tokens

Answers come first: hypotheses of the batch have to be those of each utterance alone.
"""

from __future__ import annotations

import argparse
from functools import partial
from statistics import median
from typing import Any

import numpy as np

from tools.bench.cases import Case, default_case
from tools.bench.command import Run, exit_with, make_parser, parse, profiles
from tools.bench.report import Row
from tools.bench.row_storage import PackedBackend
from tools.bench.timing import Turns
from wfstdec.boost.compiled import CompiledBoosts
from wfstdec.search.paths.traceback import read_paths, rule_of
from wfstdec.wfst.decoder import WfstDecoder
from wfstdec.wfst.gpu.layout import STEP
from wfstdec.wfst.options import WfstOptions

PROFILES = profiles()


def parse_arguments(argv: list[str] | None) -> argparse.Namespace:
    parser = make_parser(__doc__)
    parser.add_argument("--beam", type=float, default=8.0)
    parser.add_argument("--batch", type=int, default=400)
    return parse(parser, argv, PROFILES)


def steps_of(decoder: WfstDecoder, utterance: np.ndarray) -> np.ndarray:
    """STEP [N] of the best path, the last step first, as a GPU sends them."""
    none = decoder._boosts.compile(None, 1)[0]
    search: Any = decoder._backend.start(decoder.options, none)
    search.advance(utterance)
    utterance = search._utterance
    path = search.finish()  # leaves the trace of a short utterance as it was
    arcs: list[tuple[int, float]] = []
    # The path ends in the entry of its cost.
    entries = utterance.frontier[: utterance.counts[0]]
    cost = entries["cost"]
    if path.reached_final:
        final = decoder.graph.final_cost[entries["state"]]
        cost = cost + np.float32(decoder.options.lm_scale) * final
    end = np.lexsort((entries["state"], cost))[0]
    node = utterance.trace[entries["node"][end]]
    while node["arc"] != 0xFFFFFFFF:
        arcs.append((int(node["arc"]), float(node["acoustic"])))
        node = utterance.trace[node["previous"]]
    return np.array(arcs, STEP)


def measure(case: Case, args: argparse.Namespace) -> Row:
    """The microseconds of a batch."""
    options = WfstOptions(beam=args.beam, lm_scale=case.lm_scale)
    decoder = case.wfst_decoder(options)
    size, given = args.batch, case.utterances
    utterances = [given[i % len(given)] for i in range(size)]
    boosts: list[CompiledBoosts] = decoder._boosts.compile(None, size)
    paths = decoder._search(utterances, boosts)
    alone = [decoder.decode([one])[0] for one in given]
    found = decoder._read(paths, boosts)
    assert all(h == alone[i % len(given)] for i, h in enumerate(found))
    packed = case.wfst_decoder(options)
    packed._backend = PackedBackend(decoder.graph)  # its trace can be read
    rule, each = rule_of(case.graph), [steps_of(packed, one) for one in given]
    steps = np.concatenate([each[i % len(given)] for i in range(size)])
    count = np.array([len(each[i % len(given)]) for i in range(size)], np.int64)
    first = np.cumsum(count) - count
    for one, path in zip(read_paths(rule, steps, first, count), paths, strict=True):
        for left, right in zip(one, path.said, strict=True):
            assert np.array_equal(left, right), "a path is read in another way"
    runs = {
        "steps_to_paths": partial(read_paths, rule, steps, first, count),
        "paths_to_hypotheses": partial(decoder._read, paths, boosts),
        "and_all_words": lambda: [h.words for h in decoder._read(paths, boosts)],
        "and_all_tokens": lambda: [h.tokens for h in decoder._read(paths, boosts)],
    }
    turns = Turns(runs)
    turns.repeat(args.repeats)
    seconds = turns.seconds.items()
    row = {name: round(1e6 * median(taken) / size, 2) for name, taken in seconds}
    frames = sum(map(len, utterances))
    return row | {"batch": size, "beam": args.beam, "frames": frames}


def main(argv: list[str] | None = None) -> int:
    args = parse_arguments(argv)
    run = Run("tools.bench.hypotheses", args)
    return run.finish([measure(default_case(args), args)])


if __name__ == "__main__":
    exit_with(main)
