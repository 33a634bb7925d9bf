"""Where the time of a frame goes on a GPU: phase by phase.

    python -m tools.gpu.phases --output phases.json                # on a GPU
    python -m tools.gpu.phases --output phases.json --resume       # goes on
    python -m tools.gpu.phases --table phases.json riva.json nemo.json

A thread of each block reads the clock between phases, in a build of its own (`TIMES`);
the wall is taken with the build that users have. Hypotheses are compared with the CPU's
before any time is taken: where one differs there is none, and the exit status is 1; it
is 4 where `--minutes` left points out, which `--resume` goes on with. Our CPU backend
with all cores stands in the same table, on the same utterances, and so do the rows of
files of `tools.bench.gpu` (riva-asrlib-decoder) and of `tools.gpu.tokens` (NeMo, over
word pieces of its own).
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Iterator
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np

from tools.bench import command
from tools.bench.cases import Case, default_case
from tools.bench.gpu_device import Gpu
from tools.bench.gpu_measure import phases_of
from tools.bench.report import Columns, Row, figure, format_table, text_figure
from tools.bench.wfst_measure import read_all
from tools.gpu import OK_STATUS, UNFINISHED_STATUS, WRONG_STATUS
from wfstdec.boost.compiled import CompiledBoosts
from wfstdec.compare.speech import evenly_spaced
from wfstdec.wfst.decoder import WfstDecoder
from wfstdec.wfst.gpu.batch import DeviceBatch
from wfstdec.wfst.gpu.layout import PHASES
from wfstdec.wfst.options import WfstOptions

BATCHES, THREADS = (1, 8, 32, 128, 400), (128, 256, 512)
PROFILES = command.profiles(batches=[1, 8])


def parse_arguments(argv: list[str] | None) -> argparse.Namespace:
    parser = command.make_parser(__doc__)
    add = parser.add_argument
    add("--batches", nargs="+", type=int, default=list(BATCHES))
    add("--threads", nargs="+", type=int, default=list(THREADS), help="of a block")
    add("--lm", help="a name in the data, or an ARPA file")
    add("--beam", type=float, default=13.0)
    add("--max-active", type=int, default=7000)
    add("--minutes", type=float, default=float("inf"), help="stop after so many")
    add("--resume", action="store_true", help="go on with the output's points")
    add("--table", nargs="+", type=Path, help="measure nothing: show those there are")
    args = command.parse(parser, argv, PROFILES)
    if args.table is None and args.output is None:
        parser.error("--output or --table is needed")
    return args


class Profile:
    """Measures a case; each method gives rows.

    Args:
        case: A set on a graph.
        gpu: Where; tests have one that is none.
        args: From `parse_arguments`.
    """

    def __init__(self, case: Case, gpu: Gpu, args: argparse.Namespace) -> None:
        self._case, self._gpu, self._args = case, gpu, args
        scale = case.lm_scale
        self._options = WfstOptions(args.beam, args.max_active, lm_scale=scale)
        names = evenly_spaced(list(case.speech.logprobs), max(args.batches))
        self._all = [case.speech.logprobs[name] for name in names]
        self._shift_s = case.speech.frame_shift_s
        cpu = case.wfst_decoder(self._options, threads=None)
        self._cpu = cpu
        self._expected = cpu.decode(self._all)

    def batch(self, size: int) -> list[np.ndarray]:
        """Take so many utterances, again and again where the set has fewer."""
        return [self._all[i % len(self._all)] for i in range(size)]

    def on_cpu(self, size: int) -> Row:
        """Our CPU backend with all cores."""
        batch, decoder = self.batch(size), self._cpu
        decoder.decode(batch)
        begin = time.perf_counter()
        read_all(decoder, batch)
        seconds = time.perf_counter() - begin
        row: Row = {"decoder": "cpu", "batch": size, "threads": decoder.threads}
        return row | self._rates(batch, seconds)

    def on_gpu(self, size: int, threads: int) -> Row:
        """Ours: phases, and the wall; without times where an answer differs."""
        batch, row = self.batch(size), {"decoder": "ours", "batch": size}
        decoder = self._gpu.decoder(
            self._case.graph,
            self._options,
            frame_shift_s=self._shift_s,
            threads=threads,
        )
        found = decoder.decode(batch)
        pairs = enumerate(found)
        differ = sum(h != self._expected[i % len(self._all)] for i, h in pairs)
        row |= {"threads": threads, "differ": differ}
        if differ:
            return row
        timing = self._gpu.time(lambda: decoder.decode(batch), self._args.repeats)
        phases = self._phases(decoder, batch)
        return row | self._rates(batch, timing.median_s) | phases

    def _phases(self, decoder: WfstDecoder, batch: list[np.ndarray]) -> Row:
        """Microseconds of a frame and block by phase."""
        graph: Any = decoder._backend
        boosts: list[CompiledBoosts] = decoder._boosts.compile(None, len(batch))
        lengths = [len(one) for one in batch]
        made = graph.device_graph, self._options, boosts, lengths
        counts, row = phases_of(lambda: DeviceBatch(*made), batch, PHASES)
        looked = round(counts["looked"] / max(1, counts["frames"]), 1)
        return row | {"looked_per_frame": looked}

    def _rates(self, batch: list[np.ndarray], seconds: float) -> Row:
        audio_s = sum(map(len, batch)) * self._shift_s
        return {"ms_per_batch": 1e3 * seconds, "rtfx": audio_s / seconds}


def _us(name: str | None = None) -> Any:
    """A column: microseconds of a phase, or of all."""

    def shown(row: Row) -> str:
        if (us := row.get("phases_us")) is None:
            return "-"
        return f"{us[name] if name else sum(us.values()):.2f}"

    return shown


COLUMNS: Columns = {
    "decoder": text_figure("decoder"),
    "batch": figure("batch", "d"),
    "threads": figure("threads", "d"),
    **{phase: _us(phase) for phase in PHASES},
    "us/frame": _us(),
    "ms/batch": figure("ms_per_batch", ".2f"),
    "RTFx": figure("rtfx", ".0f"),
}


def table(rows: list[Row]) -> str:
    """Batch by batch: ours, the CPU, and whoever else has been measured."""
    timed = [row for row in rows if "rtfx" in row]
    order = sorted(timed, key=lambda row: (row["batch"], row["decoder"] != "cpu"))
    head = "us of a frame and block by phase"
    wrong = [row for row in rows if row.get("differ")]
    lines = [head, format_table(COLUMNS, order)]
    lines += [
        f"batch {row['batch']}, {row['threads']} threads: {row['differ']} hypotheses "
        "are not the CPU's, no time is given"
        for row in wrong
    ]
    return "\n".join(lines)


def points(args: argparse.Namespace) -> Iterator[tuple[str, int, int]]:
    """Points to measure: the settings most asked for first."""
    for size in args.batches:
        yield "cpu", size, 0
    for threads, size in product(sorted(args.threads, reverse=True), args.batches):
        yield "ours", size, threads


def measure(args: argparse.Namespace, gpu: Gpu) -> tuple[list[Row], int]:
    """All rows, and how many points were left out; the file is written after each."""
    names = "decoder", "batch", "asked"
    run = command.Resumed("tools.gpu.phases", args, names, "rtfx")
    run.machine |= gpu.describe()
    profile = Profile(default_case(args), gpu, args)
    run.write(run.rows)
    for who, size, threads in points(args):
        point = {"decoder": who, "batch": size, "asked": threads}
        if run.skip(point):
            continue
        row = profile.on_gpu(size, threads) if threads else profile.on_cpu(size)
        run.keep(row | {"asked": threads})
        print(f"{who}, batch {size}, {threads} threads: {row}", flush=True)
    return run.rows, run.left_out


def main(argv: list[str] | None = None, gpu: Gpu | None = None) -> int:
    """Measure, or show what was measured."""
    args, left_out = parse_arguments(argv), 0
    if args.table is None:
        rows, left_out = measure(args, gpu or Gpu())
    else:
        there = [path for path in args.table if path.exists()]
        texts = [path.read_text("utf-8") for path in there]
        rows = [row for text in texts for row in json.loads(text)["rows"]]
    print(table(rows))
    if left_out:
        print(f"{left_out} points left out for --minutes: go on with --resume")
    if any(row.get("differ") for row in rows):
        return WRONG_STATUS
    return UNFINISHED_STATUS if left_out else OK_STATUS


if __name__ == "__main__":
    sys.exit(main())
