"""Batches of the trie search on a device, and sessions: the host ends what it advances.

    batch = DeviceBatch(device_space, cpu, options, boosts)    # one CompiledBoosts each
    batch.advance(chunks)                                      # [T, V] per utterance
    batch.finish()                                             # paths per utterance

    session = DeviceSession(device_space, cpu, options, boosts)
    advance([session, other], [chunk, another])                # one launch for all
    session.look(), session.finish()

Frontier and trace have the records of the CPU's kernels. So endings, n-best, and
partial results are read by the CPU's own code, from what is downloaded: each utterance
has a `CpuSearch` that never sees a frame.
"""

from collections.abc import Callable, Sequence
from typing import TypeVar

import numpy as np

from wfstdec.boost.compiled import CompiledBoosts
from wfstdec.gpu.batch import Batch, BatchLayout, Growth, Session
from wfstdec.gpu.device import BlockShape
from wfstdec.gpu.records import NONE
from wfstdec.search.paths.tokens import PartialPath, Path
from wfstdec.trie.cpu import arrays
from wfstdec.trie.cpu.backend import CpuBackend, CpuSearch
from wfstdec.trie.gpu.layout import (
    COUNTS,
    ENTRY,
    GROW_FRONTIER,
    GROW_SCRATCH,
    GROW_TRACE,
    NODE,
    PHASES,
    UTTERANCE,
    DeviceSpace,
    TrieBlockShape,
    Variant,
    task_of,
)
from wfstdec.trie.options import TrieOptions

_Result = TypeVar("_Result")
RECORDS = {"frontier": ENTRY, "trace": NODE, "backup": ENTRY}
"""The arrays of an utterance, and what they hold; `backup` only where it comes in
chunks."""
LAYOUT = BatchLayout(
    utterance=UTTERANCE,
    arrays=RECORDS,
    kernel="advance_chunk",
    phases=PHASES,
    counts=COUNTS,
    grow_scratch=GROW_SCRATCH,
    growths={
        GROW_FRONTIER: Growth("frontier", lambda old, entries: 2 * max(old, entries)),
        GROW_TRACE: Growth("trace", lambda old, entries: 2 * (old + 2 * entries)),
    },
)
"""The search's batches."""
NODES_PER_FRAME = 16
"""Trace nodes that there is room for at first, a frame."""
FRAMES_AHEAD = 256
"""Frames that a trace has room for where their number is unknown."""


def trace_nodes(num_frames: int | None) -> int:
    """The nodes of a trace at first."""
    return NODES_PER_FRAME * (FRAMES_AHEAD if num_frames is None else num_frames + 1)


def utterance_bytes(form: TrieBlockShape, num_frames: int | None) -> int:
    """Bytes of an utterance."""
    frontiers = 2 if num_frames is None else 1  # in chunks: the one before is kept
    entries = frontiers * form.entries * ENTRY.itemsize
    return entries + trace_nodes(num_frames) * NODE.itemsize


