"""Findings of compute-sanitizer's racecheck, less the races that are meant.

    python -m tools.gpu.racecheck FILE         # exit status 1 where a race is not meant
    python -m tools.gpu.racecheck FILE trie    # of the trie's kernels

Kernels read words of shared memory while atomics change them, in a few places: a bound
that is out of date lets more through, which the cutoff drops, and a slot that is seen
empty is taken by compare-and-swap. Racecheck reports each as a hazard. A hazard
passes where both of its lines are in `ALLOWED`; lines are found by their text.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import NamedTuple

from wfstdec.gpu.records import KERNELS as SHARED
from wfstdec.trie.gpu.layout import KERNELS as TRIE_KERNELS
from wfstdec.wfst.gpu.layout import KERNELS as WFST_KERNELS


class Allowed(NamedTuple):
    """A line at which a race is meant.

    Attributes:
        file: The kernel file.
        text: What the line has, and no other.
        why: Why no order of threads matters.
    """

    file: str
    text: str
    why: str


_PEEK = "reads what atomics may be changing: any of the values will do"
_BOUND = "lowers the bound; a reader that comes too early lets more through"
_SLOT = "takes a slot that was seen empty, or finds who took it"
_PEEKS = (
    Allowed("block.cuh", 'asm volatile("ld.relaxed.cta.u32', _PEEK),
    Allowed("block.cuh", 'asm volatile("ld.relaxed.cta.u64', _PEEK),
)
_WFST = (
    Allowed("frame.cuh", "if (cost < least) atomicMin(&progress.least", _BOUND),
    Allowed("table.cuh", "found = atomicCAS(&slots.keys[slot], EMPTY, key)", _SLOT),
    Allowed("table.cuh", "atomicOr(&progress.overflow, NO_ROOM)", "the frame is lost"),
    Allowed(
        "table.cuh", "atomicOr(&progress.overflow, no_entry())", "the frame is lost"
    ),
)
_TRIE = (
    Allowed("ask.cuh", "atomicMin(&progress.least, ordered(candidate.cost))", _BOUND),
    Allowed("merge.cuh", "found = atomicCAS(&slots[slot], NONE, mine)", _SLOT),
)
ALLOWED = {
    "wfst": (WFST_KERNELS, _PEEKS + _WFST),
    "trie": (TRIE_KERNELS, _PEEKS + _TRIE),
}
"""Where the kernels of a search are, and the lines: both have a `frame.cuh`."""
_HAZARD = re.compile(r"Race reported between|\bhazard detected\b", re.IGNORECASE)
_PLACE = re.compile(r"(?P<file>[\w./+-]+\.cuh?):(?P<line>\d+)")


class Hazard(NamedTuple):
    """Two accesses that nothing orders: (file, line) of each that is known."""

    places: tuple[tuple[str, int], ...]
    text: str


def allowed_lines(search: str) -> set[tuple[str, int]]:
    """Where races are meant, (file, line).

    Args:
        search: One of `ALLOWED`.

    Raises:
        ValueError: A line is not there.
    """
    found = set()
    kernels, allowed = ALLOWED[search]
    for one in allowed:
        folder = SHARED if (SHARED / one.file).exists() else kernels
        lines = (folder / one.file).read_text("utf-8").splitlines()
        numbers = [n for n, line in enumerate(lines, 1) if one.text in line]
        if not numbers:
            raise ValueError(f"{one.file}: no line has {one.text!r}")
        found |= {(one.file, number) for number in numbers}
    return found


def hazards(log: str) -> list[Hazard]:
    """The hazards of a log, each with the lines of its accesses."""
    texts: list[str] = []
    goes_on = False
    for raw in log.splitlines():
        line = raw.removeprefix("=========").strip()
        if _HAZARD.search(line):
            texts.append(line)
            goes_on = True
        elif goes_on and line.startswith("and "):
            texts[-1] += f" {line}"
        else:
            goes_on = False
    found = []
    for text in texts:
        pairs = (one.groups() for one in _PLACE.finditer(text))
        places = ((Path(file).name, int(line)) for file, line in pairs)
        found.append(Hazard(tuple(places), text))
    return found


def not_meant(log: str, search: str) -> list[Hazard]:
    """Select races of which a line is not in `ALLOWED`, or is not known."""
    lines = allowed_lines(search)
    return [
        one
        for one in hazards(log)
        if len(one.places) < 2 or not set(one.places) <= lines
    ]


def main(log: str, search: str = "wfst") -> int:
    """Print the races that are not meant; the exit status."""
    found = hazards(log)
    wrong = not_meant(log, search)
    for one in wrong:
        print(one.text)
    print(f"{len(found)} hazards, {len(wrong)} of them not meant")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]).read_text("utf-8", "replace"), *sys.argv[2:3]))
