"""Comparison of two checkouts of the project: the same results, bit for bit.

    python -m tools.bench.same.results record --checkout before --output before.json.gz
    python -m tools.bench.same.results record --checkout after --output after.json.gz
    python -m tools.bench.same.results compare before.json.gz after.json.gz

A recording has the texts, times, tokens, costs and n-best lists of all decoders, on
real speech, with boosts and in chunks; also what graphs, language models and compiled
phrases are. It takes minutes on one core and the interpreter that runs this script, so
that a checkout needs no environment of its own. `--threads` must change nothing. The
exit status of `compare` is 1 where anything differs or is missing.
"""

from __future__ import annotations

import argparse
import gzip
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tools.bench.command import bare_parser
from tools.bench.same.checkouts import data_folder, start_worker

SHOWN = 5
"""Differences that are shown of each section."""
ABSENT = "nothing"

Difference = tuple[str, Any, Any]


def differences(path: str, one: Any, other: Any) -> Iterator[Difference]:
    """Where two records differ, as far down as both have the same parts."""
    if isinstance(one, dict) and isinstance(other, dict):
        for key in one.keys() | other.keys():
            below = one.get(key, ABSENT), other.get(key, ABSENT)
            yield from differences(f"{path} > {key}", *below)
    elif isinstance(one, list) and isinstance(other, list) and len(one) == len(other):
        for i, below in enumerate(zip(one, other, strict=True)):
            yield from differences(f"{path}[{i}]", *below)
    elif type(one) is not type(other) or one != other:
        yield path, one, other


def compare_sections(name: str, one: dict, other: dict) -> int:
    """Print how a section compares; how many of its records differ or are missing."""
    keys = sorted(one.keys() | other.keys())
    found = [
        list(differences(key, one.get(key, ABSENT), other.get(key, ABSENT)))
        for key in keys
    ]
    bad = sum(map(bool, found))
    verdict = f"{bad} DIFFER" if bad else "all equal"
    print(f"{name}: {len(keys)} records, {verdict}")
    for path, left, right in [part[0] for part in found if part][:SHOWN]:
        print(f"  {path}\n    {readable(left)}\n    {readable(right)}")
    return bad


def readable(value: Any) -> str:
    """A value in a line; a hexadecimal float in decimals too."""
    text = json.dumps(value, ensure_ascii=False)
    if isinstance(value, str) and value.lstrip("-").startswith("0x"):
        text += f" = {float.fromhex(value)!r}"
    return text if len(text) <= 200 else f"{text[:200]}..."


def compare(args: argparse.Namespace) -> int:
    """Compare two recordings; the exit status."""
    one, other = map(read, (args.one, args.other))
    for name, value in one["about"].items():
        if other["about"].get(name) != value:
            print(f"note: {name} {value} and {other['about'].get(name)}")
    names = args.sections or list(one["sections"] | other["sections"])
    bad = total = 0
    for name in names:
        parts = [side["sections"].get(name, {}) for side in (one, other)]
        bad += compare_sections(name, *parts)
        total += len(parts[0].keys() | parts[1].keys())
    print(f"{total} records, {bad} of them not the same" if bad else f"{total} records")
    return 1 if bad or not total else 0


def read(path: Path) -> dict[str, Any]:
    """A recording."""
    with gzip.open(path, "rt", encoding="utf-8") as file:
        return json.load(file)


def record(args: argparse.Namespace) -> int:
    """Record the results of a checkout; the exit status."""
    checkout = args.checkout.resolve()
    data = data_folder(args.data, checkout)
    arguments = [str(data), str(args.output.resolve()), str(args.threads)]
    worker = start_worker("results_worker.py", checkout, [*arguments, *args.sections])
    return worker.wait()


def parse_arguments(argv: list[str] | None) -> argparse.Namespace:
    """The command line."""
    parser = bare_parser(__doc__)
    commands = parser.add_subparsers(required=True)
    add = (recorder := commands.add_parser("record")).add_argument
    add("--checkout", type=Path, required=True, help="a folder with wfstdec and tests")
    add("--output", type=Path, required=True, help="a .json.gz file")
    add("--data", type=Path, help="default: ../shared/data beside the checkout")
    add("--threads", type=int, default=1, help="of the decoders; default 1")
    add("--sections", nargs="+", default=[], help="record only these")
    recorder.set_defaults(run=record)
    add = (comparer := commands.add_parser("compare")).add_argument
    add("one", type=Path, help="a recording")
    add("other", type=Path, help="another")
    add("--sections", nargs="+", default=[], help="compare only these")
    comparer.set_defaults(run=compare)
    return parser.parse_args(argv)


def main(argv: list[str] | None = None) -> int:
    """Run a command; its exit status."""
    args = parse_arguments(argv)
    return args.run(args)


if __name__ == "__main__":
    sys.exit(main())
