"""Where a frame of the search on rows goes: ticks by step, and how far caches are cold.

    python -m tools.bench.rows --parts phases

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
from functools import partial

import numpy as np

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
)
from tools.bench.command import in_own_process
from tools.bench.report import Row
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
AGAIN = 8
"""So often an utterance is decoded in a row where caches are to be warm."""


def run(
    clocks: bool, cases: list[str], beams: list[float], args: argparse.Namespace
) -> list[Row]:
    """Decode everything, with clocks in the kernels or not; ns per frame."""
    if clocks:
        keep_no_kernels()
        for phase, name in enumerate(STEPS.values()):
            change(ROOM, [name], lambda one, at=phase: clocked(one, at))
        empty_clocks(len(TICKS) - 1, 1000)
    timer = host.search_rows = KernelTime(host.search_rows)
    phases = {name: i for i, name in enumerate(STEPS) if clocks}
    rows = []
    for case in make_cases(cases, Inputs.of(args)):
        for beam in beams:
            options = WfstOptions(beam=beam, lm_scale=case.lm_scale)
            decoder = case.wfst_decoder(options)
            rows.append(time_beam(case, decoder, timer, args.repeats, phases))
    return rows


def time_beam(
    case: Case,
    decoder: WfstDecoder,
    timer: KernelTime,
    repeats: int,
    phases: dict[str, int],
) -> Row:
    """Nanoseconds of a frame, in all and by step: of the fastest of the turns."""
    utterances = [np.ascontiguousarray(x, np.float32) for x in case.utterances]
    frames = sum(map(len, utterances))
    row: Row = {"case": case.name, "beam": decoder.options.beam}
    row["answers"] = digest_of(decoder.decode(utterances))
    decode = partial(decoder.decode, utterances)
    row |= fastest_turn(decode, timer, frames, repeats, phases)
    if not phases:
        turns = [warm(decoder, utterances, timer) for _ in range(repeats)]
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


def phases(cases: list[str], beams: list[float], args: argparse.Namespace) -> list[Row]:
    """Rows of cases and beams: the frame as it is, with its steps by the clocks.

    Raises:
        SystemExit: Hypotheses differ.
    """
    given = cases, beams, args
    rows, clocked = (in_own_process(run, clocks, *given) for clocks in (False, True))
    for row, other in zip(rows, clocked, strict=True):
        if other.pop("answers") != row["answers"]:
            raise SystemExit(f"{row['case']}: other answers with clocks")
        row |= {name: other[name] for name in STEPS} | {"clocked": other["frame"]}
    return rows
