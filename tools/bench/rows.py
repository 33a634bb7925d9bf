"""The CPU's search on rows of LG against that on the packed graph, by turns.

    python -m tools.bench.rows --output run.json
    python -m tools.bench.rows --cases hard:lm_books.3g_pruned --beams 10 --kinds whole

Of both searches everything that they find is compared first. What is timed:

    whole     whole utterances, in one `decode`
    words     the same with 300 boosted words
    phrases   the same with 300 boosted phrases of two words
    fewest    whole utterances with `min_active`
    chunks    sessions that get a chunk at a time
    looks     sessions that are also looked at after each chunk

Nanoseconds of CPU for a frame, one thread. Lattices and OOV words go on the packed
graph in both, and are not here.
"""

from __future__ import annotations

import argparse
import statistics
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from tools.bench.cases import Case, Inputs, make_cases
from tools.bench.command import Run, exit_with, make_parser, parse
from tools.bench.report import Row
from tools.bench.timing import Turns
from wfstdec.wfst.cpu.backend import CpuBackend
from wfstdec.wfst.decoder import WfstDecoder
from wfstdec.wfst.options import WfstOptions

KINDS = ("whole", "words", "phrases", "fewest", "chunks", "looks")
WORDS, NATS = 300, 3.0
"""How many words or phrases are boosted, and by how much."""


class PackedBackend(CpuBackend):
    """A backend that searches every graph as it is packed."""

    on_rows = None  # type: ignore[assignment]


def add_own(parser: argparse.ArgumentParser) -> None:
    """Add the flags of this benchmark."""
    add = parser.add_argument
    add("--cases", nargs="+", default=["dev:lm_books.3g_pruned"])
    add("--beams", nargs="+", type=float, default=[8.0, 10.0, 13.0, 17.0])
    add("--kinds", nargs="+", choices=KINDS, default=list(KINDS))
    add("--chunk", type=int, default=32, help="frames of a chunk; default 32")
    add("--min-active", type=int, default=200)


def whole(decoder: WfstDecoder, arrays: list[np.ndarray], boosts: Any) -> Any:
    """Decode whole utterances."""
    return decoder.decode(arrays, boosts=boosts)


def in_chunks(
    decoder: WfstDecoder, arrays: list[np.ndarray], size: int, look: bool
) -> Any:
    """Decode utterances one after the other, in chunks; partial results too."""
    sessions, found = decoder.sessions(), []
    for array in arrays:
        one = sessions.open()
        for first in range(0, len(array), size):
            sessions.advance({one: array[first : first + size]})
            if look:
                found.append(sessions.partial(one))
        found.append(sessions.close(one))
    return found


def boosted_words(case: Case, size: int = 1) -> dict[str, float] | None:
    """Some words of the graph; with a size of 2, as many pairs of them."""
    assert case.graph is not None
    rng = np.random.default_rng(0)
    picked = rng.permutation(len(case.graph.words) - 1)[: size * WORDS] + 1
    words = [case.graph.words[i] for i in picked.tolist()]
    return {" ".join(some): NATS for some in zip(*[iter(words)] * size, strict=True)}


def task_of(
    kind: str, decoder: WfstDecoder, case: Case, args: argparse.Namespace
) -> Callable[[], Any]:
    """Make the call that is timed."""
    arrays = [np.ascontiguousarray(x, np.float32) for x in case.utterances]
    if kind in ("chunks", "looks"):
        return partial(in_chunks, decoder, arrays, args.chunk, kind == "looks")
    if kind == "fewest":
        decoder = decoder.with_options(min_active=args.min_active)
    boosts = {"words": boosted_words(case), "phrases": boosted_words(case, 2)}.get(kind)
    return partial(whole, decoder, arrays, boosts)


def measure(case: Case, beam: float, kind: str, args: argparse.Namespace) -> Row:
    """Compare both searches; their nanoseconds a frame.

    Raises:
        SystemExit: They find different things.
    """
    options = WfstOptions(beam=beam, lm_scale=case.lm_scale)
    decoders = {name: case.wfst_decoder(options) for name in ("packed", "rows")}
    assert case.graph is not None
    decoders["packed"]._backend = PackedBackend(case.graph)
    tasks = {name: task_of(kind, one, case, args) for name, one in decoders.items()}
    turns = Turns(tasks)
    answers = turns.take()  # kernels are compiled
    if answers["packed"] != answers["rows"]:
        raise SystemExit(f"{case.name}, beam {beam:g}, {kind}: different results")
    for seconds in turns.seconds.values():
        seconds.clear()
    turns.repeat(args.repeats)
    frames = sum(map(len, case.utterances))
    row: Row = {"case": case.name, "beam": beam, "kind": kind, "frames": frames}
    for name, seconds in turns.seconds.items():
        each = [round(1e9 * one / frames) for one in seconds]
        row |= {f"{name}_ns": min(each), f"{name}_median_ns": statistics.median(each)}
    row["ratio"] = round(row["packed_ns"] / row["rows_ns"], 3)
    row["median_ratio"] = round(row["packed_median_ns"] / row["rows_median_ns"], 3)
    row["results"] = len(answers["rows"])
    return row


def main(argv: list[str] | None = None) -> int:
    parser = make_parser(__doc__)
    add_own(parser)
    args = parse(parser, argv)
    run, rows = Run("tools.bench.rows", args), []
    for case in make_cases(args.cases, Inputs.of(args)):
        for beam in args.beams:
            for kind in args.kinds:
                rows.append(measure(case, beam, kind, args))
                print(rows[-1], flush=True)
    run.write(rows)
    print(run.footer())
    return 0


if __name__ == "__main__":
    exit_with(main)
