"""Batches of utterances on a device: many frames of all of them in one launch.

    class DeviceBatch(Batch): ...          # of a search: its start and end
    batch.advance(chunks)                  # [T, V] per utterance

A launch advances every utterance as far as its arrays suffice. If an array is too
small, the utterance stops at its last good frame with a status; the host enlarges the
array and relaunches. So growth never changes a result.

The first launch of a chunk also detects numbers that are not log-probs. Utterances in
chunks are then reset, by the `backup` of frontiers.
"""

from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from wfstdec.boost.compiled import WordBoosts
from wfstdec.boost.phrases import PhraseBoosts
from wfstdec.errors import InputError
from wfstdec.gpu.boosts import DevicePhrases, upload_words
from wfstdec.gpu.device import BlockShape, Grid, Scratch, ScratchPool, launch
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
from wfstdec.jit.records import WeakCache
from wfstdec.search.logprobs import bad_logprob

DONE = 0  # `UTTERANCE.status` at the end of its chunk
FEWER = "decode fewer utterances at a time"
"""Advice in the error for too many utterances."""


class Growth(NamedTuple):
    """Growth of an array that was too small for an utterance."""

    name: str  # of the array
    # its new length, from the old one and the entries of a frontier in the launch
    length: Callable[[int, int], int]


class BatchLayout(NamedTuple):
    """Layout of a search's batches."""

    # UTTERANCE has these fields: `logprobs`, a LOGPROBS; `chunk_frame`, the next frame
    # of the chunk; `frontier_count`, 0 before the start; `died`, NONE while it is
    # alive; `status`; for each array its address and `NAME_capacity`. Kernels copy
    # `frontier` to `backup`, if that is an address, before a launch with unchecked
    # log-probs. TASK has `utterances`, `queue`, `queue_length`, `num_drawn`,
    # `phase_times`, `num_tokens` and `checked`.

    utterance: np.dtype  # UTTERANCE
    arrays: Mapping[str, np.dtype]  # element type of each array of an utterance
    kernel: str  # the search: advances all utterances of the queue by their chunks
    phases: tuple[str, ...]  # timed by kernels compiled with TIMES
    counts: tuple[str, ...]  # fields of UTTERANCE that are sums over its frames
    # status of an utterance whose block's scratch was too small
    grow_scratch: int
    growths: Mapping[int, Growth]  # for other statuses


