"""The CPU search that records a lattice: `CpuSearch`, with arcs noted beside the trace.

What it notes is pruned whenever arrays are full, and they grow only where that frees
less than half: they stay a small multiple of the lattice itself.
"""

from __future__ import annotations

import copy

import numpy as np

from wfstdec.wfst import noted
from wfstdec.wfst.cpu import records as k
from wfstdec.wfst.cpu import recording
from wfstdec.wfst.cpu.backend import CpuBackend, CpuSearch
from wfstdec.wfst.ends import best_end
from wfstdec.wfst.history import History
from wfstdec.wfst.options import WfstOptions
from wfstdec.wfst.path import PathSoFar
from wfstdec.wfst.recorded import Recorded

FIRST_ARCS = 1 << 16
"""Room for so many arcs at first."""


class RecordingSearch(CpuSearch):
    """The search of one utterance: `advance` any number of times, then `record`."""

    def __init__(
        self,
        backend: CpuBackend,
        inputs: k.SearchInputs,
        options: WfstOptions,
        first_arcs: int = FIRST_ARCS,
    ) -> None:
        super().__init__(backend, inputs)
        nodes = len(self._channel.trace) if self._boosted else 0
        self._record = k.Record(
            arcs=np.empty(first_arcs, k.NOTED),
            boosts=np.empty(nodes, np.uint32),
            counts=np.zeros(2, np.int64),
            limit=np.float32(options.beam_of_lattice),
        )

    def record(self) -> Recorded:
        """End the utterance; the search cannot be used afterwards."""
        self._begin()
        channel, record = self._channel, self._record
        assert record is not None
        graph, scales, words, phrases = self._inputs
        frontier = channel.frontier[: channel.counts[k.FRONTIER]]
        survived, at_end = bool(channel.counts[k.DIED] < 0), self._boosts_at_end()
        _, best, is_final = best_end(
            frontier, graph.final_cost, scales.lm_scale, survived, at_end
        )
        excess, rest = noted.ends(
            frontier, at_end, graph.final_cost, scales.lm_scale, best, is_final
        )
        self._prune(excess)
        nodes, count = int(channel.counts[k.TRACE]), int(record.counts[0])
        kept = excess <= record.limit
        final_excess = np.full(nodes, np.inf, np.float32)
        final_boost = np.zeros(nodes, np.float32)
        final_excess[frontier["node"][kept]] = excess[kept]
        final_boost[frontier["node"][kept]] = rest[kept]
        arcs, boosts = record.arcs[:count].copy(), record.boosts[:nodes].copy()
        taken = channel.trace["arc"][:nodes]
        began = taken == k.NONE
        graph_state = graph.arcs["nextstate"][np.where(began, 0, taken)]
        return Recorded(
            best=self.finish(),
            frame=noted.frames_of(graph.arcs, arcs, nodes),
            graph_state=np.where(began, np.uint32(0), graph_state),
            boost_state=boosts if self._boosted else np.zeros(nodes, np.uint32),
            final_excess=final_excess,
            final_boost_cost=final_boost,
            state=arcs["state"].astype(np.int64),
            nextstate=arcs["nextstate"].astype(np.int64),
            arc=arcs["arc"],
            excess=arcs["excess"],
            acoustic_cost=arcs["acoustic"],
            boost_cost=recording.boost_costs(
                graph, scales, words, phrases, arcs, boosts
            ),
        )

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

    def _prune(self, end_excess: np.ndarray) -> None:
        """Drop what cannot be part of the lattice; see `noted.prune`."""
        channel, record = self._channel, self._record
        assert record is not None
        channel.counts[k.TRACE], record.counts[0] = noted.prune(
            *(channel.frontier[: channel.counts[k.FRONTIER]], end_excess),
            *(channel.trace, channel.counts[k.TRACE], record.arcs, record.counts[0]),
            *(record.boosts, record.limit),
        )

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
        self._prune(np.zeros(self._channel.counts[k.FRONTIER], np.float32))
        channel, record = self._channel, self._record
        assert record is not None
        needed = 2 * (int(channel.counts[k.TRACE]) + nodes)
        if needed > len(channel.trace):
            self._channel = channel._replace(trace=_longer(channel.trace, needed))
        if self._boosted and len(self._channel.trace) > len(record.boosts):
            boosts = _longer(record.boosts, len(self._channel.trace))
            record = record._replace(boosts=boosts)
        needed = 2 * (int(record.counts[0]) + arcs)
        if needed > len(record.arcs):
            record = record._replace(arcs=_longer(record.arcs, needed))
        self._record = record


def _longer(array: np.ndarray, size: int) -> np.ndarray:
    longer = np.empty(size, array.dtype)
    longer[: len(array)] = array
    return longer
