"""Model of a frame's cost on a GPU, to hold measurements against.

    predicted(Work(arcs=977, ranks=1.3), threads=512)      # microseconds by phase
    barriers(ranks=1.3), CHAIN                             # what is counted beside it

It was made before any GPU ran the kernels, from counted loads (0.14 us each, dependent,
from the L2 cache) and block barriers (25 ns). Its numbers are no device's.
"""

from __future__ import annotations

from typing import NamedTuple

from wfstdec.wfst.gpu.layout import PHASES

LOAD_US, BARRIER_US = 0.14, 0.025
"""A dependent load from L2; a barrier of a block."""
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
