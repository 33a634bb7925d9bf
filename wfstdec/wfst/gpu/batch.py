"""Batches of the WFST search on a device.

    batch = DeviceBatch(device_graph, options, boosts)    # one CompiledBoosts each
    batch.advance(chunks)                                 # [T, V] per utterance
    batch.finish()                                        # a Path per utterance

`gpu/batch.py` launches kernels, enlarges arrays, and reports bad numbers.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import numpy as np

from wfstdec.boost.compiled import CompiledBoosts
from wfstdec.boost.kernels import max_credit_per_arc
from wfstdec.boost.phrases import PhraseBoosts, initial_states
from wfstdec.gpu.batch import Batch, BatchLayout, Growth, Session
from wfstdec.gpu.boosts import BatchBoosts
from wfstdec.gpu.device import BlockShape, Grid, shape_for
from wfstdec.gpu.records import NONE
from wfstdec.graph.overlay import Overlay
from wfstdec.search.paths.tokens import PartialPath, Path, PathTokens
from wfstdec.search.paths.traceback import History
from wfstdec.wfst.final import best_end, best_so_far
from wfstdec.wfst.gpu import layout as d
from wfstdec.wfst.gpu.device_graph import BatchOverlays, DeviceGraph
from wfstdec.wfst.gpu.layout import CANDIDATES_PER_ENTRY, trace_nodes
from wfstdec.wfst.options import SearchParams, WfstOptions, search_params

LAYOUT = BatchLayout(
    utterance=d.UTTERANCE,
    # `backup` only for utterances in chunks, `links` only for lattices
    arrays={"frontier": d.ENTRY, "trace": d.NODE, "backup": d.ENTRY, "links": d.LINK},
    kernel="search_chunk",
    phases=d.PHASES,
    counts=d.COUNTS,
    grow_scratch=d.GROW_SCRATCH,
    growths={
        d.GROW_FRONTIER: Growth("frontier", lambda old, entries: 2 * entries),
        d.GROW_TRACE: Growth("trace", lambda old, entries: 2 * (old + entries)),
        d.GROW_LINKS: Growth(
            "links", lambda old, entries: 2 * (old + CANDIDATES_PER_ENTRY * entries)
        ),
    },
)
"""The search's batches."""
_STEPS_PER_FRAME = 2
"""Initial capacity for the arcs of a path, per frame."""


def _stepping(
    boosts: CompiledBoosts, overlay: Overlay | None, scales: SearchParams
) -> PhraseBoosts | None:
    """Phrases of an utterance; empty ones if credit is deferred without phrases."""
    top_bonus = boosts.words.top_bonus
    if overlay is not None:
        top_bonus = top_bonus + overlay.top_bonus
    if boosts.phrases is None and top_bonus > scales.instalment:
        return initial_states()
    return boosts.phrases


def boosts_at_end(
    boosts: CompiledBoosts, options: WfstOptions, frontier: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.float32] | None:
    """Boosts for `best_end`."""
    if not boosts:
        return None
    phrases = initial_states() if boosts.phrases is None else boosts.phrases
    size = max_credit_per_arc(options.beam)
    return frontier["boost"], phrases.automaton.final_cost, size


