"""Batches of the WFST search on a device.

    batch = DeviceBatch(device_graph, options, boosts)    # one CompiledBoosts each
    batch.advance(chunks)                                 # [T, V] per utterance
    batch.finish()                                        # a BestPath per utterance

`gpu/batch.py` launches kernels, enlarges arrays, and reports bad numbers.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from wfstdec.boost.compiled import CompiledBoosts
from wfstdec.boost.phrases import PhraseBoosts, initial_states
from wfstdec.gpu.batch import FEWER, Batch, BatchLayout, Growth
from wfstdec.gpu.boosts import BatchBoosts
from wfstdec.gpu.device import BlockShape, Grid, shape_for
from wfstdec.gpu.records import NONE
from wfstdec.graph.overlay import Overlay
from wfstdec.search.paths.tokens import BestPath, PathTokens
from wfstdec.wfst.gpu import layout as d
from wfstdec.wfst.gpu.device_graph import BatchOverlays, DeviceGraph
from wfstdec.wfst.gpu.layout import CANDIDATES_PER_ENTRY, NARROWER, trace_nodes
from wfstdec.wfst.options import SearchParams, WfstOptions, search_params

RECORDS = {"frontier": d.ENTRY, "trace": d.NODE, "backup": d.ENTRY}
"""Arrays of an utterance; `backup` only for utterances in chunks."""
LAYOUT = BatchLayout(
    utterance=d.UTTERANCE,
    arrays=RECORDS | {"links": d.LINK},  # only for lattices
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
        super().__init__(
            device,
            LAYOUT,
            pool,
            task=task,
            variant=variant,
            num_utterances=len(boosts),
            advice=f"{NARROWER}, {FEWER}",
        )
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

    def finish(self) -> list[BestPath]:
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
        self._share.close()
        self._buffers = []
        return self._paths(tokens)

    def _read_tokens(self, which: np.ndarray, capacity: np.ndarray) -> list[PathTokens]:
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

    def _paths(self, tokens: list[PathTokens]) -> list[BestPath]:
        """Paths, with the costs and frames of their records."""
        found = self.utterances
        final, died = found["reached_final"] != 0, found["died"].astype(np.int64)
        final_cost = np.zeros(len(found))
        ends = found["end_state"][final]  # others may be within an OOV word
        final_cost[final] = self._device_graph.graph.final_cost[ends]
        columns = (
            final_cost,
            found["base"] + found["end_cost"].astype(np.float64),
            final,
            found["frames"],
            np.where(died == NONE, -1, died),
        )
        lists = (column.tolist() for column in columns)
        return list(map(BestPath, tokens, *lists))
