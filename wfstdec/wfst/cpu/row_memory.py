"""Arrays that searches on the rows of a graph borrow, and how they grow."""

from __future__ import annotations

from functools import partial

from wfstdec.jit.handles import Handle
from wfstdec.jit.pool import Pool
from wfstdec.wfst.cpu import row_arrays as k
from wfstdec.wfst.cpu.row_entries import drop_nodes
from wfstdec.wfst.cpu.row_lattice_arcs import RowLattice, new_lattice
from wfstdec.wfst.cpu.row_notes import RowNotes, new_notes
from wfstdec.wfst.cpu.rows import RowArrays

CANDIDATES_PER_ENTRY, NODES_PER_ENTRY = 4, 16
"""Room for candidates and nodes at first."""
FIRST_NOTES = 1 << 14
"""Room for so many notes of a lattice at first."""


class RowMemory:
    """Pools of arrays, by their handles.

    Args:
        rows: The graph.
        first_capacity: Entries that the arrays hold at first; they grow.

    Attributes:
        scratches: Scratch of a thread; `take` is told how many entries it must hold.
        states: The state of an utterance.
        recordings: What is noted of an utterance for its lattice.
    """

    def __init__(self, rows: RowArrays, first_capacity: int) -> None:
        self.scratches: Pool[Handle[k.RowScratch]] = Pool(
            partial(_first_scratch, rows, first_capacity), fits=_fits
        )
        self.states: Pool[Handle[k.RowState]] = Pool(
            partial(_first_state, first_capacity), beside=self.scratches
        )
        self.recordings: Pool[tuple[Handle[RowNotes], Handle[RowLattice]]] = Pool(
            _first_recording, beside=self.scratches
        )


def _first_scratch(
    rows: RowArrays, first_capacity: int, entries: int
) -> Handle[k.RowScratch]:
    entries = max(entries, first_capacity)
    return Handle(k.new_scratch(rows, entries, CANDIDATES_PER_ENTRY * entries))


def _first_state(entries: int) -> Handle[k.RowState]:
    return Handle(k.new_state(entries, NODES_PER_ENTRY * entries))


def _first_recording() -> tuple[Handle[RowNotes], Handle[RowLattice]]:
    return Handle(new_notes(FIRST_NOTES)), Handle(new_lattice())


def _fits(scratch: Handle[k.RowScratch], entries: int) -> bool:
    return len(scratch.value.waiting) >= entries


def grown(
    status: int, scratch: Handle[k.RowScratch], state: Handle[k.RowState]
) -> tuple[Handle[k.RowScratch], Handle[k.RowState]]:
    """Make room for what the kernel found too small, if anything was."""
    if status in (k.OK, k.GROW_NOTES):  # a recording search has these
        return scratch, state
    arrays = state.value
    if status == k.GROW_NODES:
        drop_nodes(arrays)
        # A frame makes one for each entry at most.
        while len(arrays.nodes) < 2 * (arrays.counts[k.NODES] + len(arrays.record)):
            arrays = arrays._replace(nodes=k.twice(arrays.nodes))
        return scratch, Handle(arrays)
    names: tuple[str, ...] = k.OF_CANDIDATES
    if status == k.GROW_ENTRIES:
        names = k.OF_SCRATCH_ENTRIES
        arrays = arrays._replace(
            **{name: k.twice(getattr(arrays, name)) for name in k.OF_STATE_ENTRIES}
        )
        while len(arrays.nodes) < 2 * len(arrays.record):  # those of two costs each
            arrays = arrays._replace(nodes=k.twice(arrays.nodes))
        state = Handle(arrays)
        if _fits(scratch, len(arrays.record)):  # a state before this one was as large
            return scratch, state
    larger = {name: k.twice(getattr(scratch.value, name)) for name in names}
    return Handle(scratch.value._replace(**larger)), state
