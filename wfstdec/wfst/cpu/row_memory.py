"""Arrays that searches on the rows of a graph borrow, and how they grow."""

from __future__ import annotations

from functools import partial

from wfstdec.jit.pool import Pool
from wfstdec.wfst.cpu import row_arrays as k
from wfstdec.wfst.cpu.row_entries import drop_nodes
from wfstdec.wfst.cpu.rows import RowArrays

CANDIDATES_PER_ENTRY, NODES_PER_ENTRY = 4, 16
"""Room for candidates and nodes at first."""


class RowMemory:
    """Pools of arrays.

    Args:
        rows: The graph.
        first_capacity: Entries that the arrays hold at first; they grow.

    Attributes:
        scratches: Scratch of a thread; `take` is told how many entries it must hold.
        states: The state of an utterance.
    """

    def __init__(self, rows: RowArrays, first_capacity: int) -> None:
        self.scratches: Pool[k.RowScratch] = Pool(
            partial(_first_scratch, rows, first_capacity), fits=_fits
        )
        self.states: Pool[k.RowState] = Pool(
            partial(k.new_state, first_capacity, NODES_PER_ENTRY * first_capacity),
            beside=self.scratches,
        )


def _first_scratch(rows: RowArrays, first_capacity: int, entries: int) -> k.RowScratch:
    entries = max(entries, first_capacity)
    return k.new_scratch(rows, entries, CANDIDATES_PER_ENTRY * entries)


def _fits(scratch: k.RowScratch, entries: int) -> bool:
    return len(scratch.waiting) >= entries


def grown(
    status: int, scratch: k.RowScratch, state: k.RowState
) -> tuple[k.RowScratch, k.RowState]:
    """Make room for what the kernel found too small, if anything was."""
    if status == k.OK:
        return scratch, state
    if status == k.GROW_NODES:
        drop_nodes(state)
        # A frame makes one for each entry at most.
        while len(state.nodes) < 2 * (state.counts[k.NODES] + len(state.record)):
            state = state._replace(nodes=k.twice(state.nodes))
        return scratch, state
    names: tuple[str, ...] = k.OF_CANDIDATES
    if status == k.GROW_ENTRIES:
        names = k.OF_SCRATCH_ENTRIES
        state = state._replace(
            **{name: k.twice(getattr(state, name)) for name in k.OF_STATE_ENTRIES}
        )
        while len(state.nodes) < 2 * len(state.record):  # those of two costs each
            state = state._replace(nodes=k.twice(state.nodes))
        if _fits(scratch, len(state.record)):  # a state before this one was as large
            return scratch, state
    larger = {name: k.twice(getattr(scratch, name)) for name in names}
    return scratch._replace(**larger), state
