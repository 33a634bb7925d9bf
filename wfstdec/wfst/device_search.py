"""The search on a device, from the host's side: many utterances in one launch.

    backend = DeviceBackend(graph, device)
    batch = backend.start_batch(options, boosts)     # one UtteranceBoosts per utterance
    batch.advance(chunks)                            # float32 [T, V] per utterance
    batch.finish()                                   # a BestPath per utterance

A launch takes every utterance as far as arrays reach. One for which an array is too
small stops at its last good frame and says so; the host makes room and launches again
for those that stopped. So growing never changes a result, and nothing is dropped.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Any

import numpy as np

from wfstdec.boost.boosts import UtteranceBoosts
from wfstdec.boost.words import WordBoosts
from wfstdec.errors import BoostError
from wfstdec.graph import PackedGraph
from wfstdec.inputs import as_utterances
from wfstdec.wfst import device_layout as d
from wfstdec.wfst.cpu import scales_of
from wfstdec.wfst.device import Device, DeviceMemoryError, check_memory
from wfstdec.wfst.options import DecodeOptions
from wfstdec.wfst.path import BestPath

CANDIDATES_PER_ENTRY = 4
FRAMES_PER_TRACE = 64
"""Frames of full frontiers that a trace holds before it is compacted."""


class DeviceBackend:
    """A graph on a device, and a pool of scratch memory.

    Args:
        graph: The graph.
        device: Where it goes.
        first_capacity: Entries that arrays hold at first; they grow.
    """

    def __init__(
        self, graph: PackedGraph, device: Device, first_capacity: int = 8192
    ) -> None:
        self.graph, self.device = graph, device
        self.first_capacity = first_capacity
        self._lock = threading.Lock()
        self._works: list[Work] = []
        arrays = {
            "arcs": graph.arcs,
            "rows": d.rows_of(graph),
            "final_cost": graph.final_cost,
        }
        self._graph_bytes = sum(array.nbytes for array in arrays.values())
        check_memory(device, self._graph_bytes, f"a graph of {graph.num_arcs} arcs")
        self.arrays = {name: device.upload(array) for name, array in arrays.items()}

    def start(self, options: DecodeOptions, boosts: UtteranceBoosts) -> DeviceSearch:
        """Begin an utterance."""
        return DeviceSearch(self.start_batch(options, [boosts]))

    def memory_plan(self, num_utterances: int) -> dict[str, int]:
        """Bytes on the device before anything grows, by what they are for.

        Log-probs come on top: 4 bytes each.
        """
        blocks = min(num_utterances, self.device.num_blocks)
        frontier = self.first_capacity * d.ENTRY.itemsize
        trace = FRAMES_PER_TRACE * self.first_capacity * d.NODE.itemsize
        return {
            "graph": self._graph_bytes,
            "scratch": Work.bytes_of(blocks, self.first_capacity),
            "utterances": num_utterances * (frontier + trace),
        }

    def start_batch(
        self, options: DecodeOptions, boosts: Sequence[UtteranceBoosts]
    ) -> DeviceBatch:
        """Begin utterances that go side by side, each with its own boosts."""
        return DeviceBatch(self, options, boosts)

    def as_utterances(self, logprobs: Any, lengths: Any, num_tokens: int) -> list[Any]:
        """As `wfstdec.inputs.as_utterances`; arrays may stay on the device."""
        return as_utterances(logprobs, lengths, num_tokens)

    def decode_batch(
        self,
        utterances: Sequence[Any],
        options: DecodeOptions,
        boosts: Sequence[UtteranceBoosts],
    ) -> list[BestPath]:
        """Whole utterances, float32 [T, V], in as many parts as memory asks for.

        Raises:
            BackendError: Not even one utterance fits.
        """
        paths: dict[int, BestPath] = {}
        parts = [sorted(range(len(utterances)), key=lambda i: -len(utterances[i]))]
        while parts:
            part = parts.pop()
            try:
                batch = self.start_batch(options, [boosts[i] for i in part])
                batch.advance([utterances[i] for i in part])
                paths.update(zip(part, batch.finish(), strict=True))
            except DeviceMemoryError:
                if len(part) < 2:
                    raise
                half = len(part) // 2
                parts += [part[half:], part[:half]]
        return [paths[i] for i in range(len(utterances))]

    def take_work(self, blocks: int) -> Work:
        """Scratch for a launch of so many blocks, from the pool or new."""
        with self._lock:
            while self._works:
                work = self._works.pop()
                if work.blocks >= blocks:
                    return work
        return Work(self.device, blocks, self.first_capacity)

    def give_work(self, work: Work) -> None:
        """Put scratch back."""
        with self._lock:
            self._works.append(work)


class Work:
    """Scratch for every block of a launch; its content between launches is nothing."""

    def __init__(self, device: Device, blocks: int, entries: int) -> None:
        self.blocks, self.entries = blocks, entries
        self.candidates = CANDIDATES_PER_ENTRY * entries
        self.slots = _slots_for(entries)
        needed = self.bytes_of(blocks, entries)
        check_memory(device, needed, f"a search over {entries} entries at a time")
        self.arrays = {
            name: device.empty(blocks * length, dtype)
            for name, length, dtype in _scratch(entries)
        }

    @staticmethod
    def bytes_of(blocks: int, entries: int) -> int:
        """What such scratch takes."""
        per_block = (length * dtype.itemsize for _, length, dtype in _scratch(entries))
        return blocks * sum(per_block)


def _slots_for(entries: int) -> int:
    """A power of two, at least twice the entries."""
    return 1 << (2 * entries - 1).bit_length()


def _scratch(entries: int) -> list[tuple[str, int, np.dtype]]:
    """Name, length and type of the arrays of one block."""
    parts = (
        (d.OF_ENTRIES, entries),
        (d.OF_CANDIDATES, CANDIDATES_PER_ENTRY * entries),
        (d.OF_TABLE, _slots_for(entries)),
    )
    return [(name, n, dtype) for part, n in parts for name, dtype in part.items()]


class DeviceSearch:
    """One utterance: a batch of one."""

    def __init__(self, batch: DeviceBatch) -> None:
        self._batch = batch

    def advance(self, logprobs: Any) -> None:
        """Pass the search through a chunk, float32 [T, V], C order."""
        self._batch.advance([logprobs])

    def finish(self) -> BestPath:
        """End the utterance."""
        return self._batch.finish()[0]


class DeviceBatch:
    """Utterances side by side: `advance` any number of times, then `finish`."""

    def __init__(
        self,
        backend: DeviceBackend,
        options: DecodeOptions,
        boosts: Sequence[UtteranceBoosts],
    ) -> None:
        self._backend, self._device = backend, backend.device
        if any(one.phrases is not None for one in boosts):
            raise BoostError("phrases, which backend 'cuda' lacks; use backend='cpu'")
        scales = scales_of(options, any(map(bool, boosts)))
        self._task = d.task_of(scales, backend.graph.tokens.blank)
        for name, array in backend.arrays.items():
            self._task[name] = self._device.address(array)
        entries = backend.first_capacity
        self._bytes = backend.memory_plan(len(boosts))["utterances"]
        check_memory(self._device, self._bytes, self._name(len(boosts)))
        self.utterances = np.zeros(len(boosts), d.UTTERANCE)
        self.utterances["died"] = d.NONE
        self._frontiers, self._traces = [None] * len(boosts), [None] * len(boosts)
        self._boosts: dict[int, tuple[Any, Any]] = {}
        for i, one in enumerate(boosts):
            self._lengthen("frontier", self._frontiers, i, entries)
            self._lengthen("trace", self._traces, i, FRAMES_PER_TRACE * entries)
            self._upload_boosts(i, one.words)

    def advance(self, chunks: Sequence[Any]) -> None:
        """Pass every utterance through its next chunk, float32 [T, V].

        Raises:
            DeviceMemoryError: The device's memory does not suffice.
        """
        buffers = [self._device.logprobs(chunk) for chunk in chunks]
        for utterance, chunk, buffer in zip(
            self.utterances, chunks, buffers, strict=True
        ):
            utterance["logprobs"] = self._device.address(buffer)
            utterance["num_frames"], utterance["frame_stride"] = chunk.shape
            utterance["chunk_frame"] = 0
        self._run(self._waiting())

    def finish(self) -> list[BestPath]:
        """End all utterances; the batch cannot be used afterwards."""
        if len(self.utterances) == 0:
            return []
        self.utterances["num_frames"] = self.utterances["chunk_frame"] = 0
        self._run(self._waiting())  # those that not one frame came for
        self._find_paths()
        lengths = self.utterances["path_length"].astype(np.int64)
        starts = np.concatenate([[0], np.cumsum(lengths)])
        room = max(int(starts[-1]), 1)
        arcs = self._device.empty(room, np.dtype("u4"))
        acoustic = self._device.empty(room, np.dtype("f4"))
        for name, array in (("path_arcs", arcs), ("path_acoustic", acoustic)):
            first = self._device.address(array)
            self.utterances[name] = first + 4 * starts[:-1].astype(np.uint64)
        self._find_paths()
        all_arcs = self._device.download(arcs, np.dtype("u4")).astype(np.int64)
        all_acoustic = self._device.download(acoustic, np.dtype("f4"))
        return [
            self._path(utterance, all_arcs[a:b], all_acoustic[a:b].copy())
            for utterance, a, b in zip(
                self.utterances, starts[:-1], starts[1:], strict=True
            )
        ]

    def _path(
        self, utterance: np.void, arcs: np.ndarray, acoustic: np.ndarray
    ) -> BestPath:
        final = bool(utterance["reached_final"])
        died = int(utterance["died"])
        final_cost = self._backend.graph.final_cost[utterance["end_state"]]
        return BestPath(
            arcs=arcs,
            acoustic=acoustic,
            final_cost=float(final_cost) if final else 0.0,
            search_cost=float(utterance["base"]) + float(utterance["end_cost"]),
            reached_final=final,
            num_frames=int(utterance["frames"]),
            died_at_frame=-1 if died == d.NONE else died,
        )

    # ------------------------------------------------------------------- launches
    def _waiting(self) -> np.ndarray:
        """The utterances that have frames to do, or were never begun; longest first."""
        frames = self.utterances["num_frames"].astype(np.int64)
        todo = (frames > 0) & (self.utterances["died"] == d.NONE)
        todo |= self.utterances["frontier_count"] == 0
        waiting = np.flatnonzero(todo)
        return waiting[np.argsort(-frames[waiting], kind="stable")]

    def _run(self, waiting: np.ndarray) -> None:
        """Launch until every utterance has come to the end of its chunk."""
        if len(waiting) == 0:
            return
        work = self._backend.take_work(min(len(waiting), self._device.num_blocks))
        try:
            while len(waiting):
                blocks = min(len(waiting), work.blocks)
                self._launch("search_chunk", blocks, waiting, work)
                status = self.utterances["status"][waiting]
                waiting = waiting[status != d.OK]
                work = self._make_room(waiting, work)
        finally:
            self._backend.give_work(work)

    def _find_paths(self) -> None:
        order = np.arange(len(self.utterances))
        self._launch("best_paths", len(order), order, None)

    def _launch(
        self, kernel: str, blocks: int, order: np.ndarray, work: Work | None
    ) -> None:
        """Run a kernel over the utterances in `order`; their records come back."""
        device, task = self._device, self._task
        utterances = device.upload(self.utterances)
        queue = device.upload(order.astype(np.uint32))
        drawn = device.upload(np.zeros(1, np.uint32))
        task["utterances"] = device.address(utterances)
        task["order"], task["drawn"] = device.address(queue), device.address(drawn)
        task["num_utterances"] = len(order)
        if work is not None:
            for name, array in work.arrays.items():
                task[name] = device.address(array)
            task["entry_capacity"] = work.entries
            task["candidate_capacity"] = work.candidates
            task["table_size"] = work.slots
        device.launch(kernel, blocks, device.upload(task))
        self.utterances = device.download(utterances, d.UTTERANCE)

    # --------------------------------------------------------------------- memory
    def _make_room(self, stopped: np.ndarray, work: Work) -> Work:
        """Enlarge what the utterances that stopped found too small."""
        for i in stopped:
            status = self.utterances["status"][i]
            if status == d.GROW_FRONTIER:
                self._lengthen("frontier", self._frontiers, i, 2 * work.entries)
            elif status == d.GROW_TRACE:
                old = int(self.utterances["trace_capacity"][i])
                self._lengthen("trace", self._traces, i, 2 * (old + work.entries))
        if (self.utterances["status"][stopped] == d.GROW_WORK).any():
            return Work(self._device, work.blocks, 2 * work.entries)
        return work

    def _lengthen(self, name: str, buffers: list[Any], i: int, count: int) -> None:
        """Move an utterance's frontier or trace to a longer buffer."""
        dtype = {"frontier": d.ENTRY, "trace": d.NODE}[name]
        utterance = self.utterances[i]
        if buffers[i] is not None:
            more = count - int(utterance[f"{name}_capacity"])
            self._bytes += more * dtype.itemsize
            check_memory(self._device, self._bytes, self._name(len(self.utterances)))
        longer = self._device.empty(count, dtype)
        if buffers[i] is not None:
            self._device.copy(longer, buffers[i])
        buffers[i] = longer
        utterance[name] = self._device.address(longer)
        utterance[f"{name}_capacity"] = count

    def _upload_boosts(self, i: int, boosts: WordBoosts) -> None:
        """Each list once; no list at all leaves null pointers."""
        if not boosts:
            return
        if id(boosts) not in self._boosts:
            keys = self._device.upload(boosts.keys)
            self._boosts[id(boosts)] = keys, self._device.upload(boosts.bonuses)
        keys, bonuses = self._boosts[id(boosts)]
        self.utterances["boost_keys"][i] = self._device.address(keys)
        self.utterances["boost_bonuses"][i] = self._device.address(bonuses)
        self.utterances["boost_mask"][i] = len(boosts.keys) - 1

    @staticmethod
    def _name(count: int) -> str:
        return f"a batch of {count} utterances"
