"""Utterances side by side on a device: many frames of all of them in one launch.

    batch = DeviceBatch(backend, options, boosts)    # one CompiledBoosts per utterance
    batch.advance(chunks)                            # [T, V] per utterance
    batch.finish()                                   # a BestPath per utterance

A launch takes every utterance as far as arrays reach. One for which an array is too
small stops at its last good frame and says so; the host makes room and launches again
for those that stopped. So growing never changes a result, and nothing is dropped.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from wfstdec.boost.boosts import CompiledBoosts
from wfstdec.boost.words import WordBoosts
from wfstdec.gpu import memory
from wfstdec.gpu.device import Device, Rows
from wfstdec.gpu.memory import Share, Work
from wfstdec.wfst.gpu import layout as d
from wfstdec.wfst.options import WfstOptions
from wfstdec.wfst.path import BestPath
from wfstdec.wfst.scales import scales_of

if TYPE_CHECKING:
    from wfstdec.wfst.gpu.backend import DeviceBackend

RECORDS = {"frontier": d.ENTRY, "trace": d.NODE}
"""What an utterance has of its own, and of what."""
STEPS_PER_FRAME = 2
"""Arcs of a path for which there is room at first; epsilon arcs may make more."""


def upload(device: Device, array: np.ndarray) -> Any:
    """A buffer with a copy of an array."""
    buffer = device.empty(array.size, array.dtype)
    device.write(buffer, array)
    return buffer


def place(device: Device, share: Share, chunks: Sequence[Any]) -> list[Rows]:
    """Chunks where the kernels can read them; those of the host in one copy, done.

    Args:
        device: Where to.
        share: What the copy is taken from.
        chunks: `Rows`, or float32 [T, V] in C order.
    """
    arrays = [np.zeros(0) if isinstance(chunk, Rows) else chunk for chunk in chunks]
    flat = np.concatenate([np.zeros(0, np.float32), *(x.ravel() for x in arrays)])
    share.take(flat.nbytes)
    flat = flat.astype(np.float32, copy=False)
    buffer = upload(device, flat)
    if len(flat):
        device.wait()
    starts = np.cumsum([0, *(x.nbytes for x in arrays)])
    first = device.address(buffer)
    return [
        chunk
        if isinstance(chunk, Rows)
        else Rows(buffer, first + int(at), d.FLOAT32, chunk.shape[1], len(chunk))
        for chunk, at in zip(chunks, starts, strict=False)
    ]


class DeviceBatch:
    """Utterances side by side: `advance` any number of times, then `finish`.

    Args:
        backend: The graph on a device.
        options: Search options.
        boosts: Of each utterance.
        lengths: The frames of each, where that is known.

    Raises:
        DeviceMemoryError: The device's memory does not suffice.
    """

    def __init__(
        self,
        backend: DeviceBackend,
        options: WfstOptions,
        boosts: Sequence[CompiledBoosts],
        lengths: Sequence[int] | None = None,
    ) -> None:
        self._backend, self._device = backend, backend.device
        scales = scales_of(options, any(map(bool, boosts)))
        self._task = d.task_of(scales, backend.graph.tokens)
        self._task["shared_size"] = self._device.shared_slots
        for name, array in backend.arrays.items():
            self._task[name] = self._device.address(array)
        self._share = backend.budget.share(f"a batch of {len(boosts)} utterances")
        self.utterances = np.zeros(len(boosts), d.UTTERANCE)
        self.utterances["died"] = d.NONE
        self._buffers: list[Any] = []  # whatever records have the addresses of
        self._boosts: dict[int, Any] = {}
        self._last_chunks: Sequence[Any] = []
        entries = backend.pool.entries
        frames: Sequence[int | None] = lengths or [None] * len(boosts)
        with self._device.working([]):
            self._allocate("frontier", [entries] * len(boosts))
            self._allocate("trace", [memory.trace_nodes(entries, n) for n in frames])
            for i, one in enumerate(boosts):
                if one:
                    self._upload_boosts(i, one)
            self._device.wait()  # what had this memory before, on another stream

    def _allocate(self, name: str, counts: Sequence[int]) -> None:
        """Give every utterance a frontier or a trace, all in one buffer."""
        dtype, total = RECORDS[name], sum(counts)
        self._share.take(total * dtype.itemsize)
        buffer = self._device.empty(total, dtype)
        self._buffers.append(buffer)
        starts = np.cumsum([0, *counts])[:-1] * dtype.itemsize
        self.utterances[name] = self._device.address(buffer) + starts
        self.utterances[f"{name}_capacity"] = counts

    @property
    def counts(self) -> dict[str, int]:
        """Work done so far, in sums over frames and utterances: `d.COUNTS`."""
        return {name: int(self.utterances[name].sum()) for name in d.COUNTS}

    def advance(self, chunks: Sequence[Any]) -> None:
        """Pass every utterance through its next chunk, float32 [T, V] or `Rows`.

        Raises:
            DeviceMemoryError: The device's memory does not suffice; the batch cannot
                be used afterwards.
        """
        with self._device.working(chunks):
            share = self._backend.budget.share("the log-probs of a batch")
            rows = place(self._device, share, chunks)
            set_chunks(self.utterances, rows)
            self._run(self._waiting())
            share.close()
        self._last_chunks = [replace(one, buffer=None) for one in rows[:1]]

    def finish(self) -> list[BestPath]:
        """End all utterances; the batch cannot be used afterwards."""
        if len(self.utterances) == 0:
            return []
        with self._device.working(self._last_chunks):
            self.utterances["num_frames"] = self.utterances["chunk_frame"] = 0
            self._run(self._waiting())  # those that not one frame came for
            capacity = STEPS_PER_FRAME * self.utterances["frames"].astype(np.int64) + 16
            paths = dict(self._find_paths(np.arange(len(self.utterances)), capacity))
            longer = [i for i, steps in paths.items() if steps is None]
            length = self.utterances["path_length"].astype(np.int64)
            paths |= dict(self._find_paths(np.array(longer, np.int64), length[longer]))
        self._share.close()
        self._buffers = []
        return [
            self._path(utterance, paths[i])
            for i, utterance in enumerate(self.utterances)
        ]

    def _find_paths(
        self, which: np.ndarray, capacity: np.ndarray
    ) -> list[tuple[int, np.ndarray | None]]:
        """STEP [N] of some utterances, None where `capacity` is too small."""
        if len(which) == 0:
            return []
        starts = np.concatenate([[0], np.cumsum(capacity)])
        buffer = self._device.empty(int(starts[-1]), d.STEP)
        first = self._device.address(buffer)
        self.utterances["path"][which] = first + d.STEP.itemsize * starts[:-1]
        self.utterances["path_capacity"][which] = capacity
        self._launch("best_paths", len(which), which, None)
        steps = self._device.download(buffer, d.STEP)
        length = self.utterances["path_length"][which]
        return [
            (int(i), steps[a : a + n][::-1] if n <= most else None)
            for i, a, n, most in zip(which, starts[:-1], length, capacity, strict=True)
        ]

    def _path(self, utterance: np.void, steps: np.ndarray | None) -> BestPath:
        assert steps is not None
        final = bool(utterance["reached_final"])
        died = int(utterance["died"])
        final_cost = self._backend.graph.final_cost[utterance["end_state"]]
        return BestPath(
            arcs=steps["arc"].astype(np.int64),
            acoustic=steps["acoustic"].copy(),
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
        pool = self._backend.pool
        work = pool.take(min(len(waiting), self._device.num_blocks))
        while len(waiting):
            blocks = min(len(waiting), work.blocks)
            self._launch("search_chunk", blocks, waiting, work)
            status = self.utterances["status"][waiting]
            waiting = waiting[status != d.OK]
            self._make_room(waiting, work)
            if (status == d.GROW_WORK).any():
                work = pool.grow(work, len(waiting))
        pool.give(work)

    def _launch(
        self, kernel: str, blocks: int, order: np.ndarray, work: Work | None
    ) -> None:
        """Run a kernel over the utterances in `order`; their records come back."""
        if work is not None:
            for name, array in work.arrays.items():
                self._task[name] = self._device.address(array)
            self._task["entry_capacity"] = work.entries
            self._task["candidate_capacity"] = work.candidates
            self._task["table_size"] = work.slots
        shared = d.SLOT_BYTES * self._device.shared_slots if work else 0
        self.utterances = launch(
            self._device, (kernel, blocks, shared), self._task, self.utterances, order
        )

    # --------------------------------------------------------------------- memory
    def _make_room(self, stopped: np.ndarray, work: Work) -> None:
        """Lengthen what utterances that stopped found too small of their own."""
        for i in stopped:
            status = self.utterances["status"][i]
            if status == d.GROW_FRONTIER:
                self._lengthen("frontier", i, 2 * work.entries)
            elif status == d.GROW_TRACE:
                old = int(self.utterances["trace_capacity"][i])
                self._lengthen("trace", i, 2 * (old + work.entries))

    def _lengthen(self, name: str, i: int, count: int) -> None:
        """Move an utterance's frontier or trace to a longer buffer of its own."""
        dtype, utterance = RECORDS[name], self.utterances[i]
        old = int(utterance[f"{name}_capacity"])
        self._share.take(count * dtype.itemsize)
        longer = self._device.empty(count, dtype)
        self._device.copy(longer, int(utterance[name]), old * dtype.itemsize)
        self._buffers.append(longer)
        utterance[name] = self._device.address(longer)
        utterance[f"{name}_capacity"] = count

    def _upload_boosts(self, i: int, boosts: CompiledBoosts) -> None:
        """Each list once."""
        words, phrases = boosts
        if words:
            if id(words) not in self._boosts:
                self._boosts[id(words)] = self._upload_words(words)
            keys, bonuses = self._boosts[id(words)]
            self.utterances["boost_keys"][i] = self._device.address(keys)
            self.utterances["boost_bonuses"][i] = self._device.address(bonuses)
            self.utterances["boost_mask"][i] = len(words.keys) - 1
        if phrases is not None:
            self._boosts[id(phrases)] = self._backend.phrases_of(phrases)
            self.utterances["phrases"][i] = self._boosts[id(phrases)].address

    def _upload_words(self, words: WordBoosts) -> tuple[Any, Any]:
        self._share.take(words.keys.nbytes + words.bonuses.nbytes)
        return upload(self._device, words.keys), upload(self._device, words.bonuses)


