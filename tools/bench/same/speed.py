"""Comparison of the speed of two checkouts: both by turns, in one run.

    python -m tools.bench.same.speed --old before --new after
    python -m tools.bench.same.speed --old before --new after --output run.json

Decoding, building and loading run in two processes that live through the whole run, one
for each checkout, on one thread; what starting a program takes is timed in processes of
its own. Turns change their order. Texts and total costs are compared before any time is
printed: where they differ, there are no times, and the exit status is 1.

A ratio is old by new: above 1 the new checkout is faster. Those of a checkout beside
itself (`--old x --new x`) show how far ratios can be trusted on the machine.
"""

from __future__ import annotations

import argparse
import json
import math
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any

from tools.bench.command import Run, bare_parser, commit_of
from tools.bench.report import Columns, figure, text_figure
from tools.bench.same.checkouts import data_folder, environment, start_worker

SIDES = ("old", "new")
STARTS = {
    "import wfstdec": ["-c", "import wfstdec"],
    "wfstdec.WfstDecoder": ["-c", "import wfstdec; wfstdec.WfstDecoder"],
    "wfstdec --help": ["-m", "wfstdec", "--help"],
    "wfstdec decode --help": ["-m", "wfstdec", "decode", "--help"],
}
"""Arguments of Python, by name; the wall decides here, CPU seconds elsewhere."""
LEAST_S, SLOW_S = 0.25, 1.5
"""Quicker tasks run several times a turn, slower ones take fewer turns."""
FEWER = 3
WALL_TOO = ("build_graph",)
"""Tasks whose wall time has a row of its own."""

Json = dict[str, Any]


@dataclass(eq=False)
class Timed:
    """The seconds of a task on both sides, one for each turn."""

    name: str
    clock: str
    seconds: dict[str, list[float]] = field(
        default_factory=lambda: {side: [] for side in SIDES}
    )


