"""Plants faults in a copy of the checkout, one at a time: do the tests find them?

    python -m tools.planted_faults                        # all of the list
    python -m tools.planted_faults --room wfst/cpu lm --output run.json
    python -m tools.planted_faults --share all            # by all tests of these rooms
    python -m tools.planted_faults --faults tools/gpu/planted_faults.toml --share all

For each fault the default tests of its room run in the copy (`tests` in the list, which
is planted_faults.toml), the cheap ones first, up to the first that fails. Whoever finds
a fault by a part of the default run finds it by the whole of it. First all these tests
run without a fault: what fails then finds nothing. Kernels are kept under
`build/planted_faults` and copied for each fault, so that only those are compiled that
the fault changes.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import time
import tomllib
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from tools.bench.command import Run, bare_parser, exit_with

ROOT = Path(__file__).resolve().parents[1]
FAULTS = Path(__file__).with_suffix(".toml")
INTERPRETED = [
    f"tests/wfst/test_wfst_backends.py::test_the_kernels_as_plain_python[{first}]"
    for first in (0, 20)
]
"""`interpreted` in the list: the kernels of all searches without the JIT."""
NOTHING_RAN = 5
"""The exit status of pytest where a path has no tests in the default run."""


class Fault(NamedTuple):
    """A change of one file, and the tests that are to find it."""

    room: str
    what: str
    file: str
    search: str
    replace: str
    tests: list[str]

    def plant(self, text: str) -> str:
        """The text of the file with the fault in it.

        Raises:
            ValueError: The place is not there once.
        """
        if text.count(self.search) != 1:
            raise ValueError(f"{self.file}: {self.search!r} is not there once")
        return text.replace(self.search, self.replace)


def read_faults(path: Path = FAULTS) -> list[Fault]:
    """All faults that a file lists."""
    with path.open("rb") as file:
        listed = tomllib.load(file)["fault"]
    for one in listed:
        if "interpreted" in one["tests"]:
            one["tests"].remove("interpreted")
            one["tests"][:0] = INTERPRETED
    return [Fault(**one) for one in listed]


class Checkout:
    """A copy of the checkout with compiled kernels of its own.

    Args:
        folder: Where it is made; kernels that lie there are used.
        share: What of the tests marked `share` runs.
        limit_s: Tests that take longer have found something: a fault that hangs.
    """

    def __init__(self, folder: Path, share: str, limit_s: float) -> None:
        self.root, self.share = folder / "checkout", share
        self._limit_s = limit_s
        self.kernels, self._scratch = folder / "kernels", folder / "changed"
        listed = subprocess.run(
            ["git", "-C", ROOT, "ls-files", "-z"], capture_output=True, check=True
        )
        for name in filter(None, listed.stdout.decode().split("\0")):
            copy = self.root / name
            if not copy.exists() or copy.read_bytes() != (ROOT / name).read_bytes():
                copy.parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(ROOT / name, copy)

    def fails(self, test: str, kernels: Path | None = None) -> str | None:
        """The first test that fails of a file, a folder or a test; None if none does.

        Raises:
            RuntimeError: No test could run.
        """
        options = ["-x", "-q", "-p", "no:cacheprovider", "-p", "no:xdist"]
        words = [sys.executable, "-m", "pytest", *options, "--share", self.share, test]
        env = os.environ | {"NUMBA_CACHE_DIR": str(kernels or self.kernels)}
        try:
            done = subprocess.run(
                words,
                cwd=self.root,
                env=env,
                capture_output=True,
                text=True,
                timeout=self._limit_s,
            )
        except subprocess.TimeoutExpired:
            return f"{test} did not end"
        if done.returncode in (0, NOTHING_RAN):
            return None
        lines = done.stdout.splitlines()
        named = [line for line in lines if line.startswith(("FAILED ", "ERROR "))]
        # (A planted fault of a CUDA kernel may end the process that runs it.)
        if not named and done.returncode > 0:
            raise RuntimeError(done.stdout[-2000:] + done.stderr[-2000:])
        return named[0].split(" - ")[0] if named else "the tests were killed"

    def find(self, fault: Fault) -> str | None:
        """Plant a fault, and take it out again: the test that finds it, or None."""
        path = self.root / fault.file
        text, times = path.read_text("utf-8"), path.stat()
        shutil.rmtree(self._scratch, ignore_errors=True)
        if self.kernels.exists():
            shutil.copytree(self.kernels, self._scratch)
        path.write_text(fault.plant(text), "utf-8")
        try:
            for test in fault.tests:
                if found := self.fails(test, self._scratch):
                    return found
        finally:
            path.write_text(text, "utf-8")
            os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))
        return None


def main(argv: Sequence[str] | None = None) -> int:
    """Plant all that are asked for; 1 where one is not found."""
    parser = bare_parser(__doc__)
    add = parser.add_argument
    add("--faults", type=Path, default=FAULTS, help="the list; default %(default)s")
    add("--room", nargs="+", help="those of these rooms alone")
    add("--fault", nargs="+", help="those that have one of these texts in `what`")
    add("--share", default="none", help="as pytest takes it; default none")
    add("--limit", type=float, default=1800.0, help="seconds for a test's file")
    add("--folder", type=Path, default=ROOT / "build" / "planted_faults")
    add(
        "--unchanged",
        action=argparse.BooleanOptionalAction,
        default=True,
        help="first run the tests without a fault",
    )
    add("--output", type=Path, help="write the outcome as JSON")
    args = parser.parse_args(argv)
    faults = read_faults(args.faults)
    rooms = sorted({fault.room for fault in faults})
    if unknown := set(args.room or ()) - set(rooms):
        parser.error(f"no room {', '.join(sorted(unknown))}: {', '.join(rooms)}")
    run = Run("tools.planted_faults", args)
    chosen = [
        fault
        for fault in faults
        if (not args.room or fault.room in args.room)
        and (not args.fault or any(text in fault.what for text in args.fault))
    ]
    checkout = Checkout(args.folder, args.share, args.limit)
    if args.unchanged:
        for test in dict.fromkeys(test for fault in chosen for test in fault.tests):
            if failed := checkout.fails(test):
                print(f"fails without a fault: {failed}", file=sys.stderr)
                return 1
    rows = []
    for fault in chosen:
        begin = time.perf_counter()
        found = checkout.find(fault)
        seconds = round(time.perf_counter() - begin)
        print(
            f"{fault.room}: {fault.what}: {found or 'NOT FOUND'} ({seconds} s)",
            flush=True,
        )
        row = {"room": fault.room, "fault": fault.what, "file": fault.file}
        rows.append(row | {"found_by": found, "seconds": seconds})
        run.write(rows)
    missed = sum(row["found_by"] is None for row in rows)
    print(f"{len(rows) - missed} of {len(rows)} faults were found")
    return int(missed > 0)


if __name__ == "__main__":
    exit_with(main)
