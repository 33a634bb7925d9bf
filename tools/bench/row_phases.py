"""Where a frame of the search on rows goes: ticks by step, and how far caches are cold.

    python -m tools.bench.row_phases --utterances 40
    python -m tools.bench.row_phases --profile small                 # a smoke test

A step is timed by a clock around its calls (`tools.bench.clocks`); what the clock takes
is taken off. Clocks are compiled into the kernel, and keep steps from overlapping: they
run in a process of their own, and hypotheses must be the same in both, or nothing is
told, exit status 1.

    frame   all that the kernel does; `price` to `settle` are its steps
    host    what `decode` takes beside the kernel: preparing, reading the path
    warm    a frame where each utterance was just decoded: what it reads of the graph is
            in the caches, and the processor has seen its branches
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from functools import partial

import numpy as np

from tools.bench import data
from tools.bench.cases import Case, Inputs, make_cases
from tools.bench.clocks import (
    TICKS,
    KernelTime,
    change,
    clocked,
    digest_of,
    empty_clocks,
    fastest_turn,
    keep_no_kernels,
    start_variant,
)
from tools.bench.command import Run, exit_with, make_parser, parse
from tools.bench.report import Columns, Row, figure, format_table, text_figure
from wfstdec.wfst.cpu import row_groups as host
from wfstdec.wfst.decoder import WfstDecoder
from wfstdec.wfst.options import WfstOptions

ROOM = "wfstdec.wfst.cpu"
STEPS = {
    "price": "row_frame._price",
    "keep": "row_frame._keep",
    "emit": "row_frame.emit",
    "go on": "row_frame._go_on",
    "recombine": "row_frame.recombine",
    "close": "row_frame.close",
    "settle": "row_frame._settle",
    "end": "row_groups._end",
}
"""Functions by step: where they are called, under which name."""
CASES = ["dev:lm_books.3g_pruned", "bpe-mid:lm_books.3g_pruned"]
PLAIN, CLOCKED = VARIANTS = "plain", "clocked"
AGAIN = 8
"""So often an utterance is decoded in a row where caches are to be warm."""
PROFILES: dict[str, Row] = {
    "full": {},
    "small": {
        "data": data.RECIPE,
        "cases": ["dev:lm"],
        "beams": [8.0],
        "utterances": 4,
        "repeats": 1,
    },
}
COLUMNS: Columns = {
    "case": text_figure("case"),
    "beam": text_figure("beam"),
    **{name: figure(name, ".0f") for name in ("frame", "warm", "host", *STEPS)},
}


def run_variant(args: argparse.Namespace) -> list[Row]:
    """Decode everything with kernels of a variant; ns per frame."""
    if args.variant == CLOCKED:
        keep_no_kernels()
        for phase, name in enumerate(STEPS.values()):
            change(ROOM, [name], lambda one, at=phase: clocked(one, at))
        empty_clocks(len(TICKS) - 1, 1000)
    timer = host.search_rows = KernelTime(host.search_rows)
    rows = []
    for case in make_cases(args.cases, Inputs.of(args)):
        for beam in args.beams:
            options = WfstOptions(beam=beam, lm_scale=case.lm_scale)
            rows.append(time_beam(case, case.wfst_decoder(options), timer, args))
    return rows


def time_beam(
    case: Case, decoder: WfstDecoder, timer: KernelTime, args: argparse.Namespace
) -> Row:
    """Nanoseconds of a frame, in all and by step: of the fastest of the turns."""
    utterances = [np.ascontiguousarray(x, np.float32) for x in case.utterances]
    frames = sum(map(len, utterances))
    row: Row = {"case": case.name, "beam": decoder.options.beam}
    row["answers"] = digest_of(decoder.decode(utterances))
    phases = {name: i for i, name in enumerate(STEPS) if args.variant == CLOCKED}
    decode = partial(decoder.decode, utterances)
    row |= fastest_turn(decode, timer, frames, args.repeats, phases)
    if args.variant == PLAIN:
        turns = [warm(decoder, utterances, timer) for _ in range(args.repeats)]
        row["warm"] = round(min(turns), 2)
    return row


def warm(
    decoder: WfstDecoder, utterances: list[np.ndarray], timer: KernelTime
) -> float:
    """Nanoseconds of a frame where each utterance has just been decoded."""
    seconds, frames = 0.0, 0
    for one in utterances:
        decoder.decode([one])
        timer.seconds = 0.0
        decoder.decode([one] * AGAIN)
        seconds, frames = seconds + timer.seconds, frames + AGAIN * len(one)
    return 1e9 * seconds / frames


def phases(argv: Sequence[str]) -> list[Row]:
    """Rows of cases and beams: the frame as it is, with its steps by the clocks.

    Raises:
        SystemExit: Hypotheses differ.
    """
    tool = "tools.bench.row_phases"
    rows, clocks = (start_variant(tool, variant, argv) for variant in VARIANTS)
    for row, other in zip(rows, clocks, strict=True):
        if other.pop("answers") != row["answers"]:
            raise SystemExit(f"{row['case']}: other answers with clocks")
        row |= {name: other[name] for name in STEPS} | {"clocked": other["frame"]}
    return rows


def main(argv: list[str] | None = None) -> int:
    parser = make_parser(__doc__)
    add = parser.add_argument
    add("--cases", nargs="+", default=CASES, help="set:language model")
    add("--beams", nargs="+", type=float, default=[8.0, 13.0])
    add("--variant", choices=VARIANTS, help="run it alone, and print JSON")
    args = parse(parser, argv, PROFILES)
    if args.variant is not None:
        print(json.dumps(run_variant(args)))
        return 0
    run = Run("tools.bench.row_phases", args)
    rows = phases(sys.argv[1:] if argv is None else argv)
    print("ns for a frame, the fastest of the turns")
    print(f"{format_table(COLUMNS, rows)}\n{run.footer()}")
    run.write(rows)
    return 0


if __name__ == "__main__":
    exit_with(main)