class DeviceBatch(Batch):
    """Utterances side by side: `advance` any number of times, then `finish`.

    `lengths`: number of frames of each; None if they arrive in chunks.
    """

    def __init__(
        self,
        device_graph: DeviceGraph,
        options: WfstOptions,
        boosts: Sequence[CompiledBoosts],
        lengths: Sequence[int] | None = None,
    ) -> None:
        device, pool = device_graph.device, device_graph.scratch
        scales = search_params(options, any(bool(one.words) for one in boosts))
        oov = BatchOverlays(device_graph, boosts)
        stepping = [
            _stepping(one, overlay, scales)
            for one, overlay in zip(boosts, oov.overlays, strict=True)
        ]
        variant = d.PLAIN._replace(
            phrases=any(one is not None for one in stepping),
            min_active=bool(scales.min_active > 0),
            oov=oov.any,
        )
        task = d.task_of(scales, device_graph.graph.tokens)
        device_graph.fill_in(task)
        super().__init__(LAYOUT, pool, task, variant, len(boosts))
        self._device_graph, self._oov = device_graph, oov
        self.utterances["overlay"] = oov.records
        self._boosts = BatchBoosts(device, self._share, device_graph.phrases)
        frames: Sequence[int | None] = lengths or [None] * len(boosts)
        with device.on_stream(None):
            nodes = [trace_nodes(pool.entries, n) for n in frames]
            self._allocate_first(pool.entries, nodes, in_chunks=lengths is None)
            for i, one in enumerate(boosts):
                if one.words:
                    self.utterances["words"][i] = self._boosts.words(one.words)[0]
                if (phrases := stepping[i]) is not None:
                    self.utterances["phrases"][i] = self._boosts.phrases(phrases)
            # The next launch may be on another stream, as may the last use of
            # this memory.
            device.wait()

    def _take_shape(self, shape: BlockShape) -> None:
        self._task["shared_slots"] = shape.shared_bytes // d.SLOT_BYTES

    def finish(self) -> list[Path]:
        """End all utterances; the batch cannot be used afterwards."""
        if len(self.utterances) == 0:
            return []
        with self._device.on_stream(self._stream):
            self._begin()
            capacity = self.utterances["frames"].astype(np.int64)
            capacity = _STEPS_PER_FRAME * capacity + 16
            tokens = self._read_tokens(np.arange(len(self.utterances)), capacity)
            length = self.utterances["path_length"].astype(np.int64)
            longer = np.flatnonzero(length > capacity)
            for i, one in zip(
                longer, self._read_tokens(longer, length[longer]), strict=True
            ):
                tokens[i] = one
        self._release()
        return self._paths(tokens)

    def _read_tokens(
        self, which: np.ndarray, capacity: np.ndarray
    ) -> list[tuple[PathTokens, float, float]]:
        """Read the paths of some utterances; empty where `capacity` is too small."""
        if len(which) == 0:
            return []
        steps, first = self._find_paths(which, capacity)
        count = self.utterances["path_length"][which].astype(np.int64)
        return self._oov.read(which, steps, first, count * (count <= capacity))

    def _find_paths(
        self, which: np.ndarray, capacity: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        """Steps of all paths, the last of each first, and where each begins."""
        starts = np.concatenate([[0], np.cumsum(capacity)])
        buffer = self._device.empty(int(starts[-1]), d.STEP)
        first = self._device.address(buffer)
        self.utterances["path"][which] = first + d.STEP.itemsize * starts[:-1]
        self.utterances["path_capacity"][which] = capacity
        threads = shape_for(self._device.shapes, len(which)).threads
        grid = Grid("best_paths", len(which), 0, self._variant.macros, threads)
        self._launch(grid, which)
        return self._device.download(buffer, d.STEP), starts[:-1]

    def _paths(self, read: list[tuple[PathTokens, float, float]]) -> list[Path]:
        """Paths, with the costs and frames of their records."""
        found = self.utterances
        final, died = found["reached_final"] != 0, found["died"].astype(np.int64)
        tokens, graph_cost, acoustic_cost = zip(*read, strict=True)
        final_cost = np.zeros(len(found))
        ends = found["end_state"][final]  # others may be within an OOV word
        final_cost[final] = self._device_graph.graph.final_cost[ends]
        columns = (
            np.array(graph_cost) + final_cost,
            np.array(acoustic_cost),
            found["base"] + found["end_cost"].astype(np.float64),
            final,
            found["frames"],
            np.where(died == NONE, -1, died),
        )
        lists = (column.tolist() for column in columns)
        return list(map(Path, tokens, *lists))


class DeviceSession(DeviceBatch, Session):
    """Search of an utterance that arrives in chunks."""

    def __init__(
        self, device_graph: DeviceGraph, options: WfstOptions, boosts: CompiledBoosts
    ) -> None:
        super().__init__(device_graph, options, [boosts])
        self._history = History(self._oov.rule(0))
        self._lm_scale = np.float32(options.lm_scale)
        self._at_end = partial(boosts_at_end, boosts, options)

    def look(self, since: tuple[int, int] = (0, 0)) -> PartialPath:
        """The best path so far but its first tokens and words; it can continue."""
        frontier = self.fold()
        one = self.utterances[0]
        at, cost, ended = best_so_far(
            frontier,
            self._device_graph.graph.final_cost,
            self._lm_scale,
            bool(one["died"] == NONE),
            self._at_end(frontier),
        )
        return self._history.look(at, since, int(one["frames"]), ended - cost)

    def finish(self) -> Path:  # type: ignore[override]
        """End the utterance; the session cannot be used afterwards."""
        frontier, final_costs = self.fold(), self._device_graph.graph.final_cost
        one = self.utterances[0]
        survived = bool(one["died"] == NONE)
        at, cost, final = best_end(
            frontier, final_costs, self._lm_scale, survived, self._at_end(frontier)
        )
        # Memory first: others that wait for it need not wait for the path.
        self._release()
        tokens, graph_cost, acoustic_cost = self._history.read(at)
        if final:
            graph_cost += float(final_costs[frontier[at]["state"]])
        return Path(
            tokens,
            graph_cost,
            acoustic_cost,
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
            self._write_back(frontier, trace[:count])
        return frontier
