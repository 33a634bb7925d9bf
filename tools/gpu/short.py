"""A short run on a GPU machine without a network: what is right, then how fast.

    python -m tools.gpu.short OUT                              # all parts, in order
    python -m tools.gpu.short OUT --parts tests tokens nemo    # some
    python -m tools.gpu.short OUT --minutes 9                  # none begins later

A part is one or several processes side by side, with a limit. After each one OUT has
`figures.json`: of every part its exit status, seconds and the figures that its tools
wrote so far; and `log.txt`, what they printed. Parts that gave what they should are
skipped when the run is repeated. Data is taken from `--data`, see `tools.bench`.

The packages that it needs are the library's, pytest with xdist and timeout, CuPy and
torch; `nemo` and `riva` need those peers.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, NamedTuple

from tools.bench import command
from wfstdec.text.files import atomic_write

LOG_CHARACTERS = 60_000
"""Of a process that are kept, the last ones."""
BATCHES = ["--batches", "1", "8", "32", "128", "400"]
_BENCH = ["tools.bench.gpu", "--boosted", "0", "--dtypes", "float32", "--repeats", "3"]
_TESTS = ["pytest", "-q", "-m", "gpu", "-n", "{workers}", "--timeout", "60"]
_SANITIZE = ["tools.gpu.sanitize", "--cases", "4"]


class Part(NamedTuple):
    """Processes side by side, modules and their arguments, and their limit."""

    seconds: int
    processes: list[list[str]]


PARTS = {
    # kernels are compiled, graphs built; the CPU's answers are those of a few searches
    "warm": Part(
        100, [[*_BENCH, "--settings", "10:8", "--trie", "32:8", "--batches", "1"]]
    ),
    "probe": Part(40, [["tools.gpu.probe"]]),
    "tests": Part(130, [[*_TESTS, "tests/gpu/test_on_gpu.py"]]),
    "tokens": Part(110, [["tools.gpu.tokens", "--only", "ours", "--repeats", "3"]]),
    "nemo": Part(60, [["tools.gpu.tokens", "--only", "nemo", "--repeats", "3"]]),
    "wfst": Part(
        110, [[*_BENCH, "--only", "ours", "--settings", "7000:13", "1000:8", *BATCHES]]
    ),
    "riva": Part(60, [[*_BENCH, "--only", "riva", "--settings", "7000:13", *BATCHES]]),
    "trie": Part(
        60, [[*_BENCH, "--profile", "trie", "--only", "ours", "--trie", "32:8"]]
    ),
    "papers": Part(90, [["tools.gpu.papers", "--tables", "offline", "streams"]]),
    "transducer": Part(40, [["tools.gpu.papers", "--tables", "transducer"]]),
    "backends": Part(120, [[*_TESTS, "tests", "--ignore", "tests/gpu"]]),
    "sanitize": Part(
        120, [[*_SANITIZE, name] for name in ("memcheck", "racecheck", "initcheck")]
    ),
}


def parse_arguments(argv: list[str] | None) -> argparse.Namespace:
    parser = command.bare_parser(__doc__)
    add = parser.add_argument
    add("out", type=Path, help="a folder, made where it is not there")
    add("--parts", nargs="+", default=list(PARTS), choices=list(PARTS))
    add("--data", type=Path, help="for parts that decode a set")
    add("--minutes", type=float, default=15.0, help="no part begins later")
    add("--workers", type=int, default=max(2, (os.cpu_count() or 2) - 2))
    return parser.parse_args(argv)


def arguments_of(args: argparse.Namespace, name: str, process: list[str]) -> list[str]:
    """The command line of a process."""
    values = {"{workers}": str(args.workers)}
    words = [values.get(word, word) for word in process]
    if process[0].startswith(("tools.bench", "tools.gpu.papers", "tools.gpu.tokens")):
        words += ["--output", str(args.out / f"{name}.rows.json")]
        if args.data is not None and process[0] != "tools.gpu.tokens":
            words += ["--data", str(args.data)]
    return [sys.executable, "-m", *words]


def run(args: argparse.Namespace, name: str) -> dict[str, Any]:
    """Run the processes of a part; what came of them."""
    part, begin, under_way = PARTS[name], time.monotonic(), []
    for i, process in enumerate(part.processes):
        words = arguments_of(args, name, process)
        log = args.out / f"{name}.{i}.log"
        with log.open("w") as file:
            # Its own session: what it has started ends with it.
            started = subprocess.Popen(
                words, stdout=file, stderr=subprocess.STDOUT, start_new_session=True
            )
        under_way.append((started, log))
    found: dict[str, Any] = {"status": [], "log": []}
    for started, log in under_way:
        left = max(0.0, part.seconds - (time.monotonic() - begin))
        try:
            found["status"].append(started.wait(left))
        except subprocess.TimeoutExpired:
            os.killpg(started.pid, 9)
            started.wait()
            found["status"].append("limit")
        found["log"].append(log.read_text("utf-8", "replace")[-LOG_CHARACTERS:])
        log.unlink()
    found["seconds"] = round(time.monotonic() - begin, 1)
    rows = args.out / f"{name}.rows.json"
    if rows.exists():
        found["figures"] = json.loads(rows.read_text("utf-8"))
        rows.unlink()
    return found


def main(argv: list[str] | None = None) -> int:
    """Run the parts that are asked for; the exit status is 1 where one failed."""
    args, begin = parse_arguments(argv), time.monotonic()
    args.out.mkdir(parents=True, exist_ok=True)
    figures, log = args.out / "figures.json", args.out / "log.txt"
    known: dict[str, Any] = {}
    if figures.exists():
        known = json.loads(figures.read_text("utf-8"))
    for name in args.parts:
        if not any(known.get(name, {}).get("status", [1])):
            continue
        if time.monotonic() - begin > 60 * args.minutes:
            print(f"{name}: no time is left", flush=True)
            continue
        found = run(args, name)
        with log.open("a", encoding="utf-8") as file:
            for process, text in zip(
                PARTS[name].processes, found.pop("log"), strict=True
            ):
                file.write(f"==== {name}: {' '.join(process)}\n{text}\n")
        known[name] = found
        with atomic_write(figures, "w") as file:
            json.dump(known, file, indent=1)
        print(f"{name}: {found['status']}, {found['seconds']} s", flush=True)
    return int(any(any(known[name]["status"]) for name in known))


if __name__ == "__main__":
    sys.exit(main())
