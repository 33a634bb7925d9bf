"""Batches and sessions of the trie search on a device.

    batch = DeviceBatch(device_space, cpu, options, boosts)    # one CompiledBoosts each
    batch.advance(chunks)                                      # [T, V] per utterance
    batch.finish()                                             # paths per utterance

    session = DeviceSession(device_space, cpu, options, boosts)
    advance([session, other], [chunk, another])                # one launch for all
    session.look(), session.finish()

Frontier and trace have the records of the CPU's kernels. So endings, n-best lists and
partial results are read by the CPU's code from downloaded arrays: whole utterances
together, sessions by a `CpuSearch` that receives no frames.
"""

import contextlib
from collections.abc import Callable, Iterator, Sequence
from typing import TypeVar

import numpy as np

from wfstdec.boost.compiled import CompiledBoosts
from wfstdec.gpu.batch import Batch, BatchLayout, Growth, Session
from wfstdec.gpu.device import BlockShape, Grid
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
_KEPT = {"frontier": ENTRY, "trace": NODE}
RECORDS = _KEPT | {"backup": ENTRY}
"""Arrays of an utterance, and their types; `backup` only for sessions."""
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
NODES_PER_FRAME = 16
"""Initial capacity in trace nodes per frame."""
FRAMES_AHEAD = 256
"""Capacity of a trace in frames, if their number is unknown."""


def trace_nodes(num_frames: int | None) -> int:
    """Return the initial number of trace nodes."""
    return NODES_PER_FRAME * (FRAMES_AHEAD if num_frames is None else num_frames + 1)


def utterance_bytes(form: TrieBlockShape, num_frames: int | None) -> int:
    """Return bytes of an utterance."""
    frontiers = 2 if num_frames is None else 1  # sessions keep the previous one
    entries = frontiers * form.entries * ENTRY.itemsize
    return entries + trace_nodes(num_frames) * NODE.itemsize


class DeviceBatch(Batch):
    """Batch of utterances: `advance` any number of times, then `finish`."""

    def __init__(
        self,
        device_space: DeviceSpace,
        cpu: CpuBackend,
        options: TrieOptions,
        boosts: Sequence[CompiledBoosts],
        lengths: Sequence[int] | None = None,
    ) -> None:
        work = device_space.work(options.beam_size)
        lists = {id(one): one for one in boosts}
        known = {i: cpu.inputs_of(options, one)[0].value for i, one in lists.items()}
        inputs = [known[id(one)] for one in boosts]
        task = task_of(inputs[0].params)
        device_space.fill_in(task)
        super().__init__(
            LAYOUT, work.scratch, task, Variant(work.form.threads), len(boosts)
        )
        self._form = work.form
        self._cpu, self._options, self._boosts = cpu, options, boosts
        self.utterances["base"] = [one.first_base for one in inputs]
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

    def finish(self) -> Sequence[list[Path]]:
        """End all utterances; the batch cannot be used afterwards."""
        groups: dict[int, list[int]] = {}  # utterances with the same boosts together
        for i, one in enumerate(self._boosts):
            groups.setdefault(id(one), []).append(i)
        found: dict[int, list[Path]] = {}
        ended: Sequence[list[Path]] = []
        for group in groups.values():
            search = self._cpu.start(self._options, self._boosts[group[0]])
            with self._states(np.array(group)) as states:
                ended = search.end(states)
            found.update(zip(group, ended if len(groups) > 1 else (), strict=False))
        self._release()
        return [found[i] for i in range(len(found))] if found else ended

    @contextlib.contextmanager
    def _states(self, which: np.ndarray) -> Iterator[arrays.EndedStates]:
        """Download the states of some utterances; valid within the context."""
        taken, device = self.utterances[which], self._device
        splits, buffers = np.zeros((len(which) + 1, 2), np.int64), []
        counts = np.zeros((len(which), 8), np.int64)
        with device.on_stream(self._stream), contextlib.ExitStack() as stack:
            for column, (name, dtype) in enumerate(_KEPT.items()):
                np.cumsum(taken[f"{name}_count"], out=splits[1:, column])
                buffer = device.empty(int(splits[-1, column]), dtype)
                starts = device.address(buffer) + splits[:-1, column] * dtype.itemsize
                self.utterances[f"last_{name}"][which] = starts
                buffers.append(buffer)
            macros, threads = self._variant.macros, self._form.threads
            self._launch(Grid("gather_states", len(which), 0, macros, threads), which)
            frontier, trace = (
                stack.enter_context(device.downloaded(buffer, dtype))
                for buffer, dtype in zip(buffers, _KEPT.values(), strict=True)
            )
            for place, name in ((arrays.FRONTIER, "frontier"), (arrays.TRACE, "trace")):
                counts[:, place] = taken[f"{name}_count"]
            died = taken["died"].astype(np.int64)
            counts[:, arrays.FRAMES] = taken["frames"]
            counts[:, arrays.DIED] = np.where(died == NONE, -1, died)
            counts[:, arrays.ACTIVE] = taken["active"]
            counts[:, arrays.CANDIDATES] = taken["candidates"]
            yield arrays.EndedStates(
                frontier.view(arrays.ENTRY),
                trace.view(arrays.TRACE_NODE),
                splits,
                counts,
                taken["base"].copy(),
            )


class DeviceSession(DeviceBatch, Session):
    """Search of an utterance that arrives in chunks."""

    def __init__(
        self,
        device_space: DeviceSpace,
        cpu: CpuBackend,
        options: TrieOptions,
        boosts: CompiledBoosts,
    ) -> None:
        super().__init__(device_space, cpu, options, [boosts])
        self._search = cpu.start(options, boosts)

    def look(self, since: tuple[int, int] = (0, 0)) -> PartialPath:
        """Return the best path so far, without its first tokens and labels."""
        return self._on_host(lambda search: search.look(since))

    def fold(self) -> None:
        """Remove settled and unreachable nodes from the trace."""
        self._on_host(CpuSearch.settle_trace)

    def finish(self) -> list[Path]:  # type: ignore[override]
        """End the utterance; the session cannot be used afterwards."""
        self._download_state()
        self._release()
        return self._search.finish()

    def _download_state(self) -> None:
        if not self.utterances[0]["frontier_count"]:
            return
        with self._states(np.arange(1)) as states:
            frontier, trace = states.frontier.copy(), states.trace.copy()
            self._search.state = arrays.UtteranceState(
                frontier, trace, states.counts[0], states.base
            )

    def _on_host(self, work: Callable[[CpuSearch], _Result]) -> _Result:
        """Run work on the host's search; write back the trace and the frontier."""
        self._download_state()
        result, state = work(self._search), self._search.state
        if self.utterances[0]["frontier_count"]:
            trace = state.trace[: int(state.counts[arrays.TRACE])].view(NODE)
            with self._device.on_stream(self._stream):
                self._write_back(state.frontier.view(ENTRY), trace)
        return result