class Batch:
    """Batch of utterances, advanced any number of times."""

    def __init__(
        self,
        layout: BatchLayout,
        pool: ScratchPool,
        task: np.ndarray,
        variant: Any,
        num_utterances: int,
    ) -> None:
        self._device, self._layout, self._pool = pool.device, layout, pool
        # `variant`: a NamedTuple of compile-time features: `logprob_type`, `times`,
        # `macros` and others. The largest value of each suits several batches;
        # `logprob_type` differs by launch.
        self._task, self._variant = task, variant
        self.phase_times = np.zeros(len(layout.phases), np.uint64)
        self.clocks = np.zeros(2, np.uint64)
        owner = f"a batch of {num_utterances} utterances"
        advice = f"{pool.advice}, {FEWER}"
        self._share = self._device.budget.share(owner, advice)
        self.utterances = np.zeros(num_utterances, layout.utterance)
        self.utterances["died"] = self.utterances["logprobs"]["bad_frame"] = NONE
        self._buffers: list[Any] = []  # arrays of utterances, their boosts
        self._newest: dict[str, Any] = {}  # the last of each name
        self._stream: Any = None

    @property
    def takes_times(self) -> bool:
        """Whether launches time the phases; set it before `advance`."""
        return self._variant.times

    @takes_times.setter
    def takes_times(self, takes: bool) -> None:
        """Set whether launches time the phases."""
        self._variant = self._variant._replace(times=takes)

    @property
    def counts(self) -> dict[str, int]:
        """Work done so far, in sums over frames and utterances."""
        return {name: int(self.utterances[name].sum()) for name in self._layout.counts}

    def advance(self, chunks: Sequence[Chunk]) -> None:
        """Advance every utterance by its next chunk, [T, V]."""
        assert len(chunks) == len(self.utterances), (len(chunks), len(self.utterances))
        self._stream = stream_of(chunks)
        with self._device.on_stream(self._stream):
            share = self._device.budget.share("the log-probs of a batch", FEWER)
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

    def _begin(self) -> None:
        self.utterances["logprobs"]["num_frames"] = 0
        self.utterances["chunk_frame"] = 0
        self._run(self._unfinished())

    def _unfinished(self, checked: bool = True) -> np.ndarray:
        """Return unfinished utterances, and those not begun; the longest first."""
        # After the last survivor frames are only checked.
        frames = self.utterances["logprobs"]["num_frames"].astype(np.int64)
        survived = self.utterances["died"] == NONE
        todo = (frames > 0) & (survived | (not checked))
        todo |= self.utterances["frontier_count"] == 0
        queue = np.flatnonzero(todo)
        return queue[np.argsort(-frames[queue], kind="stable")]

    def _run(self, queue: np.ndarray, checked: bool = True) -> None:
        if len(queue) == 0:
            return
        scratch = self._pool.take(min(len(queue), self._device.shape.num_blocks))
        self._task["checked"] = checked
        try:
            while len(queue):
                queue = self._launch_search(queue, scratch)
                # The first launch checks every frame, wherever the search stopped.
                if (self.utterances["logprobs"]["bad_frame"] != NONE).any():
                    break
                self._task["checked"] = True
                status = self.utterances["status"][queue]
                self._make_room(queue, scratch.entries)
                if (status == self._layout.grow_scratch).any():
                    scratch = self._pool.grow(scratch, len(queue))
        finally:
            self._pool.give(scratch)

    def _launch_search(self, queue: np.ndarray, scratch: Scratch) -> np.ndarray:
        """Launch once; return the utterances that did not finish their chunks."""
        scratch.fill_in(self._task)
        shape = self._device.shape
        self._take_shape(shape)
        blocks, macros = min(len(queue), scratch.blocks), self._variant.macros
        blocks = min(blocks, shape.num_blocks)
        kernel, shared_bytes = self._layout.kernel, shape.shared_bytes
        self._launch(Grid(kernel, blocks, shared_bytes, macros, shape.threads), queue)
        return queue[self.utterances["status"][queue] != DONE]

    def _take_shape(self, shape: BlockShape) -> None:
        """Set the fields of the TASK that depend on the shape of blocks."""

    def _refuse(self, chunks: Sequence[DeviceLogprobs], before: np.ndarray) -> None:
        bad_frame = self.utterances["logprobs"]["bad_frame"]
        bad = np.flatnonzero(bad_frame != NONE)
        if len(bad) == 0:
            return
        i, frame = int(bad[0]), int(bad_frame[bad[0]])
        moved = self.utterances["logprobs"]["num_frames"] > 0
        self.utterances, device = before, self._device
        size = self._layout.arrays["frontier"].itemsize
        for one in before[moved & (before["backup"] != 0)]:
            num_bytes = int(one["frontier_count"]) * size
            device.copy(int(one["frontier"]), int(one["backup"]), num_bytes)
        num_tokens = int(self._task["num_tokens"][0])
        row = download_frame(device, chunks[i], frame, num_tokens)
        raise bad_logprob(i, frame, row)

    def _launch(self, grid: Grid, queue: np.ndarray) -> None:
        columns = len(self._layout.phases) + len(self.clocks)
        arrays = {
            "utterances": self.utterances,
            "queue": queue.astype(np.uint32),
            "num_drawn": np.zeros(1, np.uint32),
            "phase_times": np.zeros(0, np.uint64),
        }
        if self.takes_times:
            arrays["phase_times"] = np.zeros(grid.num_blocks * columns, np.uint64)
        self._task["queue_length"] = len(queue)
        back = launch(self._device, grid, self._task, arrays)
        self.utterances = back["utterances"]
        if self.takes_times:
            times = back["phase_times"].reshape(-1, columns).sum(0, np.uint64)
            self.phase_times += times[:-2]
            self.clocks += times[-2:]

    def _allocate(self, name: str, counts: Sequence[int]) -> None:
        buffer = self._new_buffer(0, name, sum(counts))
        starts = np.cumsum([0, *counts])[:-1] * self._layout.arrays[name].itemsize
        self.utterances[name] = self._device.address(buffer) + starts
        if name != "backup":
            self.utterances[f"{name}_capacity"] = counts

    def _prepare(
        self,
        entries: int,
        nodes: Sequence[int],
        words: Sequence[WordBoosts],
        phrases: Sequence[PhraseBoosts | None],
        stored: WeakCache[PhraseBoosts, DevicePhrases],
        *,
        in_chunks: bool,
    ) -> None:
        """Allocate frontiers, traces of `nodes` nodes, and boosts."""
        arrays = {"frontier": [entries] * len(nodes), "trace": nodes}
        if in_chunks:
            arrays["backup"] = arrays["frontier"]
        uploaded: dict[int, np.ndarray] = {}
        with self._device.on_stream(None):
            for name, counts in arrays.items():
                self._allocate(name, counts)
            for i, (own_words, own_phrases) in enumerate(
                zip(words, phrases, strict=True)
            ):
                if own_words:
                    if id(own_words) not in uploaded:
                        one, buffers = upload_words(
                            self._device, self._share, own_words
                        )
                        uploaded[id(own_words)] = one
                        self._buffers += buffers
                    self.utterances["words"][i] = uploaded[id(own_words)][0]
                if own_phrases is not None:
                    self._buffers.append(stored.of(own_phrases))
                    self.utterances["phrases"][i] = self._buffers[-1].address
            # The next launch may be on another stream, as may the previous use of this
            # memory.
            self._device.wait()

    def _make_room(self, stopped: np.ndarray, entries: int) -> None:
        """Enlarge the array that was too small for an utterance."""
        for i in stopped:
            growth = self._layout.growths.get(int(self.utterances["status"][i]))
            if growth is not None:
                old = int(self.utterances[f"{growth.name}_capacity"][i])
                self._lengthen(growth.name, i, growth.length(old, entries))

    def _new_buffer(self, i: int, name: str, count: int) -> Any:
        dtype = self._layout.arrays[name]
        self._share.take(count * dtype.itemsize)
        self._buffers.append(self._device.empty(count, dtype))
        self._newest[name] = self._buffers[-1]
        return self._buffers[-1]

    def _release(self) -> None:
        self._share.close()
        self._buffers, self._newest = [], {}

    def _download(self, name: str, count: int, i: int = 0) -> np.ndarray:
        dtype = self._layout.arrays[name]
        part = self._device.empty(count, dtype)
        target, address = self._device.address(part), int(self.utterances[name][i])
        self._device.copy(target, address, count * dtype.itemsize)
        return self._device.download(part, dtype).copy()

    def _lengthen(self, name: str, i: int, count: int) -> None:
        utterance, size = self.utterances[i], self._layout.arrays[name].itemsize
        old = int(utterance[f"{name}_capacity"])
        longer = self._device.address(self._new_buffer(i, name, count))
        self._device.copy(longer, int(utterance[name]), old * size)
        utterance[name] = longer
        utterance[f"{name}_capacity"] = count
        if name == "frontier" and utterance["backup"]:
            backup = self._new_buffer(i, "backup", count)
            utterance["backup"] = self._device.address(backup)


