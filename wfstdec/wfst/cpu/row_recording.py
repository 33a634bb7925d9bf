"""An utterance on rows of LG for a lattice, whole or in chunks.

    search = RecordingRowSearch(rule, inputs, memory, splits, options)
    search.advance(logprobs)                      # float32 [T, V], any number of times
    search.settle(shortest)                       # Segments
    search.finish()                               # a Recorded

Kernels note what they do in the terms of rows (`row_notes.py`). At the end, or before
the log-probs of these frames are forgotten, notes become states and arcs of a lattice
(`row_lattices.py`): the later, the fewer of them.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np

from wfstdec.jit import jit, kernel
from wfstdec.jit.handles import Handle, opened
from wfstdec.search.paths.traceback_kernels import Rule
from wfstdec.wfst.cpu import row_arrays as k
from wfstdec.wfst.cpu import row_lattices as kernels
from wfstdec.wfst.cpu import row_notes
from wfstdec.wfst.cpu.row_chunks import ChunkedRowSearch, RowInputs
from wfstdec.wfst.cpu.row_frame import advance
from wfstdec.wfst.cpu.row_lattice_arcs import LINES, NODES
from wfstdec.wfst.cpu.row_memory import RowMemory
from wfstdec.wfst.cpu.row_notes import longer
from wfstdec.wfst.lattice_pack import Recorded, Segment, cuts_of
from wfstdec.wfst.options import WfstOptions

KEPT = 1024
"""So many frames are kept at least: four megabytes with 1,025 tokens."""
FEW_NODES = 1 << 15
"""So many states are kept before any is looked at again."""
_OF_NODES = "graph_state", "record", "boost", "extra", "number"


@kernel
def pass_chunk(
    rows, params, words, phrases, added, scratch, state, logprobs, first, record
):
    """`advance`, by handles."""
    return advance(
        *(opened(rows), opened(params), opened(words), opened(phrases)),
        *(opened(added), opened(scratch), opened(state), logprobs, first),
        opened(record),
    )


@jit
def read(
    rows, params, words, phrases, added, scratch, state, record, lattice, splits, said
):
    """`read_notes`, by handles."""
    return kernels.read_notes(
        *(opened(rows), opened(params), opened(words), opened(phrases)),
        *(opened(added), opened(scratch), opened(state), opened(record)),
        *(opened(lattice), splits, said),
    )


@jit
def end(
    rows,
    params,
    words,
    phrases,
    added,
    scratch,
    state,
    record,
    lattice,
    splits,
    said,
    first_frame,
):
    """`read_last`, by handles."""
    return kernels.read_last(
        *(opened(rows), opened(params), opened(words), opened(phrases)),
        *(opened(added), opened(scratch), opened(state), opened(record)),
        *(opened(lattice), splits, said, first_frame),
    )


@jit
def keep(rows, phrases, added, scratch, state, lattice, limit):
    """`keep`, by handles."""
    kernels.keep(
        *(opened(rows), opened(phrases), opened(added), opened(scratch)),
        *(opened(state), opened(lattice), limit),
    )


@jit
def forget(rows, phrases, added, scratch, state, lattice, line):
    """`forget`, by handles."""
    kernels.forget(
        *(opened(rows), opened(phrases), opened(added), opened(scratch)),
        *(opened(state), opened(lattice), line),
    )


class RecordingRowSearch(ChunkedRowSearch):
    """The search of one utterance: `advance` any number of times, then `finish`.

    Args:
        rule: How paths through the graph are read.
        inputs: What it goes by.
        memory: What it borrows.
        splits: uint32 [S + 1], the first arc of each state of the packed graph.
        options: Of the search.
    """

    def __init__(
        self,
        rule: Rule,
        inputs: RowInputs,
        memory: RowMemory,
        splits: np.ndarray,
        options: WfstOptions,
    ) -> None:
        super().__init__(rule, inputs, memory)
        self._most = max(self._most, KEPT)
        self._splits = splits
        self._notes, self._lattice = memory.recordings.take()
        self._notes.value.counts[:] = self._lattice.value.counts[:] = 0
        self._notes.value.limit[0] = options.beam_of_lattice
        self._start = 0  # frame of the first state
        self._noted = 0  # frames before the notes
        self._many_nodes = FEW_NODES

    def finish(self) -> Recorded:  # type: ignore[override]
        """End the utterance; the search cannot be used afterwards."""
        self._begin()
        arrays = self._read(end, self._start)
        recorded = Recorded(super().finish(), *arrays)
        self._memory.recordings.give((self._notes, self._lattice))
        return recorded

    def settle(self, shortest: int) -> list[Segment]:
        """The segments that are settled since the last call; they are forgotten."""
        self._begin()
        self._read(read)
        self._keep()
        lattice = self._lattice.value
        frames = lattice.frames[: lattice.counts[LINES]]
        cuts = cuts_of(np.diff(frames[:, 0], prepend=0), shortest)
        segments = []
        for first, last in pairwise([0, *cuts]):
            arrays = kernels.gather(lattice, first, last, self._start)
            segments.append(Segment.closed(*arrays))
        if cuts:
            self._with_scratch(forget, cuts[-1])
            self._start += cuts[-1]
        return segments

    def _fold(self) -> tuple[int, float, float]:
        # What blanks and repeats cost is read from log-probs that are forgotten now.
        self._read(read)
        return super()._fold()

    def _read(self, kernel: Any, *rest: Any) -> Any:
        """Make states and arcs of the notes; what the kernel returns beside counts."""
        self._make_room()
        scratch = self._memory.scratches.take(len(self._state.value.record))
        try:
            while True:
                lattice = self._lattice.value
                nodes, arcs, *found = kernel(
                    *(*self._inputs, scratch, self._state, self._notes),
                    *(self._lattice, self._splits),
                    *((self._kept, self._first, self._noted), *rest),
                )
                if nodes <= len(lattice.number) and arcs <= len(lattice.arcs):
                    break
                self._make_room(nodes, arcs)
        finally:
            self._memory.scratches.give(scratch)
        self._noted = self._last
        if lattice.counts[NODES] > self._many_nodes:
            self._keep()
            self._many_nodes = max(FEW_NODES, 2 * int(lattice.counts[NODES]))
        return found

    def _keep(self) -> None:
        """Drop states and arcs that can be no part of the lattice any more."""
        self._with_scratch(keep, self._notes.value.limit[0])

    def _with_scratch(self, kernel: Any, *rest: Any) -> None:
        """Call a kernel that looks at the states there are."""
        rows, _, _, phrases, added = self._inputs
        scratch = self._memory.scratches.take(len(self._state.value.record))
        try:
            kernel(rows, phrases, added, scratch, self._state, self._lattice, *rest)
        finally:
            self._memory.scratches.give(scratch)

    def _advance(
        self, status: int, scratch: Handle[k.RowScratch], part: np.ndarray, frame: int
    ) -> tuple[int, int]:
        notes = before = self._notes.value
        if status == k.GROW_NOTES:
            notes = row_notes.twice(notes)
        frames = len(part) - frame
        notes = row_notes.fitted(notes, scratch.value, self._state.value, frames)
        if notes is not before:
            self._notes = Handle(notes)
        return pass_chunk(*self._inputs, scratch, self._state, part, frame, self._notes)

    def _make_room(self, nodes: int = 0, arcs: int = 0) -> None:
        """Make room for some states and arcs, and for the steps that are noted."""
        lattice = self._lattice.value
        lines = int(lattice.counts[LINES]) + self._last - self._noted + 1
        for names, size in (
            (_OF_NODES, nodes),
            (("arcs",), arcs),
            (("frames",), lines),
            (("here", "other"), 2 * len(self._state.value.record)),
        ):
            if len(getattr(lattice, names[0])) < size:
                lattice = lattice._replace(
                    **{name: longer(getattr(lattice, name), 2 * size) for name in names}
                )
        if lattice is not self._lattice.value:
            self._lattice = Handle(lattice)
