"""Sessions on a device: each has its buffers there, and launches are joint.

    session = DeviceSession(device_graph, options, boosts)
    advance_together([session, other], [chunk, another])    # one launch
    session.look(), session.finish()

The host folds the trace for each partial result and before it is full, so that memory
does not grow with the length of a session.
"""

from __future__ import annotations

import numpy as np

from wfstdec.boost.compiled import CompiledBoosts
from wfstdec.boost.kernels import max_credit_per_arc
from wfstdec.boost.phrases import initial_states
from wfstdec.gpu.batch import Session, advance_together
from wfstdec.gpu.logprobs import Chunk
from wfstdec.gpu.records import NONE
from wfstdec.search.paths.tokens import BestPath, PartialPath
from wfstdec.search.paths.traceback import History
from wfstdec.wfst.final import best_end, best_so_far
from wfstdec.wfst.gpu.batch import RECORDS, DeviceBatch
from wfstdec.wfst.gpu.device_graph import DeviceGraph
from wfstdec.wfst.options import WfstOptions

_NO_ARCS = np.zeros(0, np.int64), np.zeros(0, np.float32)


class DeviceSession(DeviceBatch, Session):
    """Search of an utterance that arrives in chunks."""

    def __init__(
        self, device_graph: DeviceGraph, options: WfstOptions, boosts: CompiledBoosts
    ) -> None:
        super().__init__(device_graph, options, [boosts])
        self._newest = dict(zip(RECORDS, self._buffers, strict=True))
        self._history = History(self._oov.rule(0))
        self._lm_scale = np.float32(options.lm_scale)
        phrases = initial_states() if boosts.phrases is None else boosts.phrases
        self._refund, self._boosted = phrases.automaton.final_cost, bool(boosts)
        self._instalment = max_credit_per_arc(options.beam)

    def advance(self, chunk: Chunk) -> None:  # type: ignore[override]
        """Search a chunk, [T, V]."""
        advance_together([self], [chunk])

    def look(self) -> PartialPath:
        """The best path so far; the search can continue."""
        frontier = self.fold()
        one, history = self.utterances[0], self._history
        at, cost, ended = best_so_far(
            frontier,
            self._device_graph.graph.final_cost,
            self._lm_scale,
            bool(one["died"] == NONE),
            self._boosts_at_end(frontier),
        )
        return PartialPath(
            settled=history.settled,
            unsettled=lambda *since: history.read(at, *_NO_ARCS, since),
            num_frames=int(one["frames"]),
            final_cost=ended - cost,
        )

    def finish(self) -> BestPath:  # type: ignore[override]
        """End the utterance; the session cannot be used afterwards."""
        frontier, final_costs = self.fold(), self._device_graph.graph.final_cost
        one = self.utterances[0]
        survived = bool(one["died"] == NONE)
        boosts = self._boosts_at_end(frontier)
        at, cost, final = best_end(
            frontier, final_costs, self._lm_scale, survived, boosts
        )
        # Memory first: others that wait for it need not wait for the path.
        self._share.close()
        self._buffers, self._newest = [], {}
        return BestPath(
            tokens=self._history.read(at, *_NO_ARCS),
            final_cost=float(final_costs[frontier[at]["state"]]) if final else 0.0,
            search_cost=float(one["base"]) + float(cost),
            reached_final=final,
            num_frames=int(one["frames"]),
            died_at_frame=-1 if survived else int(one["died"]),
        )

    def fold(self) -> np.ndarray:
        """Fold the trace on the host; the frontier, ENTRY [F]."""
        with self._device.on_stream(self._stream):
            self._begin()
            one = self.utterances[0]
            frontier = self._download("frontier", int(one["frontier_count"]))
            trace = self._download("trace", int(one["trace_count"]))
            count = self._history.fold(frontier, trace, len(trace))
            kept = trace[:count]
            self._device.write(self._newest["frontier"], frontier)
            self._device.write(self._newest["trace"], kept)
            self._device.wait()
            one["trace_count"] = count
        return frontier

    def _boosts_at_end(
        self, frontier: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray, np.float32] | None:
        """Boosts for `best_end`."""
        if not self._boosted:
            return None
        return frontier["boost"], self._refund, self._instalment