class _Joined(Batch):
    def __init__(self, sessions: Sequence[Batch]) -> None:
        first = sessions[0]
        self._device, self._layout = first._device, first._layout
        self._pool, self._task, self._sessions = first._pool, first._task, sessions
        variants: list[Any] = [one._variant for one in sessions]
        self._variant = type(variants[0])(*map(max, zip(*variants, strict=True)))
        self.phase_times = np.zeros(len(self._layout.phases), np.uint64)
        self.clocks = np.zeros(2, np.uint64)
        self.utterances = np.concatenate([one.utterances for one in sessions])

    def split(self) -> None:
        for i, session in enumerate(self._sessions):
            session.utterances = self.utterances[i : i + 1].copy()
            session._stream = self._stream

    def _take_shape(self, shape: BlockShape) -> None:
        self._sessions[0]._take_shape(shape)

    def _new_buffer(self, i: int, name: str, count: int) -> Any:
        return self._sessions[i]._new_buffer(0, name, count)


class Session(Batch):
    """A batch of one utterance, created without `lengths`: it arrives in chunks."""

    def advance(self, chunk: Chunk) -> None:  # type: ignore[override]
        """Advance the search by a chunk, [T, V]."""
        advance_together([self], [chunk])

    @abstractmethod
    def fold(self) -> Any:
        """Remove settled and unreachable nodes from the trace."""

    def _write_back(self, frontier: np.ndarray, trace: np.ndarray) -> None:
        self._device.write(self._newest["frontier"], frontier)
        self._device.write(self._newest["trace"], trace)
        self._device.wait()
        self.utterances[0]["trace_count"] = len(trace)


def advance_together(
    sessions: Sequence[Session],
    chunks: Sequence[Chunk],
    names: Sequence[int | str] | None = None,
) -> None:
    """Advance sessions of one decoder by a chunk each, [T, V], in one launch."""
    if not sessions:
        return
    joined = _Joined(sessions)
    try:
        joined.advance(chunks)
    except InputError as error:
        if names is not None and isinstance(error.utterance, int):
            error.utterance = names[error.utterance]
        raise
    joined.split()
    for session in sessions:
        one = session.utterances[0]
        if 2 * one["trace_count"] > one["trace_capacity"]:
            session.fold()
