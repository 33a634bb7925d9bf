"""Batches on Ray beside the plain commands: equal rows, overhead, two actors.

    python -m tools.bench.cluster --output run.json

First each row of `decode --ray` and `transcribe --ray` must be what the plain command
writes for it. Then both are timed by turns with --rows rows and with three times as
many: the difference is what a row costs, and the rest is what it takes to start. Plain
is one thread, an actor too. Beside two actors stand two plain commands at the same
time, each with half of the rows: what the machine has to give for two.

CPU seconds are those of all processes that a command starts, Ray's own among them, as
/proc says every tenth of a second: on a machine with other work they say more than
seconds on the wall.

Rows of `decode` are the demo's log-probs, again and again; those of `transcribe` the
recordings of the data's `audio`, where there is a model.
"""

from __future__ import annotations

import argparse
import contextlib
import itertools
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from statistics import median
from typing import NamedTuple

import numpy as np
import pyarrow.parquet

import wfstdec
from tools.bench.command import Run, exit_with, make_parser, parse, profiles
from tools.bench.data import RECIPE, ROOT, find_data, model_files
from tools.bench.report import Row

_TIMES = 3
"""How many times as many rows the longer runs have."""
_EVERY_S = 0.1
_KINDS = ("decode", "transcribe")
PROFILES = profiles({"rows": 30, "repeats": 3}, rows=4, data=None)


def main(argv: list[str] | None = None) -> int:
    parser = make_parser(__doc__)
    add = parser.add_argument
    add("--rows", type=int, help="of the shorter runs of `transcribe`")
    add("--decode-factor", type=int, default=20, help="those of `decode`, times that")
    add("--beam", type=float, default=13.0)
    add("--kinds", nargs="+", choices=_KINDS, default=_KINDS)
    args = parse(parser, argv, PROFILES)
    run = Run("tools.bench.cluster", args)
    with tempfile.TemporaryDirectory() as folder:
        return run.finish(_Bench(args, Path(folder)).rows())