class DeviceBatch(Batch):
    """Utterances side by side: `advance` any number of times, then `finish`."""

    def __init__(
        self,
        device_space: DeviceSpace,
        cpu: CpuBackend,
        options: TrieOptions,
        boosts: Sequence[CompiledBoosts],
        lengths: Sequence[int] | None = None,
    ) -> None:
        work = device_space.work(options.beam_size)
        inputs = [cpu.inputs_of(options, one)[0].value for one in boosts]
        task = task_of(inputs[0].params)
        device_space.fill_in(task)
        super().__init__(
            LAYOUT, work.scratch, task, Variant(work.form.threads), len(boosts)
        )
        self._form = work.form
        self._searches = [cpu.start(options, one) for one in boosts]
        self.utterances["base"] = [one.state.base[0] for one in self._searches]
        frames: Sequence[int | None] = lengths or [None] * len(boosts)
        for i, one in enumerate(inputs):
            most = one.words.top_bonus + one.phrases.rows["credit"].max()
            self.utterances["boosted"][i] = one.params.boosted
            self.utterances["most_credit"][i] = most
        self._prepare(
            work.form.entries,
            [trace_nodes(n) for n in frames],
            [one.words for one in boosts],
            [one.phrases for one in boosts],
            device_space.phrases,
            in_chunks=lengths is None,
        )

    def _take_shape(self, shape: BlockShape) -> None:
        form = self._form
        fits = form.shared_bytes <= shape.shared_bytes
        for name in ("entries", "candidates", "tokens"):
            self._task[f"shared_{name}"] = getattr(form, name) if fits else 0

    def finish(self) -> list[list[Path]]:
        """End all utterances; the batch cannot be used afterwards."""
        with self._device.on_stream(self._stream):
            states = self._states(range(len(self.utterances)))
        # Memory first: other batches need not wait until paths are read.
        self._release()
        for search, state in zip(self._searches, states, strict=True):
            search.state = state
        return [search.finish() for search in self._searches]

    def _states(self, which: Sequence[int]) -> list[arrays.UtteranceState]:
        """Download the states of some utterances, in one copy."""
        parts = [
            (int(one[name]), int(one[f"{name}_count"]) * RECORDS[name].itemsize)
            for one in self.utterances[list(which)]
            for name in ("frontier", "trace")
        ]
        starts = np.cumsum([0, *(size for _, size in parts)])
        joined = self._device.empty(int(starts[-1]), np.dtype(np.uint8))
        first = self._device.address(joined)
        for (source, size), start in zip(parts, starts[:-1], strict=True):
            if size:
                self._device.copy(first + int(start), source, size)
        found = self._device.download(joined, np.dtype(np.uint8))
        cuts = np.split(found, starts[1:-1])
        return [
            self._state(i, cuts[2 * at], cuts[2 * at + 1]) for at, i in enumerate(which)
        ]

    def _state(
        self, i: int, frontier: np.ndarray, trace: np.ndarray
    ) -> arrays.UtteranceState:
        """State of an utterance, of its bytes; as it began where no launch had it."""
        one = self.utterances[i]
        if one["frontier_count"] == 0:
            return self._searches[i].state
        counts = np.zeros(8, np.int64)
        counts[arrays.FRONTIER] = one["frontier_count"]
        counts[arrays.TRACE] = one["trace_count"]
        counts[arrays.FRAMES] = one["frames"]
        counts[arrays.DIED] = -1 if one["died"] == NONE else one["died"]
        counts[arrays.ACTIVE], counts[arrays.CANDIDATES] = (
            one["active"],
            one["candidates"],
        )
        return arrays.UtteranceState(
            frontier.view(arrays.ENTRY).copy(),
            trace.view(arrays.TRACE_NODE).copy(),
            counts,
            np.array([one["base"]]),
        )


class DeviceSession(DeviceBatch, Session):
    """Search of an utterance that comes in chunks."""

    def __init__(
        self,
        device_space: DeviceSpace,
        cpu: CpuBackend,
        options: TrieOptions,
        boosts: CompiledBoosts,
    ) -> None:
        super().__init__(device_space, cpu, options, [boosts])

    def look(self, since: tuple[int, int] = (0, 0)) -> PartialPath:
        """The best path so far but its first tokens and labels; it can continue."""
        return self._on_host(lambda search: search.look(since))

    def fold(self) -> None:
        """Take out of the trace what is settled, and what no entry can reach."""
        self._on_host(CpuSearch.settle_trace)

    def finish(self) -> list[Path]:  # type: ignore[override]
        """End the utterance; the session cannot be used afterwards."""
        return super().finish()[0]

    def _on_host(self, work: Callable[[CpuSearch], _Result]) -> _Result:
        """Let the host work on the search; write back the trace and the frontier."""
        search = self._searches[0]
        with self._device.on_stream(self._stream):
            (search.state,) = self._states([0])
        result, state = work(search), search.state
        if self.utterances[0]["frontier_count"]:
            trace = state.trace[: int(state.counts[arrays.TRACE])].view(NODE)
            with self._device.on_stream(self._stream):
                self._write_back(state.frontier.view(ENTRY), trace)
        return result
