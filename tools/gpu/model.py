"""Model of a frame's cost on a GPU, to hold measurements against.

    predicted(Work(arcs=977, ranks=1.3), threads=512)      # microseconds by phase
    barriers(ranks=1.3), CHAIN                             # what is counted beside it
    predicted_of_trie(active=4.2, threads=32)              # the trie's, by phase

It was made before any GPU ran the kernels, from counted loads (0.14 us each, dependent,
from the L2 cache) and block barriers (25 ns), the trie's from its instructions too (2.4
ns each). Its numbers are no device's.
"""

from __future__ import annotations

from typing import NamedTuple

from wfstdec.trie.gpu.layout import NARROW, WIDE
from wfstdec.wfst.gpu.layout import PHASES

LOAD_US, BARRIER_US, INSTRUCTION_US = 0.14, 0.025, 0.0024
"""A dependent load from L2; a barrier of a block; an instruction of a warp: four cycles
of 1.7 GHz, as if each waited for the one before, no lane did what others do not, and
shared memory took no longer."""
CHAIN = 31
"""Loads of a frame that wait for each other, at 1.3 ranks, found by reading; beside it
`tests/wfst/test_gpu_counts.py` has what is counted in PTX."""


class Work(NamedTuple):
    """Work of a frame, on average.

    Attributes:
        arcs: Arcs looked at.
        ranks: Ranks of epsilon arcs that are closed; what the host cannot count is
            taken from real speech (beam 13, at most 7000 active).
    """

    arcs: float
    ranks: float = 1.3


def barriers(ranks: float) -> float:
    """Barriers of a frame and block, where so many ranks are closed."""
    return 10 + 7 * ranks


def predicted(work: Work, threads: int) -> dict[str, float]:
    """Microseconds of a frame and block, by phase.

    The bound's chain is four loads and a barrier's worth of atomics; emitting is six
    loads and half a microsecond for each turn of all threads over the arcs; a rank is
    2.2 us; the others are a microsecond each.
    """
    turns = max(1.0, work.arcs / threads)
    us = {
        "keep": 4 * BARRIER_US,
        "bound": 0.6,
        "emit": 0.9 + 0.5 * turns,
        "recombine": 1.0,
        "close": 2.2 * work.ranks,
        "settle": 1.0,
        "other": BARRIER_US + LOAD_US,
    }
    return {phase: round(us[phase], 3) for phase in PHASES}


class Counts(NamedTuple):
    """Counts of a phase of a frame of the trie, on average.

    Attributes:
        instructions: Of all threads of the block.
        chain: Loads from global memory, each of which waits for the one before.
        barriers: Of the block; those of a warp are none.
    """

    instructions: float
    chain: float
    barriers: float


TRIE_COUNTS: dict[int, tuple[tuple[float, dict[str, Counts]], ...]] = {
    NARROW: (
        (
            4.2,
            {
                "stay": Counts(1_900, 2.1, 0),
                "expand": Counts(16_700, 20.8, 0),
                "merge": Counts(3_000, 0, 0),
                "rank": Counts(1_310, 0, 0),
                "settle": Counts(1_210, 1.2, 0),
                "other": Counts(625, 0, 0),
            },
        ),
        (
            23.8,
            {
                "stay": Counts(4_320, 3.3, 0),
                "expand": Counts(69_500, 70.3, 0),
                "merge": Counts(15_500, 0, 0),
                "rank": Counts(19_100, 0, 0),
                "settle": Counts(4_030, 1.3, 0),
                "other": Counts(628, 0, 0),
            },
        ),
    ),
    WIDE: (
        (
            4.2,
            {
                "stay": Counts(6_190, 2.1, 2),
                "expand": Counts(39_700, 16.5, 9.5),
                "merge": Counts(7_850, 0, 6),
                "rank": Counts(3_130, 0, 2),
                "settle": Counts(3_040, 1.2, 2),
                "other": Counts(2_500, 0, 1),
            },
        ),
        (
            26.9,
            {
                "stay": Counts(9_010, 2.9, 2),
                "expand": Counts(106_000, 36.9, 14.5),
                "merge": Counts(23_700, 0, 7),
                "rank": Counts(29_100, 0, 2),
                "settle": Counts(6_300, 1.3, 2),
                "other": Counts(2_500, 0, 1),
            },
        ),
    ),
}
"""By the threads of a block: entries gone on from, and the counts of each phase, on the
demo's speech, V = 41; `tests/trie/test_gpu_trie_counts.py` counts them in PTX. The
first has `merge="max"`, the second sums."""


def trie_counts(active: float, threads: int) -> dict[str, Counts]:
    """Counts of a frame by phase: on the line through the two that are kept.

    Args:
        active: Entries gone on from.
        threads: Of a block, `NARROW` or `WIDE`.
    """
    (few, of_few), (many, of_many) = TRIE_COUNTS[threads]
    share = (active - few) / (many - few)
    return {
        phase: Counts(
            *(
                max(0.0, one + share * (other - one))
                for one, other in zip(of_few[phase], of_many[phase], strict=True)
            )
        )
        for phase in of_few
    }


def predicted_of_trie(active: float, threads: int) -> dict[str, float]:
    """Microseconds of a frame and block of the trie, by phase.

    Loads, barriers and instructions one after the other: nothing hides behind anything.
    A row of more tokens than the demo's 41 costs instructions that are not counted.

    Args:
        active: Entries gone on from.
        threads: Of a block, `NARROW` or `WIDE`.
    """
    us = {
        phase: one.chain * LOAD_US
        + one.barriers * BARRIER_US
        + one.instructions / threads * INSTRUCTION_US
        for phase, one in trie_counts(active, threads).items()
    }
    return {phase: round(value, 3) for phase, value in us.items()}
