"""Comparison of two checkouts: the same results, bit for bit, at the same speed?

    python -m tools.bench.same --old before --new after
    python -m tools.bench.same --old before --new after --turns 11 --cases wfst trie
    python -m tools.bench.same --old x --new x        # the noise of the machine

A worker process for each checkout runs every case once; their results must be equal, to
the last bit of each cost. With `--turns` the cases are then timed, in alternated runs.
A ratio is old by new: above 1 the new checkout is faster. The exit status is 1 where
results differ. Cases that only one checkout can run are named.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from statistics import median
from typing import Any

from tools.bench.command import Run, bare_parser, commit_of
from tools.bench.report import Columns, figure, text_figure

WORKER = Path(__file__).with_name("same_worker.py")
ONE_THREAD = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "NUMBA_NUM_THREADS")
TURN_S = 0.25
"""CPU seconds of a turn, at least: short cases run several times."""
SHOWN = 3
"""Differences that are printed for each case."""
COLUMNS: Columns = {
    "case": text_figure("case"),
    "old ms": lambda row: f"{1e3 * median(row['old']):.2f}",
    "new ms": lambda row: f"{1e3 * median(row['new']):.2f}",
    "old/new": figure("ratio", ".3f"),
    "of the fastest": figure("ratio_of_fastest", ".3f"),
}


class Worker:
    """A process that runs the cases of one checkout, on one thread."""

    def __init__(self, checkout: Path, data: Path, every: int) -> None:
        single = dict.fromkeys(ONE_THREAD, "1")
        self._process = subprocess.Popen(
            [sys.executable, str(WORKER), str(checkout), str(data), str(every)],
            cwd=checkout,
            env=os.environ | single | {"PYTHONPATH": str(checkout)},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self.cases: list[str] = self._read()

    def run(self, case: str, passes: int = 0) -> Any:
        """Return the results of a case, or with passes the CPU seconds of one."""
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps({"case": case, "passes": passes}) + "\n")
        self._process.stdin.flush()
        return self._read()

    def _read(self) -> Any:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            sys.exit("a worker ended; its error is above")
        return json.loads(line)


def differences(path: str, old: Any, new: Any) -> Iterator[str]:
    """Compare two results, down to the parts that both have."""
    if isinstance(old, dict) and isinstance(new, dict):
        for key in old.keys() | new.keys():
            yield from differences(f"{path}/{key}", old.get(key), new.get(key))
    elif isinstance(old, list) and isinstance(new, list) and len(old) == len(new):
        for i, pair in enumerate(zip(old, new, strict=True)):
            yield from differences(f"{path}/{i}", *pair)
    elif old != new:
        yield f"{path}: {old!r:.100} and {new!r:.100}"


def compare(old: Worker, new: Worker, cases: list[str]) -> list[str]:
    """Run cases in both checkouts; returns those whose results differ."""
    different = []
    for case in cases:
        found = list(differences(case, old.run(case), new.run(case)))
        print(
            f"{case}: {f'{len(found)} DIFFERENCES' if found else 'equal'}", flush=True
        )
        print("".join(f"  {line}\n" for line in found[:SHOWN]), end="")
        if found:
            different.append(case)
    return different


def time_case(old: Worker, new: Worker, case: str, turns: int) -> dict[str, Any]:
    """Time a case in alternated runs: CPU seconds by side, and their ratio."""
    passes = math.ceil(TURN_S / max(old.run(case, 1), 1e-4))
    new.run(case, 1)
    seconds: dict[str, list[float]] = {"old": [], "new": []}
    sides = [("old", old), ("new", new)]
    for _ in range(turns):
        for name, worker in sides:
            seconds[name].append(worker.run(case, passes))
        sides.reverse()
    return {
        "case": case,
        "ratio": round(median(seconds["old"]) / median(seconds["new"]), 4),
        "ratio_of_fastest": round(min(seconds["old"]) / min(seconds["new"]), 4),
        **{side: [round(s, 6) for s in each] for side, each in seconds.items()},
    }


def parse_arguments(argv: list[str] | None) -> argparse.Namespace:
    """Parse the command line."""
    parser = bare_parser(__doc__)
    add = parser.add_argument
    add("--old", type=Path, required=True, help="a checkout")
    add("--new", type=Path, required=True, help="another")
    add("--data", type=Path, help="default: ../shared/data next to the new checkout")
    add("--every", type=int, default=13, help="of dev's 779 utterances (default: 13)")
    add("--turns", type=int, default=0, help="timings of each case (default: none)")
    add("--cases", nargs="+", default=[""], help="only cases that begin with these")
    add("--output", type=Path, help="write all figures as JSON")
    return parser.parse_args(argv)


def main(argv: list[str] | None = None) -> int:
    """Compare results, then time what is equal."""
    args = parse_arguments(argv)
    run = Run("tools.bench.same", args)
    checkouts = [args.old.resolve(), args.new.resolve()]
    data = args.data or checkouts[1].parent / "shared" / "data"
    if not (data / "posteriors").is_dir():
        sys.exit(f"{data}: no folder with posteriors; name one with --data")
    old, new = (Worker(path, data.resolve(), args.every) for path in checkouts)
    chosen = [
        [name for name in side.cases if name.startswith(tuple(args.cases))]
        for side in (old, new)
    ]
    cases = [name for name in chosen[0] if name in chosen[1]]
    for name in sorted(set(chosen[0]) ^ set(chosen[1])):
        print(f"{name}: not in both checkouts")
    different = compare(old, new, cases)
    print(f"{len(cases)} cases, {len(different)} differ")
    if args.turns:
        rows = (time_case(old, new, c, args.turns) for c in cases if c not in different)
        run.finish(rows, COLUMNS, commits=[commit_of(path) for path in checkouts])
    return 1 if different or not cases else 0


if __name__ == "__main__":
    sys.exit(main())
