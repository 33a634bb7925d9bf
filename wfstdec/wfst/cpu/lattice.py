"""The CPU search that records a lattice: `CpuSearch`, with arcs noted beside the trace.

What it notes is pruned whenever arrays are full, and they grow only where that frees
less than half: they stay a small multiple of the lattice itself.
"""

from __future__ import annotations

import copy

import numpy as np

from wfstdec.graph.arcs import NO_ARCS
from wfstdec.wfst import noted
from wfstdec.wfst.cpu import recording
from wfstdec.wfst.cpu import records as k
from wfstdec.wfst.cpu.added_records import AddedArrays
from wfstdec.wfst.cpu.backend import CpuBackend, CpuSearch, SearchInputs
from wfstdec.wfst.ends import best_end
from wfstdec.wfst.history import History
from wfstdec.wfst.options import WfstOptions
from wfstdec.wfst.path import PathSoFar
from wfstdec.wfst.recorded import Recorded, RecordedArcs

FIRST_ARCS = 1 << 16
"""Room for so many arcs at first."""
_FIRST = np.zeros(1, np.uint32)
"""The graph's start state."""


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
        self._fit_to_trace()

    def record(self) -> Recorded:
        """End the utterance; the search cannot be used afterwards."""
        self._begin()
        channel, record = self._channel, self._record
        graph, scales, *_ = self._inputs
        frontier = channel.frontier[: channel.counts[k.FRONTIER]]
        survived, at_end = bool(channel.counts[k.DIED] < 0), self._boosts_at_end()
        _, best, is_final = best_end(
            frontier, graph.final_cost, scales.lm_scale, survived, at_end
        )
        excess, rest = noted.ends(
            frontier, at_end, graph.final_cost, scales.lm_scale, best, is_final
        )
        count, taken = channel.counts[k.TRACE], channel.trace["arc"]
        noted.spread(frontier, excess, count, record)
        arcs, nodes, frames = recording.gather(
            *(*self._inputs, self._added, channel.trace, count, record)
        )
        ends = np.flatnonzero((excess <= record.limit) & (excess < np.inf))
        at = record.number[frontier["node"][ends]]
        final_excess = np.full(len(nodes), np.inf, np.float32)
        final_boost = np.zeros(len(nodes), np.float32)
        final_excess[at], final_boost[at] = excess[ends], rest[ends]
        graph_state = np.concatenate(
            [_FIRST, noted.nextstates(graph.arcs, self._added_arcs, taken[nodes[1:]])]
        )
        boosts = record.boosts[nodes] if self._boosted else np.zeros_like(nodes)
        recorded = Recorded(
            best=self.finish(),
            frame=frames,
            graph_state=graph_state,
            boost_state=boosts,
            final_excess=final_excess,
            final_boost_cost=final_boost,
            arcs=RecordedArcs(*arcs),
            added=self._added_arcs,
        )
        self._backend.give_record(record)
        return recorded

    @property
    def _added_arcs(self) -> np.ndarray:
        """The arcs of the overlay, ARC [A']."""
        return NO_ARCS if self._added is None else self._added.arcs

    def look(self) -> PathSoFar:
        """How far the search has come; it goes on as if nobody had looked."""
        self._begin()
        channel, counts = self._channel, self._channel.counts
        other = copy.copy(self)
        other._channel = channel._replace(
            frontier=channel.frontier[: counts[k.FRONTIER]].copy(),
            trace=channel.trace[: counts[k.TRACE]].copy(),
            counts=counts.copy(),
        )
        other._history = History(self._backend.rule)
        return CpuSearch.look(other)

    def _grow(self, status: int, work: k.Work, frames_left: int) -> k.Work:
        """Enlarge what a kernel found too small; returns the work to go on with."""
        if status == k.GROW_NOTED:
            self._make_room(0, len(work.candidates) + len(work.side))
            return work
        return super()._grow(status, work, frames_left)

    def _make_room_in_trace(self, most: int, frames_left: int) -> None:
        self._make_room(most, 0)

    def _make_room(self, nodes: int, arcs: int) -> None:
        """Prune; lengthen what that leaves more than half full."""
        channel, record = self._channel, self._record
        counts, frontier = channel.counts, channel.frontier
        none = np.zeros(counts[k.FRONTIER], np.float32)
        counts[k.TRACE], record.counts[0] = recording.prune(
            *(frontier[: len(none)], none, channel.trace, counts[k.TRACE], record),
        )
        needed = 2 * (int(counts[k.TRACE]) + nodes)
        if needed > len(channel.trace):
            self._channel = channel._replace(trace=_longer(channel.trace, needed))
            self._fit_to_trace()
        needed = 2 * (int(record.counts[0]) + arcs)
        if needed > len(record.arcs):
            longer = _longer(record.arcs, needed)
            self._record = self._record._replace(arcs=longer)

    def _fit_to_trace(self) -> None:
        """Make what is there for each node of the trace as long as it."""
        record, size = self._record, len(self._channel.trace)
        if len(record.extra) < size:
            self._record = record = record._replace(
                extra=np.empty(size, np.float32), number=np.empty(size, np.int32)
            )
        if self._boosted and len(record.boosts) < size:
            self._record = record._replace(boosts=_longer(record.boosts, size))


def _longer(array: np.ndarray, size: int) -> np.ndarray:
    longer = np.empty(size, array.dtype)
    longer[: len(array)] = array
    return longer
