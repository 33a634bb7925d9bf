"""Sessions on a device: each has its buffers there, and launches are joint.

    session = DeviceSession(device_graph, options, boosts)
    advance_together([session, other], [chunk, another])    # one launch for all of them
    session.look(), session.finish()

What was said is folded on the host, whenever somebody looks and before a trace is full,
so that a session takes no more memory the longer it lasts.
"""

from __future__ import annotations

import numpy as np

from wfstdec.boost.compiled import CompiledBoosts
from wfstdec.boost.kernels import instalment_size
from wfstdec.boost.phrases import nothing_said
from wfstdec.gpu.batch import Session, advance_together
from wfstdec.gpu.logprobs import Chunk
from wfstdec.gpu.records import NONE
from wfstdec.search.paths.label_path import BestPath
from wfstdec.search.paths.so_far import PathSoFar
from wfstdec.search.paths.traceback import History
from wfstdec.wfst.final import best_end, best_so_far
from wfstdec.wfst.gpu.batch import RECORDS, DeviceBatch
from wfstdec.wfst.gpu.device_graph import DeviceGraph
from wfstdec.wfst.options import WfstOptions

_NO_ARCS = np.zeros(0, np.int64), np.zeros(0, np.float32)


class DeviceSession(DeviceBatch, Session):
    """Search of an utterance that comes in chunks."""

    def __init__(
        self, device_graph: DeviceGraph, options: WfstOptions, boosts: CompiledBoosts
    ) -> None:
        super().__init__(device_graph, options, [boosts])
        self._newest = dict(zip(RECORDS, self._buffers, strict=True))
        self._history = History(self._added.rule(0))
        self._lm_scale = np.float32(options.lm_scale)
        phrases = nothing_said() if boosts.phrases is None else boosts.phrases
        self._refund, self._boosted = phrases.automaton.final_cost, bool(boosts)
        self._instalment = instalment_size(options.beam)

    def advance(self, chunk: Chunk) -> None:  # type: ignore[override]
        """Pass the search through a chunk, [T, V]."""
        advance_together([self], [chunk])

    def look(self) -> PathSoFar:
        """How far the search has come; it goes on as if nobody had looked."""
        frontier = self.fold()
        one, history = self.utterances[0], self._history
        at, cost, ended = best_so_far(
            frontier,
            self._device_graph.graph.final_cost,
            self._lm_scale,
            bool(one["died"] == NONE),
            self._boosts_at_end(frontier),
        )
        return PathSoFar(
            settled=history.settled,
            said_since=lambda *since: history.read(at, *_NO_ARCS, since),
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
        # Memory first: whoever waits for it need not wait until the path is read.
        self._share.close()
        self._buffers, self._newest = [], {}
        return BestPath(
            said=self._history.read(at, *_NO_ARCS),
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
        """Arrays of boosts that `best_end` takes."""
        if not self._boosted:
            return None
        return frontier["boost"], self._refund, self._instalment
