"""Common parts of benchmarks' command lines: flags, files, exit status.

args = parse(make_parser(__doc__), argv, PROFILES)
run = Run("tools.bench.wfst", args)
return run.finish(rows, COLUMNS)             # rows to `--output` too, as they come
exit_with(main)                              # at the end of the script
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

from tools.bench.data import CACHE, RECIPE, ROOT
from tools.bench.report import Columns, Row, format_table
from wfstdec.compare.running import describe_machine
from wfstdec.errors import FormatError, WfstdecError
from wfstdec.text.files import atomic_write


def bare_parser(description: str | None) -> argparse.ArgumentParser:
    """No flags, below a benchmark's docstring as it is."""
    return argparse.ArgumentParser(
        description=description, formatter_class=argparse.RawDescriptionHelpFormatter
    )


def make_parser(description: str | None) -> argparse.ArgumentParser:
    """The flags of benchmarks that decode."""
    parser = bare_parser(description)
    add = parser.add_argument
    add("--utterances", type=int, help="number from each set, evenly spread")
    add("--lm-scale", type=float, default=0.8, help="of language models over words")
    add("--repeats", type=int, default=5, help="timings of each; default 5")
    add("--data", type=Path, help="default ../shared/data, else the demo's recipe")
    add("--cache", type=Path, default=CACHE, help="for what is made: graphs, sets")
    add("--output", type=Path, help="write all figures as JSON")
    return parser


def profiles(full: Row | None = None, **small: Any) -> dict[str, Row]:
    """The usual defaults, and those of a smoke test: once, on the demo's recipe."""
    return {"full": full or {}, "small": {"data": RECIPE, "repeats": 1} | small}


def parse(
    parser: argparse.ArgumentParser,
    argv: Sequence[str] | None,
    profiles: Mapping[str, Row] | None = None,
) -> argparse.Namespace:
    """Parse the flags.

    Args:
        parser: From `make_parser`.
        argv: The flags; None for those of this process.
        profiles: Other defaults by name, for `--profile`; the first is the usual one.

    Raises:
        FormatError: The output could not be written at the end.
    """
    if profiles:
        names = list(profiles)
        add = parser.add_argument
        add("--profile", choices=names, default=names[0], help="other defaults")
        parser.set_defaults(**profiles[parser.parse_known_args(argv)[0].profile])
    args = parser.parse_args(argv)
    if args.repeats < 1 or (args.utterances is not None and args.utterances < 1):
        parser.error("--repeats and --utterances must be 1 or more")
    if args.output is not None and not args.output.parent.is_dir():
        raise FormatError(f"{args.output}: cannot write: no such folder")
    return args


def as_lines(report: Mapping[str, Any]) -> str:
    """JSON with a line for each member, and one for each row of a list of rows."""
    members = []
    for name, value in report.items():
        text = json.dumps(value, ensure_ascii=False)
        if isinstance(value, list) and value and isinstance(value[0], dict | list):
            rows = ",\n  ".join(json.dumps(one, ensure_ascii=False) for one in value)
            text = f"[\n  {rows}\n ]"
        members.append(f" {json.dumps(name)}: {text}")
    return "{\n" + ",\n".join(members) + "\n}\n"


class Run:
    """A run under way, and the file that its figures go to.

    Args:
        tool: What was started.
        args: Its flags.

    Attributes:
        args: The same.
        machine: Processor, memory, versions and commit: nothing about who owns them.
    """

    def __init__(self, tool: str, args: argparse.Namespace) -> None:
        self._tool, self.args = tool, args
        self._load_before = os.getloadavg()[0]
        self.machine = {**describe_machine(), "commit": commit_of(ROOT)}

    def write(self, rows: Sequence[Row], **more: Any) -> None:
        """Write all where `--output` says: no folders and no names of hosts."""
        if self.args.output is None:
            return
        options = {name: _told(value) for name, value in vars(self.args).items()}
        load = {"before": self._load_before, "after": os.getloadavg()[0]}
        report = {
            "tool": self._tool,
            "date": time.strftime("%Y-%m-%d"),
            "machine": self.machine,
            "load_average": load,
            "options": {name: one for name, one in options.items() if one is not None},
            **more,
            "rows": list(rows),
        }
        with atomic_write(self.args.output, "w") as file:
            file.write(as_lines(report))

    def finish(
        self, rows: Iterable[Row], columns: Columns | None = None, **more: Any
    ) -> int:
        """Tell rows as they come, and all at the end as a table; 0, the exit status.

        Args:
            rows: Those that there are, are written: a run that is cut off keeps them.
            columns: Of the table; None: there is none, and names are by values.
            more: What the file has in addition.
        """
        kept: list[Row] = []
        for row in rows:
            kept.append(row)
            self.write(kept, **more)
            if columns is None:
                line = "  " + ", ".join(f"{name} {one}" for name, one in row.items())
            else:
                line = format_table(columns, [row]).splitlines()[-1]
            print(line, flush=True)
        if columns is not None:
            print(format_table(columns, kept))
        print(self.footer())
        return 0

    def footer(self) -> str:
        """The machine and its load, for the terminal."""
        load = f"load average {self._load_before:.2f} before, "
        return f"{json.dumps(self.machine)}\n{load}{os.getloadavg()[0]:.2f} after"


def _told(value: Any) -> Any:
    """A flag's value without folders; None for a path."""
    if isinstance(value, list | tuple):
        return [_told(one) for one in value]
    if isinstance(value, str):
        return Path(value).name or value
    return None if isinstance(value, Path) else value


def commit_of(checkout: Path) -> str | None:
    """The commit checked out, with a `+` where the work tree's library differs.

    Where there is no repository, what WFSTDEC_COMMIT says.
    """
    if "WFSTDEC_COMMIT" in os.environ:
        return os.environ["WFSTDEC_COMMIT"] or None
    git = ["git", "-C", str(checkout)]
    asked = ("rev-parse", "--short", "HEAD"), ("status", "--porcelain", "--", "wfstdec")
    try:
        done = [
            subprocess.run([*git, *words], capture_output=True, text=True)
            for words in asked
        ]
    except OSError:
        return None
    if any(one.returncode for one in done):
        return None
    return done[0].stdout.strip() + ("+" if done[1].stdout.strip() else "")


def in_own_process(function: Callable[..., Any], *arguments: Any) -> Any:
    """Call a function in a fresh process, where nothing else was loaded."""
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(1, mp_context=context) as pool:
        return pool.submit(function, *arguments).result()


def exit_with(main: Callable[[], int]) -> None:
    """Run a benchmark; what is wrong with its input is reported in a line."""
    try:
        sys.exit(main())
    except WfstdecError as error:
        sys.exit(f"{type(error).__name__}: {error}")
