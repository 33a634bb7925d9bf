"""The CPU search that records a lattice: `CpuSearch`, with arcs noted beside the trace.

What it notes is pruned whenever arrays are full, and they grow only where that frees
less than half: they stay a small multiple of the lattice itself. Segments that are
settled leave it altogether when they are asked for.
"""

from __future__ import annotations

import copy
from itertools import pairwise

import numpy as np

from wfstdec.search.paths.so_far import PathSoFar
from wfstdec.wfst.cpu import arrays as k
from wfstdec.wfst.cpu import lattice_kernels as gathering
from wfstdec.wfst.cpu import lattice_kernels as recording
from wfstdec.wfst.cpu.backend import CpuBackend, CpuSearch, SearchInputs
from wfstdec.wfst.cpu.oov import AddedArrays
from wfstdec.wfst.lattice_pack import Recorded, Segment, cuts_of
from wfstdec.wfst.options import WfstOptions

FIRST_ARCS = 1 << 16
"""Room for so many arcs at first."""


class RecordingSearch(CpuSearch):
    """The search of one utterance: `advance` any number of times, then `record`."""

    def __init__(
        self,
        backend: CpuBackend,
        inputs: SearchInputs,
        added: AddedArrays | None,
        options: WfstOptions,
        first_arcs: int = FIRST_ARCS,
    ) -> None:
        super().__init__(backend, inputs, added)
        record = backend.take_record(first_arcs)
        limit = np.float32(options.beam_of_lattice)
        self._record: k.Record = record._replace(limit=limit)
        self._record.counts[:] = 0
        self._start = 0, np.uint32(0)  # frame and graph state of the first node
        self._insertion = np.float32(options.word_insertion)
        self._fit_to_trace()

    def advance(self, logprobs: np.ndarray) -> None:
        """Pass the search through a chunk, float32 [T, V], C order."""
        frames, rows = self._record.frames, int(self._record.counts[2])
        needed = rows + len(logprobs) + 1
        if needed > len(frames):
            longer = np.empty((2 * needed, 2), np.int64)
            longer[:rows] = frames[:rows]
            self._record = self._record._replace(frames=longer)
        super().advance(logprobs)

    def record(self) -> Recorded:
        """End the utterance; the search cannot be used afterwards."""
        self._begin()
        utterance, record = self._utterance, self._record
        graph, params, *_ = self._inputs
        states, arcs = gathering.gather_last(
            (*self._inputs, self._added),
            utterance.frontier[: utterance.counts[k.FRONTIER]],
            (
                self._boosts_at_end(),
                graph.final_cost,
                params.lm_scale,
                bool(utterance.counts[k.DIED] < 0),
            ),
            (utterance.trace, record),
            (*self._start, self._insertion),
        )
        recorded = Recorded(self.finish(), states, arcs)
        self._backend.give_record(record)
        return recorded

    def settle(self, shortest: int) -> list[Segment]:
        """The segments that are settled since the last call; they are forgotten."""
        self._begin()
        self._make_room(0, 0)
        utterance, record = self._utterance, self._record
        frames = record.frames[: record.counts[2]]
        cuts = cuts_of(np.diff(frames[:, 0], prepend=0), shortest)
        segments = []
        for rows in pairwise([0, *cuts]):
            arrays = gathering.gather(
                (*self._inputs, self._added),
                *(utterance.trace, record, (*self._start, self._insertion), rows),
            )
            segments.append(Segment.closed(*arrays))
        if cuts:
            self._forget(cuts[-1], segments[-1])
        return segments

    def _forget(self, row: int, segment: Segment) -> None:
        """Let the search begin at the last state of a segment, in a row of frames."""
        utterance, counts = self._utterance, self._utterance.counts
        node = int(self._record.frames[row - 1, 0])
        last = np.zeros(1, k.ENTRY)
        last["node"] = node
        self._history.fold(last, utterance.trace[: node + 1].copy(), node + 1)
        frontier = utterance.frontier[: counts[k.FRONTIER]]
        counts[k.TRACE] = recording.forget(frontier, utterance.trace, self._record, row)
        end = segment.states[-1]
        self._start = int(end["frame"]), np.uint32(end["graph_state"])

    def look(self) -> PathSoFar:
        """How far the search has come; it goes on as if nobody had looked."""
        self._begin()
        utterance, counts = self._utterance, self._utterance.counts
        other = copy.copy(self)
        other._utterance = utterance._replace(
            frontier=utterance.frontier[: counts[k.FRONTIER]].copy(),
            trace=utterance.trace[: counts[k.TRACE]].copy(),
            counts=counts.copy(),
        )
        other._history = self._history.copy()
        return CpuSearch.look(other)

    def _grow(self, status: int, scratch: k.Scratch, frames_left: int) -> k.Scratch:
        """Enlarge what a kernel found too small; returns the scratch to go on with."""
        if status == k.GROW_NOTED:
            counts = self._record.counts
            self._make_room(0, int(counts[1] - counts[0]))
            return scratch
        return super()._grow(status, scratch, frames_left)

    def _make_room_in_trace(self, most: int, frames_left: int) -> None:
        self._make_room(most, 0)

    def _make_room(self, nodes: int, arcs: int) -> None:
        """Prune; lengthen what that leaves more than half full."""
        utterance, record = self._utterance, self._record
        counts = utterance.counts
        frontier = utterance.frontier[: counts[k.FRONTIER]]
        if len(frontier):
            none = np.zeros(len(frontier), np.float32)  # the least it can come to
            counts[k.TRACE], record.counts[0] = recording.keep(
                frontier, none, utterance.trace, record
            )
        needed = 2 * (int(counts[k.TRACE]) + nodes)
        if needed > len(utterance.trace):
            self._utterance = utterance._replace(
                trace=k.longer(utterance.trace, needed)
            )
            self._fit_to_trace()
        needed = 2 * (int(record.counts[0]) + arcs)
        if needed > len(record.arcs):
            longer = k.longer(record.arcs, needed)
            self._record = self._record._replace(arcs=longer)

    def _fit_to_trace(self) -> None:
        """Make what is there for each node of the trace as long as it."""
        record, size = self._record, len(self._utterance.trace)
        if len(record.extra) < size:
            self._record = record = record._replace(
                extra=np.empty(size, np.float32),
                number=np.empty(size, np.int32),
                kept=np.empty(size, np.int32),
            )
        if self._boosted and len(record.boosts) < size:
            self._record = record._replace(boosts=k.longer(record.boosts, size))
