"""Search of one utterance on the CPU that records a lattice, whole or in chunks.

    search = RecordingSearch(inputs, memory, options)
    search.advance(logprobs)                      # float32 [T, V], any number of times
    search.settle(shortest)                       # `RecordedLattice`s
    search.finish()                               # a RecordedLattice

Kernels record the arcs of frames (`lattice_record.py`). At the end, or before the
log-probs of these frames are dropped, records become states and arcs of a lattice
(`lattice_build.py`). The later this happens, the fewer of them survive.
"""

from itertools import pairwise

import numpy as np

from wfstdec.jit import jit
from wfstdec.jit.handles import Handle, opened
from wfstdec.wfst.cpu.arrays import GROW_NOTES, RowScratch
from wfstdec.wfst.cpu.lattice_build import gather, read_notes, shrink_lattice
from wfstdec.wfst.cpu.lattice_record import LatticeRecord, fitted, longer, twice
from wfstdec.wfst.cpu.search import CpuSearch, Inputs, RowMemory, searching
from wfstdec.wfst.lattice_pack import RecordedLattice, cuts_of
from wfstdec.wfst.options import WfstOptions

KEPT = 1024
"""Frames of log-probs that are kept at least: 4 MB with 1,025 tokens."""
FEW_NODES = 1 << 15
"""States up to which a lattice is not pruned between frames."""
_OF_NODES = "graph_state", "record", "boost", "number"


@jit
def read(inputs, scratch, state, record, lattice, chunk, first_frame):
    """Call `read_notes` by handles."""
    search = searching(inputs, scratch, state, record)
    return read_notes(search, opened(lattice), chunk, first_frame)


@jit
def shrink(inputs, scratch, state, lattice, limit, line):
    """Call `shrink_lattice` by handles."""
    search = searching(inputs, scratch, state, None)
    shrink_lattice(search, opened(lattice), limit, line)


class RecordingSearch(CpuSearch):
    """The search of one utterance: `advance` any number of times, then `finish`."""

    record: Handle[LatticeRecord]

    def __init__(
        self,
        inputs: Handle[Inputs],
        memory: RowMemory,
        options: WfstOptions,
    ) -> None:
        super().__init__(inputs, memory)
        self._most = max(self._most, KEPT)
        record, self._lattice = memory.recordings.take()
        self.use(self.state, record)
        self.record.value.progress[:] = self._lattice.value.progress[:] = 0
        self.record.value.progress["limit"] = options.beam_of_lattice
        self._start = 0  # frame of the first state
        self._noted = 0  # frames before the recorded ones
        self._many_nodes = FEW_NODES

    def finish(self) -> RecordedLattice:  # type: ignore[override]
        """End the utterance; the search cannot be used afterwards."""
        self._begin()
        arrays = self._read(self._start)
        recorded = RecordedLattice(super().finish(), *arrays)
        self.memory.recordings.give((self.record, self._lattice))
        return recorded

    def settle(self, shortest: int) -> list[RecordedLattice]:
        """Return the segments settled since the last call, and drop them here."""
        self.begin_look()
        self._shrink()
        lattice = self._lattice.value
        frames = lattice.frames[: int(lattice.progress["lines"][0])]
        cuts = cuts_of(np.diff(frames[:, 0], prepend=0), shortest)
        segments = [
            RecordedLattice.segment(*gather(lattice, first, last, self._start))
            for first, last in pairwise([0, *cuts])
        ]
        if cuts:
            self._shrink(cuts[-1])
            self._start += cuts[-1]
        return segments

    def begin_look(self) -> None:
        """Read records that need the log-probs, which are then dropped."""
        self._begin()
        self._read()

    def _read(self, first_frame: int = -1) -> list[np.ndarray]:
        """Turn records into states and arcs; at the end return the lattice."""
        self._make_room()
        scratch = self.memory.scratches.take(len(self.state.value.record))
        try:
            while True:
                lattice = self._lattice.value
                nodes, arcs, *found = read(
                    *(self.inputs, scratch, self.state, self.record, self._lattice),
                    *((self._kept, self._folded.item(), self._noted), first_frame),
                )
                if nodes <= len(lattice.number) and arcs <= len(lattice.arcs):
                    break
                self._make_room(nodes, arcs)
        finally:
            self.memory.scratches.give(scratch)
        self._noted = self._frames.item()
        num_nodes = lattice.progress["nodes"]
        # At the end nothing is dropped: `here` no longer has the numbers of the states.
        if first_frame < 0 and num_nodes[0] > self._many_nodes:
            self._shrink()
            self._many_nodes = max(FEW_NODES, 2 * int(num_nodes[0]))
        return found

    def _shrink(self, line: int = 0) -> None:
        limit = self.record.value.progress["limit"][0]
        scratch = self.memory.scratches.take(len(self.state.value.record))
        try:
            shrink(self.inputs, scratch, self.state, self._lattice, limit, line)
        finally:
            self.memory.scratches.give(scratch)

    def make_room(
        self, status: int, scratch: Handle[RowScratch], frames: int
    ) -> Handle[RowScratch]:
        """Enlarge the arrays that the kernel reported as too small."""
        scratch = super().make_room(status, scratch, frames)
        notes = before = self.record.value
        if status == GROW_NOTES:
            notes = twice(notes)
        notes = fitted(notes, scratch.value, self.state.value, frames)
        if notes is not before:
            self.use(self.state, Handle(notes))
        return scratch

    def _make_room(self, nodes: int = 0, arcs: int = 0) -> None:
        lattice = self._lattice.value
        lines = (
            int(lattice.progress["lines"][0]) + self._frames.item() - self._noted + 1
        )
        for names, size in (
            (_OF_NODES, nodes),
            (("arcs",), arcs),
            (("frames",), lines),
            (("here", "other"), 2 * len(self.state.value.record)),
        ):
            if len(getattr(lattice, names[0])) < size:
                lattice = lattice._replace(
                    **{name: longer(getattr(lattice, name), 2 * size) for name in names}
                )
        if lattice is not self._lattice.value:
            self._lattice = Handle(lattice)
