"""Batches on Ray beside the plain commands: equal rows, overhead, two actors.

    python -m tools.bench.cluster --output run.json

First each row of `decode --ray` and `transcribe --ray` must be what the plain command
writes for it. Then both are timed by turns with --rows rows and with three times as
many: the difference is what a row costs, and the rest is what it takes to start. Plain
is one thread, an actor too. Beside two actors stand two plain commands at the same
time, each with half of the rows: what the machine has to give for two.

Rows of `decode` are the demo's log-probs, again and again; those of `transcribe` the
recordings of the data's `audio`, where there is a model.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import pyarrow.parquet

import wfstdec
from tools.bench.command import Run, exit_with, make_parser, parse
from tools.bench.data import RECIPE, ROOT, find_data
from tools.bench.report import Row
from tools.bench.timing import Turns

_TIMES = 3
"""How many times as many rows the longer runs have."""
_KINDS = ("decode", "transcribe")
PROFILES: dict[str, Row] = {
    "usual": {"rows": 30, "repeats": 3},
    "small": {"rows": 4, "repeats": 1},
}


def main(argv: list[str] | None = None) -> int:
    parser = make_parser(__doc__)
    add = parser.add_argument
    add("--rows", type=int, help="of the shorter runs of `transcribe`")
    add("--decode-factor", type=int, default=20, help="those of `decode`, times that")
    add("--beam", type=float, default=13.0)
    add("--kinds", nargs="+", choices=_KINDS, default=_KINDS)
    args = parse(parser, argv, PROFILES)
    run = Run("tools.bench.cluster", args)
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        bench = _Bench(args, Path(folder))
        for kind in args.kinds:
            rows.append(bench.equality(kind))
            rows += bench.times(kind)
    run.write(rows)
    print(run.footer())
    return 0


class _Bench:
    """Graphs, and files of so many rows."""

    def __init__(self, args: argparse.Namespace, folder: Path) -> None:
        self._args, self._folder = args, folder
        self._numbers = itertools.count()
        self._data = find_data(args.data)
        self._graph("decode", RECIPE / "tokens.txt", RECIPE / "lexicon.txt.gz")
        if "transcribe" in args.kinds:
            self._model = next((self._data / "model").glob("*.onnx"))
            self._tokens = next((self._data / "model").glob("*_tokens.txt"))
            lexicon = self._data / "lexicon" / "lexicon_ipa.txt"
            self._graph("transcribe", self._tokens, lexicon)
            self._audio = sorted((self._data / "audio").iterdir())

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
        found = {row["id"]: row for row in _rows(rows)}
        wrong = [
            name
            for name, line in expected.items()
            if {key: found.get(name, {}).get(key) for key in line} != line
        ]
        if wrong or found.keys() != expected.keys():
            raise SystemExit(f"{kind}: other rows: {wrong[:5]}")
        print(f"{kind}: {len(found)} rows are those of the plain command")
        return {"what": "equal", "kind": kind, "rows": len(found)}

    def times(self, kind: str) -> list[Row]:
        """Time the plain command and 1 and 2 actors, by turns."""
        ways = self._ways(kind)
        functions = {
            f"{name} {times}": self._timed(way, times)
            for times in (1, _TIMES)
            for name, way in ways.items()
        }
        turns = Turns(functions, time.perf_counter)
        turns.repeat(self._args.repeats)
        size = self._size(kind)
        rows: list[Row] = []
        for name in ways:
            short, long = (median(turns.seconds[f"{name} {x}"]) for x in (1, _TIMES))
            each = (long - short) / ((_TIMES - 1) * size)
            row: Row = {"what": name, "kind": kind, "rows": size}
            row |= {"short_s": short, "long_s": long, "row_ms": 1000 * each}
            row |= {"start_s": short - size * each}
            row |= {"turns_s": [turns.seconds[f"{name} {x}"] for x in (1, _TIMES)]}
            rows.append(row)
        by_name = {row["what"]: row for row in rows}
        one, two = (by_name[f"{n} actor{'s' * (n > 1)}"]["row_ms"] for n in (1, 2))
        plain, both = (by_name[x]["row_ms"] for x in ("plain", "two plain"))
        total: Row = {"what": "efficiency", "kind": kind}
        total |= {"overhead_ms": one - plain, "two_of_one": one / two}
        total |= {"two_plain_of_one": plain / both, "two_of_two_plain": both / two}
        for row in rows:
            print(
                f"{kind}, {row['what']}: {row['row_ms']:.1f} ms a row, "
                f"{row['start_s']:.1f} s to start"
            )
        print(
            f"{kind}: an actor adds {total['overhead_ms']:.1f} ms to a row; two are "
            f"{total['two_of_one']:.2f} times as fast as one, two plain commands "
            f"{total['two_plain_of_one']:.2f} times"
        )
        return [*rows, total]

    def _ways(self, kind: str) -> dict[str, Callable[[int], Any]]:
        return {
            "plain": lambda times: self._run(
                kind, self._input(kind, times), self._new(".jsonl")
            ),
            "two plain": lambda times: self._run_two(kind, times),
            "1 actor": lambda times: self._run(
                kind, self._input(kind, times), self._new(), actors=1
            ),
            "2 actors": lambda times: self._run(
                kind, self._input(kind, times), self._new(), actors=2
            ),
        }

    def _timed(self, way: Callable[[int], Any], times: int) -> Callable[[], Any]:
        return lambda: way(times)

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

    def _run(self, kind: str, given: Path, output: Path, actors: int = 0) -> None:
        words = self._command(kind, given, output)
        if actors:
            words += ["--ray", "local", "--actors", str(actors)]
            # As many files as actors could share evenly, whatever the number of rows.
            words += ["--file-rows", str(max(1, self._size(kind) // 10))]
        _wait([_start(words)])

    def _run_two(self, kind: str, times: int) -> None:
        parts = [self._input(kind, times, slice(i, None, 2)) for i in range(2)]
        _wait([_start(self._command(kind, one, self._new(".jsonl"))) for one in parts])


def _start(words: Sequence[str]) -> subprocess.Popen:
    paths = os.environ | {"PYTHONPATH": str(ROOT)}
    return subprocess.Popen(words, env=paths, stderr=subprocess.PIPE, text=True)


def _wait(processes: Sequence[subprocess.Popen]) -> None:
    for process in processes:
        _, told = process.communicate()
        if process.returncode:
            raise SystemExit(f"{' '.join(process.args[2:4])}: {told}")


def _rows(folder: Path) -> list[Row]:
    return [
        row
        for path in folder.glob("*.parquet")
        for row in pyarrow.parquet.read_table(path).to_pylist()
    ]


if __name__ == "__main__":
    exit_with(main)