def set_chunks(utterances: np.ndarray, chunks: Sequence[Rows]) -> None:
    """Put the chunks into the records of their utterances."""
    assert len(chunks) == len(utterances), (len(chunks), len(utterances))
    utterances["logprobs"] = [rows.address for rows in chunks]
    utterances["logprob_type"] = [rows.kind for rows in chunks]
    utterances["num_frames"] = [rows.num_frames for rows in chunks]
    utterances["frame_stride"] = [rows.stride for rows in chunks]
    utterances["chunk_frame"] = 0


def launch(
    device: Device,
    how: tuple[str, int, int],
    task: np.ndarray,
    utterances: np.ndarray,
    order: np.ndarray,
) -> np.ndarray:
    """Run a kernel over some utterances; the records of all, as it leaves them.

    Args:
        device: Where.
        how: The kernel, its blocks, and the shared memory of each.
        task: TASK [1]; where the other arguments are is filled in.
        utterances: UTTERANCE [B].
        order: The positions of those that it is for.
    """
    kernel, blocks, shared = how
    parts = [task, utterances, order.astype(np.uint32), np.zeros(1, np.uint32)]
    sizes = [-(-part.nbytes // d.ALIGNMENT) * d.ALIGNMENT for part in parts]
    starts = np.cumsum([0, *sizes])
    packet = device.empty(int(starts[-1]), np.dtype(np.uint8))
    first = device.address(packet)
    for name, start in zip(("utterances", "order", "drawn"), starts[1:], strict=False):
        task[name] = first + start
    task["num_utterances"] = len(order)
    content = np.zeros(int(starts[-1]), np.uint8)
    for start, part in zip(starts, parts, strict=False):
        content[start : start + part.nbytes] = part.view(np.uint8)
    device.write(packet, content)
    device.launch(kernel, blocks, packet, shared)
    back = device.download(packet, np.dtype(np.uint8))
    return back[starts[1] : starts[1] + utterances.nbytes].view(d.UTTERANCE)
