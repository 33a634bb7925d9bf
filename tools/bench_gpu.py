"""Times the decoder on a GPU beside riva-asrlib-decoder and our CPU backend.

    python tools/bench_gpu.py --output run.json                       # the headline
    python tools/bench_gpu.py --profile full --output run.json --minutes 9 --resume
    python tools/bench_gpu.py --long 60 600 --batches 1 8 --output long.json

Graphs are built where they are not in the cache. At every point our hypotheses are
compared with the CPU's before anything is timed; where one differs there is no time,
and the exit status is 1. Times are medians by CUDA events over whole calls, warmed up:
log-probs on the device, words with times on the host (Riva's n-best list is not read);
"search ms" is without what makes words and times of our paths, on the CPU.
Riva's decoder is compared where it is installed: word error rates, and what its paths
cost beside ours. The file is written after every point, so that a run that is cut off,
or that `--minutes` ends, goes on with `--resume`.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import replace
from importlib.metadata import PackageNotFoundError, version
from itertools import product
from pathlib import Path

import bench_data
import bench_gpu_report as report
import riva_peer
from bench_gpu_device import Gpu, Row
from bench_gpu_measure import Bench, Case, Plan, Setting

from wfstdec.errors import WfstdecError
from wfstdec.text.files import atomic_write

HEADLINE = ["7000:13", "1000:8", "3000:10", "10000:17"]
PROFILES: dict[str, Row] = {
    "headline": {},
    "full": {
        "settings": [
            f"{most}:{beam}"
            for most, beam in product((7000, 1000, 3000, 10000), (13, 8, 10, 17))
        ],
        "lms": ["lm_books.3g_pruned", "lm_books.3g"],
        "lattice_beams": [1.0, 8.0],
    },
    "small": {
        "data": bench_data.RECIPE,
        "settings": ["7000:13"],
        "batches": [1, 8],
        "repeats": 2,
    },
}
"""Other defaults, by name."""
TOLD = ("profile", "settings", "boosted", "batches", "dtypes", "threads")
TOLD += ("lattice_beams", "lm_scale", "repeats", "long")
KEYS = ("decoder", *report.OF, "boosted", *report.POINT)
"""What names a point, among `--resume`'s rows."""