class _Bench:
    """Graphs, and files of so many rows."""

    def __init__(self, args: argparse.Namespace, folder: Path) -> None:
        self._args, self._folder = args, folder
        self._numbers = itertools.count()
        self._data = find_data(args.data)
        self._graph("decode", RECIPE / "tokens.txt", RECIPE / "lexicon.txt.gz")
        if "transcribe" in args.kinds:
            self._model, self._tokens = model_files(self._data)
            lexicon = self._data / "lexicon" / "lexicon_ipa.txt"
            self._graph("transcribe", self._tokens, lexicon)
            self._audio = sorted((self._data / "audio").iterdir())

    def rows(self) -> Iterator[Row]:
        """Rows of all kinds."""
        for kind in self._args.kinds:
            yield self.equality(kind)
            yield from self.times(kind)

    def equality(self, kind: str) -> Row:
        """Compare every row of the shorter run.

        Raises:
            SystemExit: One differs.
        """
        given = self._input(kind, 1)
        plain, rows = self._new(".jsonl"), self._new()
        self._run(kind, given, plain)
        self._run(kind, given, rows, actors=2)
        expected = {
            line["id"]: line for line in map(json.loads, plain.read_text().splitlines())
        }
        for words in (line["words"] for line in expected.values()):
            for word in words:
                word.setdefault("confidence", None)
        tables = map(pyarrow.parquet.read_table, rows.glob("*.parquet"))
        found = {row["id"]: row for table in tables for row in table.to_pylist()}
        wrong = [
            name
            for name, line in expected.items()
            if {key: found.get(name, {}).get(key) for key in line} != line
        ]
        if wrong or found.keys() != expected.keys():
            raise SystemExit(f"{kind}: other rows: {wrong[:5]}")
        return {"what": "equal", "kind": kind, "rows": len(found)}

    def times(self, kind: str) -> list[Row]:
        """Time the plain command and 1 and 2 actors, by turns."""
        ways = self._ways(kind)
        taken: dict[tuple[str, int], list[_Took]] = {}
        for turn in range(self._args.repeats):
            order = list(itertools.product(ways, (1, _TIMES)))
            for name, times in order if turn % 2 == 0 else reversed(order):
                taken.setdefault((name, times), []).append(ways[name](times))
        size = self._size(kind)
        rows = [
            _row(kind, name, size, [taken[name, times] for times in (1, _TIMES)])
            for name in ways
        ]
        return [*rows, _efficiency(kind, {row["what"]: row for row in rows})]

    def _ways(self, kind: str) -> dict[str, Callable[[int], _Took]]:
        def plain(times: int) -> _Took:
            return self._run(kind, self._input(kind, times), self._new(".jsonl"))

        def on_ray(actors: int, times: int) -> _Took:
            return self._run(kind, self._input(kind, times), self._new(), actors)

        return {
            "plain": plain,
            "two plain": partial(self._run_two, kind),
            "1 actor": partial(on_ray, 1),
            "2 actors": partial(on_ray, 2),
        }

    def _size(self, kind: str) -> int:
        factor = self._args.decode_factor if kind == "decode" else 1
        return self._args.rows * factor

    def _input(self, kind: str, times: int, part: slice = slice(None)) -> Path:
        """A file of so many rows; made once."""
        at = "-".join(str(x) for x in (kind, times, part.start, part.step))
        path = self._folder / (f"{at}.npz" if kind == "decode" else f"{at}.jsonl")
        if path.exists():
            return path
        numbers = range(times * self._size(kind))[part]
        if kind == "decode":
            with np.load(RECIPE / "logprobs.npz") as held:
                arrays = list(held.values())
            np.savez(path, **{f"r{i}": arrays[i % len(arrays)] for i in numbers})
            return path
        lines = []
        for i in numbers:
            audio = self._audio[i % len(self._audio)]
            lines.append(json.dumps({"id": f"r{i}", "audio_filepath": str(audio)}))
        path.write_text("".join(f"{line}\n" for line in lines))
        return path

    def _graph(self, kind: str, tokens: Path, lexicon: Path) -> None:
        if kind not in self._args.kinds:
            return
        lm = RECIPE / "lm.arpa.gz"
        if kind == "transcribe":
            lm = self._data / "lm" / "lm_books.3g_pruned.arpa.gz"
        wfstdec.build_graph(
            tokens=tokens, blank="<blank>", lexicon=lexicon, lm=lm, separator="<wb>"
        ).save(self._folder / f"{kind}.npz")

    def _new(self, ending: str = "") -> Path:
        return self._folder / f"out{next(self._numbers)}{ending}"

    def _command(self, kind: str, given: Path, output: Path) -> list[str]:
        words = [sys.executable, "-m", "wfstdec", kind]
        if kind == "decode":
            words += ["--logprobs", str(given)]
        else:
            words += [str(self._model), str(given), "--tokens", str(self._tokens)]
            words += ["--blank", "<blank>", "--sample-rate", "16000", "--workers", "1"]
        words += ["--graph", str(self._folder / f"{kind}.npz"), "--threads", "1"]
        words += ["--beam", str(self._args.beam), "--quiet"]
        return [*words, "--lm-scale", str(self._args.lm_scale), "--output", str(output)]

    def _run(self, kind: str, given: Path, output: Path, actors: int = 0) -> _Took:
        words = self._command(kind, given, output)
        if actors:
            words += ["--ray", "local", "--actors", str(actors)]
            # Some files for each actor, as in long runs; no larger than usual.
            words += ["--file-rows", str(min(256, max(1, self._size(kind) // 6)))]
        return _wait([_start(words)])

    def _run_two(self, kind: str, times: int) -> _Took:
        parts = [self._input(kind, times, slice(i, None, 2)) for i in range(2)]
        return _wait(
            [_start(self._command(kind, one, self._new(".jsonl"))) for one in parts]
        )


class _Took(NamedTuple):
    """Seconds of a run, on the wall and of all its processes."""

    wall_s: float
    cpu_s: float


def _row(kind: str, name: str, size: int, taken: Sequence[Sequence[_Took]]) -> Row:
    """Cost of a row, and of a start, of the shorter and the longer runs."""
    row: Row = {"what": name, "kind": kind, "rows": size}
    for clock in ("wall_s", "cpu_s"):
        turns = [[round(getattr(one, clock), 2) for one in some] for some in taken]
        short, long = map(median, turns)
        each = (long - short) / ((_TIMES - 1) * size)
        label = clock.removesuffix("_s")
        row |= {f"{label}_row_ms": round(1000 * each, 3)}
        row |= {f"{label}_start_s": round(short - size * each, 2), f"{label}_s": turns}
    return row


def _efficiency(kind: str, rows: Mapping[str, Row]) -> Row:
    """An actor beside the plain command, and two beside one."""
    total: Row = {"what": "efficiency", "kind": kind}
    for label in ("cpu", "wall"):
        plain, both, one, two = (
            rows[name][f"{label}_row_ms"]
            for name in ("plain", "two plain", "1 actor", "2 actors")
        )
        total[f"{label}_overhead_row_ms"] = round(one - plain, 3)
        total[f"{label}_one_actor_by_two"] = round(one / two, 3)
        total[f"{label}_one_plain_by_two"] = round(plain / both, 3)
    return total


def _start(words: Sequence[str]) -> subprocess.Popen:
    paths = os.environ | {"PYTHONPATH": str(ROOT)}
    return subprocess.Popen(words, env=paths, stderr=subprocess.PIPE, text=True)


def _wait(processes: Sequence[subprocess.Popen]) -> _Took:
    """Wait for processes, and add up what they and all below them use.

    Raises:
        SystemExit: One has failed.
    """
    began, used = time.perf_counter(), dict[tuple[int, str], float]()
    while any(process.poll() is None for process in processes):
        _look(used, {process.pid for process in processes})
        time.sleep(_EVERY_S)
    wall_s = time.perf_counter() - began
    for process in processes:
        if process.returncode:
            assert process.stderr is not None
            told = process.stderr.read()
            raise SystemExit(f"{' '.join(process.args[2:4])}: {told}")
    return _Took(wall_s, sum(used.values()))


def _look(used: dict[tuple[int, str], float], roots: set[int]) -> None:
    """Note the CPU seconds of processes and of all below them."""
    parents: dict[int, int] = {}
    found: dict[int, tuple[str, float]] = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):  # it has ended meanwhile
            fields = path.read_text().rpartition(")")[2].split()
            number = int(path.parent.name)
            ticks = int(fields[11]) + int(fields[12])
            parents[number] = int(fields[1])
            found[number] = fields[19], ticks / os.sysconf("SC_CLK_TCK")
    for number, (start, seconds) in found.items():
        at = number
        while at not in roots and at in parents:
            at = parents[at]
        if at in roots:
            used[number, start] = seconds


if __name__ == "__main__":
    exit_with(main)