class Worker:
    """A process that runs the tasks of one checkout."""

    def __init__(self, checkout: Path, data: Path, every: int) -> None:
        self._process = start_worker(
            "speed_worker.py",
            checkout,
            [str(data), str(every)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self.tasks: list[str] = self._read()

    def run(self, task: str, passes: int) -> Json:
        """Seconds of a pass, and a digest of the answers."""
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps({"task": task, "passes": passes}) + "\n")
        self._process.stdin.flush()
        return self._read()

    def close(self) -> None:
        """End the process."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait()

    def _read(self) -> Any:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            sys.exit("a worker has ended, its error stands above")
        return json.loads(line)


def turns(count: int) -> list[tuple[str, ...]]:
    """Order of the sides, turn by turn."""
    return [SIDES if i % 2 == 0 else SIDES[::-1] for i in range(count)]


def check_answers(workers: dict[str, Worker], tasks: Sequence[str]) -> dict[str, int]:
    """Run everything once, which compiles the kernels too, and then once again.

    Returns:
        How many passes make a turn, for each task.

    Raises:
        SystemExit: The checkouts answer differently.
    """
    passes, wrong = {}, []
    for task in tasks:
        found = {side: workers[side].run(task, 1)["answers"] for side in SIDES}
        if found["old"] != found["new"]:
            wrong.append(task)
        again = min(workers[side].run(task, 1)["cpu_s"] for side in SIDES)
        passes[task] = math.ceil(LEAST_S / max(again, 1e-4))
    if wrong:
        sys.exit(f"ANSWERS DIFFER, no time is given: {'; '.join(wrong)}")
    print(f"{len(tasks)} tasks: texts and costs are equal", flush=True)
    return passes


def time_task(
    workers: dict[str, Worker], task: str, passes: int, repeats: int
) -> list[Timed]:
    """CPU seconds of a task by turns; those on the wall too where they count."""
    rows = [Timed(task, "cpu_s")]
    if task in WALL_TOO:
        rows.append(Timed(f"{task}, wall", "wall_s"))
    for i, order in enumerate(turns(repeats)):
        if i >= max(repeats // FEWER, 3) and min(rows[0].seconds["old"]) > SLOW_S:
            break
        for side in order:
            found = workers[side].run(task, passes)
            for row in rows:
                row.seconds[side].append(found[row.clock])
    return rows


def time_starts(
    checkouts: dict[str, Path], names: Sequence[str], repeats: int
) -> list[Timed]:
    """Seconds on the wall of fresh processes, by turns; the first of each is not kept.

    Raises:
        subprocess.CalledProcessError: One of them fails.
    """
    rows = [Timed(name, "wall_s") for name in names]
    for i, order in enumerate(turns(repeats + 1)):
        for row in rows:
            for side in order:
                command, checkout = [sys.executable, *STARTS[row.name]], checkouts[side]
                where = {"cwd": checkout, "env": environment(checkout)}
                begin = time.perf_counter()
                subprocess.run(command, **where, stdout=subprocess.DEVNULL, check=True)
                if i:
                    row.seconds[side].append(time.perf_counter() - begin)
    return rows


def _above_least(row: Json) -> str:
    """How far medians lie above minima, in percent."""
    above = (100 * (median(row[side]) / min(row[side]) - 1) for side in SIDES)
    return " / ".join(f"{one:.1f}" for one in above)


COLUMNS: Columns = {
    "task": text_figure("task"),
    "old ms": lambda row: f"{1e3 * min(row['old']):.2f}",
    "new ms": lambda row: f"{1e3 * min(row['new']):.2f}",
    "old/new": figure("ratio_min", ".3f"),
    "medians": figure("ratio_median", ".3f"),
    "range %": _above_least,
    "turns": lambda row: str(len(row["old"])),
}


def figures_of(row: Timed) -> Json:
    """A row as it goes into the file."""
    old, new = (row.seconds[side] for side in SIDES)
    return {
        "task": row.name,
        "clock": row.clock,
        "ratio_min": round(min(old) / min(new), 4),
        "ratio_median": round(median(old) / median(new), 4),
        **{side: [round(s, 6) for s in row.seconds[side]] for side in SIDES},
    }


def parse_arguments(argv: list[str] | None) -> argparse.Namespace:
    """The command line."""
    parser = bare_parser(__doc__)
    add = parser.add_argument
    add("--old", type=Path, required=True, help="a checkout")
    add("--new", type=Path, required=True, help="another")
    add("--data", type=Path, help="default: ../shared/data beside the new checkout")
    add("--every", type=int, default=5, help="of dev's 779 utterances; default 5: 156")
    add("--repeats", type=int, default=15, help="turns of each task; default 15")
    add("--tasks", nargs="+", help="only those whose names begin with one of these")
    add("--output", type=Path, help="write all figures as JSON")
    args = parser.parse_args(argv)
    if args.every < 1 or args.repeats < 2:
        parser.error("--every must be 1 or more, --repeats 2 or more")
    return args


def main(argv: list[str] | None = None) -> int:
    """Compare answers, time all, report."""
    args = parse_arguments(argv)
    run = Run("tools.bench.same.speed", args)
    checkouts = {side: getattr(args, side).resolve() for side in SIDES}
    data = data_folder(args.data, checkouts["new"])
    workers = {s: Worker(path, data, args.every) for s, path in checkouts.items()}
    wanted = tuple(args.tasks or [""])
    tasks = [name for name in workers["old"].tasks if name.startswith(wanted)]
    passes = check_answers(workers, tasks)
    rows: list[Timed] = []
    for task in tasks:
        rows += time_task(workers, task, passes[task], args.repeats)
    for worker in workers.values():
        worker.close()
    starts = [name for name in STARTS if name.startswith(wanted)]
    rows += time_starts(checkouts, starts, max(args.repeats, 15))
    commits = {side: commit_of(path) for side, path in checkouts.items()}
    print(json.dumps(commits))
    return run.finish(map(figures_of, rows), COLUMNS, commits=commits)


if __name__ == "__main__":
    sys.exit(main())
