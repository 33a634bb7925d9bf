"""Answers first, then times: the course of benchmarks that compare decoders.

def run_case(case):                              # rows, and what is wrong
    timed = check_and_time(decoders, check, args)
    return rows_of(case, timed), timed.faults

status = run_cases(Run("tools.bench.trie", args), cases, run_case, report)
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple, TypeVar

from tools.bench.command import Run
from tools.bench.report import Row
from tools.bench.timing import Turns

WRONG = "  ANSWERS ARE WRONG, no speed is given"
SHOWN = 10
"""Faults of a case that are printed; the file has their number."""

Case = TypeVar("Case")


class Timed(NamedTuple):
    """Answers of some decoders, and their times where the answers are right.

    Attributes:
        answers: What each returned in the first turn, by name.
        seconds: CPU seconds of each, turn by turn; empty where something is wrong.
        faults: What is wrong, in lines.
    """

    answers: Mapping[str, Any]
    seconds: Mapping[str, list[float]]
    faults: list[str]


def check_and_time(
    decoders: Mapping[str, Callable[[], Any]],
    check: Callable[[Mapping[str, Any]], list[str]],
    args: argparse.Namespace,
) -> Timed:
    """Take a turn, check its answers, and continue by turns where they are right.

    Args:
        decoders: What is timed, by name: each decodes everything.
        check: What is wrong with the answers, in lines.
        args: `repeats`, and `slow` where the benchmark has it: who takes longer than
            these seconds takes part in two turns at most.
    """
    turns = Turns(decoders)
    answers = turns.take()
    faults = check(answers)
    if faults:
        print("\n".join([WRONG, *faults[:SHOWN]]), flush=True)
        return Timed(answers, {}, faults)
    turns.repeat(args.repeats - 1, slow=getattr(args, "slow", math.inf))
    return Timed(answers, turns.seconds, [])


def run_cases(
    run: Run,
    cases: Iterable[Case],
    run_case: Callable[[Case], tuple[Sequence[Row], Sequence[str]]],
    report: Callable[[list[Row]], tuple[Sequence[str], Row]],
) -> int:
    """Measure all cases, report, and write the file; 1 where something is wrong.

    Args:
        run: The run under way.
        cases: Made one after the other, as they are needed.
        run_case: Measures one; its rows, and what is wrong, in lines.
        report: Makes lines of all rows, and what the file has in addition.
    """
    rows: list[Row] = []
    faults = 0
    for case in cases:
        found, wrong = run_case(case)
        rows += found
        faults += len(wrong)
    lines, more = report(rows)
    print("\n".join([*lines, run.footer()]))
    run.write(rows, faults=faults, **more)
    return 1 if faults else 0
