"""Utterances side by side on a device: many frames of all of them in one launch.

    batch = DeviceBatch(device_graph, options, boosts)    # one CompiledBoosts each
    batch.advance(chunks)                                 # [T, V] per utterance
    batch.finish()                                        # a BestPath per utterance

A launch takes every utterance as far as arrays reach. One for which an array is too
small stops at its last good frame and says so; the host makes room and launches again
for those that stopped. So growing never changes a result, and nothing is dropped.

The first launch of a chunk also finds numbers that are no log-probs. Utterances that
come in chunks are then put back to where they were: frontiers are kept until the
chunks of all are known to be good, and no trace is compacted before.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from wfstdec.boost.compiled import CompiledBoosts
from wfstdec.boost.phrases import PhraseBoosts, nothing_said
from wfstdec.gpu.boosts import BatchBoosts
from wfstdec.gpu.device import Grid
from wfstdec.gpu.launch import launch
from wfstdec.gpu.logprobs import (
    Chunk,
    DeviceLogprobs,
    download_frame,
    logprob_records,
    stream_of,
    to_device,
    type_of,
)
from wfstdec.gpu.records import NONE
from wfstdec.graph.overlay import Overlay
from wfstdec.search.logprobs import bad_logprob
from wfstdec.search.paths.label_path import BestPath, PathTokens
from wfstdec.wfst.gpu import layout as d
from wfstdec.wfst.gpu.added import BatchOverlays
from wfstdec.wfst.gpu.device_graph import DeviceGraph
from wfstdec.wfst.gpu.memory import (
    CANDIDATES_PER_ENTRY,
    NARROWER,
    Scratch,
    trace_nodes,
)
from wfstdec.wfst.options import SearchParams, WfstOptions, search_params

RECORDS = {"frontier": d.ENTRY, "trace": d.NODE, "backup": d.ENTRY}
"""The arrays of an utterance, and what they hold; `backup` only where it comes in
chunks."""
_ITEMS = RECORDS | {"links": d.LINK}
"""The same, and what only batches that record lattices have."""
_STEPS_PER_FRAME = 2
"""Arcs of a path for which there is room at first; epsilon arcs may make more."""
_FEWER = "decode fewer utterances at a time"


def _stepping(
    boosts: CompiledBoosts, overlay: Overlay | None, scales: SearchParams
) -> PhraseBoosts | None:
    """The phrases of an utterance; where bonuses are owed there always are some."""
    top_bonus = boosts.words.top_bonus
    if overlay is not None:
        top_bonus = top_bonus + overlay.top_bonus
    if boosts.phrases is None and top_bonus > scales.instalment:
        return nothing_said()
    return boosts.phrases


class DeviceBatch:
    """Utterances side by side: `advance` any number of times, then `finish`.

    Args:
        device_graph: The graph on a device.
        options: Search options.
        boosts: Of each utterance.
        lengths: The frames of each, where that is known; None where they come in
            chunks.

    Attributes:
        utterances: UTTERANCE [B], as the last launch left them.
        phase_times: Cycles of each of `layout.PHASES`, sums over blocks: where
            `takes_times` is set.

    Raises:
        DeviceMemoryError: The device's memory does not suffice.
    """

    def __init__(
        self,
        device_graph: DeviceGraph,
        options: WfstOptions,
        boosts: Sequence[CompiledBoosts],
        lengths: Sequence[int] | None = None,
    ) -> None:
        self._device_graph, self._device = device_graph, device_graph.device
        scales = search_params(options, any(bool(one.words) for one in boosts))
        self._added = BatchOverlays(device_graph, boosts)
        stepping = [
            _stepping(one, overlay, scales)
            for one, overlay in zip(boosts, self._added.overlays, strict=True)
        ]
        self._variant = d.PLAIN._replace(
            phrases=any(one is not None for one in stepping),
            min_active=bool(scales.min_active > 0),
            added=self._added.any,
        )
        self.phase_times = np.zeros(len(d.PHASES), np.uint64)
        self._task = d.task_of(scales, device_graph.graph.tokens)
        self._task["shared_slots"] = self._device.shared_bytes // d.SLOT_BYTES
        device_graph.fill_in(self._task)
        owner = f"a batch of {len(boosts)} utterances"
        budget = self._device.budget
        self._share = budget.share(owner, f"{NARROWER}, {_FEWER}")
        self.utterances = np.zeros(len(boosts), d.UTTERANCE)
        self.utterances["died"] = self.utterances["logprobs"]["bad_frame"] = NONE
        self.utterances["overlay"] = self._added.records
        self._buffers: list[Any] = []  # frontiers and traces
        self._boosts = BatchBoosts(self._device, self._share, device_graph.phrases)
        self._stream: Any = None
        entries = device_graph.scratch.entries
        frames: Sequence[int | None] = lengths or [None] * len(boosts)
        with self._device.on_stream(None):
            self._allocate("frontier", [entries] * len(boosts))
            self._allocate("trace", [trace_nodes(entries, n) for n in frames])
            if lengths is None:
                self._allocate("backup", [entries] * len(boosts))
            for i, one in enumerate(boosts):
                if one.words:
                    self.utterances["words"][i] = self._boosts.words(one.words)[0]
                if (phrases := stepping[i]) is not None:
                    self.utterances["phrases"][i] = self._boosts.phrases(phrases)
            # The next launch may be on another stream, and so may be what used this
            # memory before.
            self._device.wait()

    def _allocate(self, name: str, counts: Sequence[int]) -> None:
        """Give every utterance a frontier or a trace, all in one buffer."""
        dtype, total = _ITEMS[name], sum(counts)
        self._share.take(total * dtype.itemsize)
        buffer = self._device.empty(total, dtype)
        self._buffers.append(buffer)
        starts = np.cumsum([0, *counts])[:-1] * dtype.itemsize
        self.utterances[name] = self._device.address(buffer) + starts
        if name != "backup":
            self.utterances[f"{name}_capacity"] = counts

    @property
    def takes_times(self) -> bool:
        """Tell whether launches take the times of phases."""
        return self._variant.times

    @takes_times.setter
    def takes_times(self, takes: bool) -> None:
        """Set it before `advance`."""
        self._variant = self._variant._replace(times=takes)

    @property
    def counts(self) -> dict[str, int]:
        """Work done so far, in sums over frames and utterances: `layout.COUNTS`."""
        return {name: int(self.utterances[name].sum()) for name in d.COUNTS}

    def advance(self, chunks: Sequence[Chunk]) -> None:
        """Pass every utterance through its next chunk, [T, V].

        Raises:
            DeviceMemoryError: The device's memory does not suffice; the batch cannot
                be used afterwards.
            LogprobError: NaN, +inf or an absurdly large number, in chunks on the
                device: those of the host are checked. No utterance has moved where
                they come in chunks; else the batch cannot be used afterwards.
        """
        assert len(chunks) == len(self.utterances), (len(chunks), len(self.utterances))
        self._stream = stream_of(chunks)
        with self._device.on_stream(self._stream):
            share = self._device.budget.share("the log-probs of a batch", _FEWER)
            placed = to_device(self._device, share, chunks)
            before = self.utterances.copy()
            self.utterances["logprobs"] = logprob_records(placed)
            self.utterances["chunk_frame"] = 0
            self._variant = self._variant._replace(logprob_type=type_of(placed))
            checked = all(isinstance(chunk, np.ndarray) for chunk in chunks)
            try:
                self._run(self._unfinished(checked), checked)
                self._refuse(placed, before)
            finally:
                share.close()

    def finish(self) -> list[BestPath]:
        """End all utterances; the batch cannot be used afterwards."""
        if len(self.utterances) == 0:
            return []
        with self._device.on_stream(self._stream):
            self._begin()
            capacity = self.utterances["frames"].astype(np.int64)
            capacity = _STEPS_PER_FRAME * capacity + 16
            said = self._said(np.arange(len(self.utterances)), capacity)
            length = self.utterances["path_length"].astype(np.int64)
            longer = np.flatnonzero(length > capacity)
            for i, one in zip(longer, self._said(longer, length[longer]), strict=True):
                said[i] = one
        self._share.close()
        self._buffers = []
        return self._paths(said)

    def _begin(self) -> None:
        """Begin those that never got a frame."""
        self.utterances["logprobs"]["num_frames"] = 0
        self.utterances["chunk_frame"] = 0
        self._run(self._unfinished())

    def _said(self, which: np.ndarray, capacity: np.ndarray) -> list[PathTokens]:
        """Read what some utterances say; nothing where `capacity` is too small."""
        if len(which) == 0:
            return []
        steps, first = self._find_paths(which, capacity)
        count = self.utterances["path_length"][which].astype(np.int64)
        return self._added.read(which, steps, first, count * (count <= capacity))

    def _find_paths(
        self, which: np.ndarray, capacity: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        """STEP of all paths, the last step of each first, and where each begins."""
        starts = np.concatenate([[0], np.cumsum(capacity)])
        buffer = self._device.empty(int(starts[-1]), d.STEP)
        first = self._device.address(buffer)
        self.utterances["path"][which] = first + d.STEP.itemsize * starts[:-1]
        self.utterances["path_capacity"][which] = capacity
        grid = Grid("best_paths", len(which), 0, self._variant.macros)
        self._launch(grid, which)
        return self._device.download(buffer, d.STEP), starts[:-1]

    def _paths(self, said: list[PathTokens]) -> list[BestPath]:
        """The paths that say so, with what the records know of them."""
        found = self.utterances
        final, died = found["reached_final"] != 0, found["died"].astype(np.int64)
        final_cost = np.zeros(len(found))
        ends = found["end_state"][final]  # others may be in a word that is added
        final_cost[final] = self._device_graph.graph.final_cost[ends]
        columns = (
            final_cost,
            found["base"] + found["end_cost"].astype(np.float64),
            final,
            found["frames"],
            np.where(died == NONE, -1, died),
        )
        lists = (column.tolist() for column in columns)
        return list(map(BestPath, said, *lists))

    # ------------------------------------------------------------------- launches
    def _unfinished(self, checked: bool = True) -> np.ndarray:
        """Utterances with frames to do, and those not yet begun; the longest first.

        Where nothing survived frames are only looked at for numbers that are no
        log-probs, and not where they are known to be `checked`.
        """
        frames = self.utterances["logprobs"]["num_frames"].astype(np.int64)
        survived = self.utterances["died"] == NONE
        todo = (frames > 0) & (survived | (not checked))
        todo |= self.utterances["frontier_count"] == 0
        queue = np.flatnonzero(todo)
        return queue[np.argsort(-frames[queue], kind="stable")]

    def _run(self, queue: np.ndarray, checked: bool = True) -> None:
        """Launch until every utterance has come to the end of its chunk.

        Or until one has a number that is no log-prob: the first launch looks at all
        frames, unless they are known to be `checked`.
        """
        if len(queue) == 0:
            return
        pool = self._device_graph.scratch
        scratch = pool.take(min(len(queue), self._device.num_blocks))
        self._task["checked"] = checked
        try:
            while len(queue):
                queue = self._launch_search(queue, scratch)
                # Every frame was looked at in the first launch, whatever the search got
                # to.
                if (self.utterances["logprobs"]["bad_frame"] != NONE).any():
                    break
                self._task["checked"] = True
                status = self.utterances["status"][queue]
                self._make_room(queue, scratch.entries)
                if (status == d.GROW_SCRATCH).any():
                    scratch = pool.grow(scratch, len(queue))
        finally:
            pool.give(scratch)

    def _launch_search(self, queue: np.ndarray, scratch: Scratch) -> np.ndarray:
        """Launch once; the utterances that did not get to the end of their chunks."""
        scratch.fill_in(self._task)
        blocks, shared = min(len(queue), scratch.blocks), self._device.shared_bytes
        grid = Grid("search_chunk", blocks, shared, self._variant.macros)
        self._launch(grid, queue)
        return queue[self.utterances["status"][queue] != d.OK]

    def _refuse(self, chunks: Sequence[DeviceLogprobs], before: np.ndarray) -> None:
        """Put everything back and raise, where a number is no log-prob."""
        bad_frame = self.utterances["logprobs"]["bad_frame"]
        bad = np.flatnonzero(bad_frame != NONE)
        if len(bad) == 0:
            return
        i, frame = int(bad[0]), int(bad_frame[bad[0]])
        moved = self.utterances["logprobs"]["num_frames"] > 0
        self.utterances, device = before, self._device
        for one in before[moved & (before["backup"] != 0)]:
            num_bytes = int(one["frontier_count"]) * d.ENTRY.itemsize
            device.copy(int(one["frontier"]), int(one["backup"]), num_bytes)
        num_tokens = len(self._device_graph.graph.tokens)
        row = download_frame(device, chunks[i], frame, num_tokens)
        raise bad_logprob(i, frame, row)

    def _launch(self, grid: Grid, queue: np.ndarray) -> None:
        """Run a kernel over some utterances; their records come back."""
        arrays = {
            "utterances": self.utterances,
            "queue": queue.astype(np.uint32),
            "num_drawn": np.zeros(1, np.uint32),
            "phase_times": np.zeros(0, np.uint64),
        }
        if self.takes_times:
            arrays["phase_times"] = np.zeros(grid.num_blocks * len(d.PHASES), np.uint64)
        self._task["queue_length"] = len(queue)
        back = launch(self._device, grid, self._task, arrays)
        self.utterances = back["utterances"]
        if self.takes_times:
            times = back["phase_times"].reshape(-1, len(d.PHASES))
            self.phase_times += times.sum(axis=0, dtype=np.uint64)

    # --------------------------------------------------------------------- memory
    def _make_room(self, stopped: np.ndarray, entries: int) -> None:
        """Lengthen the frontier or trace that was too small for an utterance.

        Args:
            stopped: The utterances that did not get to the end of their chunks.
            entries: What a frontier could have in the launch.
        """
        for i in stopped:
            status = self.utterances["status"][i]
            if status == d.GROW_FRONTIER:
                self._lengthen("frontier", i, 2 * entries)
            elif status == d.GROW_TRACE:
                old = int(self.utterances["trace_capacity"][i])
                self._lengthen("trace", i, 2 * (old + entries))
            elif status == d.GROW_LINKS:
                old = int(self.utterances["links_capacity"][i])
                self._lengthen("links", i, 2 * (old + CANDIDATES_PER_ENTRY * entries))

    def _new_buffer(self, i: int, name: str, count: int) -> Any:
        """A buffer that utterance `i` keeps."""
        self._share.take(count * _ITEMS[name].itemsize)
        self._buffers.append(self._device.empty(count, _ITEMS[name]))
        return self._buffers[-1]

    def _download(self, name: str, count: int, i: int = 0) -> np.ndarray:
        """The first records of one of utterance `i`'s arrays."""
        dtype = _ITEMS[name]
        part = self._device.empty(count, dtype)
        target, address = self._device.address(part), int(self.utterances[name][i])
        self._device.copy(target, address, count * dtype.itemsize)
        return self._device.download(part, dtype).copy()

    def _lengthen(self, name: str, i: int, count: int) -> None:
        """Move an utterance's frontier or trace to a longer buffer of its own."""
        dtype, utterance = _ITEMS[name], self.utterances[i]
        old = int(utterance[f"{name}_capacity"])
        longer = self._device.address(self._new_buffer(i, name, count))
        self._device.copy(longer, int(utterance[name]), old * dtype.itemsize)
        utterance[name] = longer
        utterance[f"{name}_capacity"] = count
        if name == "frontier" and utterance["backup"]:
            backup = self._new_buffer(i, "backup", count)
            utterance["backup"] = self._device.address(backup)