def parse_arguments(argv: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add("--profile", choices=PROFILES, default="headline", help="other defaults")
    add("--output", type=Path, required=True, help="all figures, JSON")
    add("--sets", nargs="+", default=["dev"], help="dev, hard, ljspeech, or folders")
    add("--lms", nargs="+", help="names in the data, or ARPA files")
    add("--settings", nargs="+", default=HEADLINE, help="max_active:beam")
    add("--boosted", nargs="+", type=int, default=[0, 1000], help="words boosted")
    add("--batches", nargs="+", type=int, default=[128, 1, 8, 32, 400])
    add("--dtypes", nargs="+", default=["float32", "float16"], help="ours")
    add("--threads", nargs="+", type=int, default=[512, 128], help="of a block, ours")
    add("--lattice-beams", nargs="+", type=float, default=[1.0], help="Riva's")
    add("--long", nargs="+", type=float, default=[], help="seconds of recordings")
    add("--lm-scale", type=float, default=0.8)
    add("--repeats", type=int, default=5, help="timings of each; default 5")
    add("--minutes", type=float, default=float("inf"), help="stop after so many")
    add("--resume", action="store_true", help="go on with the output's points")
    add("--no-riva", action="store_true", help="ours alone")
    add("--data", type=Path, help="default ../shared/data, else the demo's recipe")
    add("--cache", type=Path, default=bench_data.CACHE, help="for built graphs")
    profile = parser.parse_known_args(argv)[0].profile
    parser.set_defaults(**PROFILES[profile])
    args = parser.parse_args(argv)
    if min([args.repeats, *args.batches]) < 1:
        parser.error("--repeats and --batches must be 1 or more")
    try:
        args.points = [_setting(text) for text in args.settings]
    except ValueError:
        parser.error(f"--settings {args.settings}, expected max_active:beam")
    return args


def _setting(text: str) -> Setting:
    most, beam = text.split(":")
    return Setting(int(most), float(beam))


def cases(args: argparse.Namespace) -> Iterator[Case]:
    """Every set, whole and as long recordings, with every language model."""
    data = bench_data.find_data(args.data)
    names = args.lms or bench_data.default_lms(data)[:1]
    for set_name in args.sets:
        speech = bench_data.load_set(set_name, data)
        most = max(args.batches)
        if args.long:
            sets = [bench_data.lengthen(speech, s, most) for s in args.long]
        else:
            kept = bench_data.evenly_spaced(list(speech.logprobs), most)
            sets = [replace(speech, logprobs={n: speech.logprobs[n] for n in kept})]
        for arpa in (bench_data.find_lm(name, data) for name in names):
            graph = bench_data.build_or_load(speech.recipe, arpa, "normal", args.cache)
            for one in sets:
                yield Case(one, arpa.name.split(".arpa")[0], graph)


class Run:
    """Points, one after the other, and the file that they go to."""

    def __init__(self, args: argparse.Namespace, gpu: Gpu) -> None:
        self.args, self.gpu, self.begin = args, gpu, time.monotonic()
        self.rows: list[Row] = []
        if args.resume and args.output.exists():
            self.rows = json.loads(args.output.read_text("utf-8"))["rows"]
        self._done = {key_of(row) for row in self.rows if "event_s" in row}
        self.left_out = 0
        self.machine = bench_data.describe_machine() | gpu.describe()
        self.machine["riva-asrlib-decoder"] = riva_version()

    def skip(self, row: Row) -> bool:
        """Whether a point is there already, or comes too late."""
        if key_of(row) in self._done:
            return True
        late = time.monotonic() - self.begin > 60 * self.args.minutes
        self.left_out += late
        return late

    def go(self) -> None:
        """Ours at all points first; Riva's after, for what it may break."""
        args = self.args
        plan = Plan(
            args.batches,
            args.dtypes,
            args.threads,
            args.lattice_beams,
            args.lm_scale,
            args.repeats,
            self.skip,
        )
        self.write()
        benches = [Bench(case, plan, self.gpu) for case in cases(args)]
        for bench, setting in product(benches, args.points):
            for boosted in args.boosted:
                one = setting._replace(boosted=boosted)
                expected = bench.expect(one)
                self.add(bench.cpu(one))
                for row in bench.ours(one, expected):
                    self.add(row)
        if self.machine["riva-asrlib-decoder"] and not args.no_riva:
            for bench in benches:
                self.compare(bench)

    def compare(self, bench: Bench) -> None:
        """Riva's decoder at all points, until it fails."""
        self.gpu.release()
        with tempfile.TemporaryDirectory() as folder:
            files = riva_peer.write_files(
                bench.case.graph, self.args.lm_scale, Path(folder)
            )
            for setting in self.args.points:
                try:
                    for row in bench.riva(setting, bench.expect(setting), files):
                        self.add(row)
                except RuntimeError as error:
                    row = bench.row(setting, 0, decoder="riva")
                    self.add(row | {"failed": f"riva-asrlib-decoder failed: {error}"})

    def add(self, row: Row) -> None:
        """Keep a row, if there is one, and write all of them."""
        if not row:
            return
        self.rows = [one for one in self.rows if key_of(one) != key_of(row)] + [row]
        print(report.line(row), flush=True)
        self.write()

    def write(self) -> None:
        """Write all that is there."""
        content = {
            "tool": "bench_gpu",
            "date": time.strftime("%Y-%m-%d"),
            "machine": self.machine,
            "load_average": os.getloadavg()[0],
            "options": {name: getattr(self.args, name) for name in TOLD},
            "rows": self.rows,
        }
        with atomic_write(self.args.output, "w") as file:
            json.dump(content, file, indent=1)
            file.write("\n")


def key_of(row: Row) -> tuple:
    """Names a point."""
    return tuple(row.get(name) for name in KEYS)


def riva_version() -> str | None:
    """What of it can be imported."""
    try:
        riva_peer.load_module()
        return version("riva-asrlib-decoder")
    except (ImportError, PackageNotFoundError):
        return None


def main(argv: list[str] | None = None, gpu: Gpu | None = None) -> int:
    args = parse_arguments(argv)
    run = Run(args, gpu or Gpu())
    print(json.dumps(run.machine))
    run.go()
    for case in sorted({(row["set"], row["lm"]) for row in run.rows}):
        rows = [row for row in run.rows if (row["set"], row["lm"]) == case]
        print(f"\n{', '.join(case)}\n{report.table(rows)}")
    print("\n".join(report.verdicts(run.rows)))
    if run.left_out:
        print(f"{run.left_out} points left out for --minutes: go on with --resume")
    wrong = any(row.get("differ") or "failed" in row for row in run.rows)
    return 1 if wrong else 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except WfstdecError as error:
        sys.exit(f"{type(error).__name__}: {error}")
