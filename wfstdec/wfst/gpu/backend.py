"""A graph on a device: what searches share there, and batches cut to its memory.

    backend = DeviceBackend(graph, device)
    backend.decode_batch(utterances, options, boosts)    # a BestPath per utterance
    batch = backend.start_batch(options, boosts)         # or as they come in

`boosts` is one `CompiledBoosts` per utterance.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np

from wfstdec.boost.boosts import CompiledBoosts
from wfstdec.boost.phrases import PhraseBoosts
from wfstdec.gpu import memory
from wfstdec.gpu.device import Device, Rows
from wfstdec.gpu.memory import DeviceMemoryError, MemoryPlan, WorkPool
from wfstdec.graph.packed import PackedGraph
from wfstdec.search.logprobs import as_utterances
from wfstdec.wfst.gpu import layout as d
from wfstdec.wfst.gpu.batch import DeviceBatch, launch, set_chunks, upload
from wfstdec.wfst.options import WfstOptions
from wfstdec.wfst.path import BestPath

_LOGPROB_BYTES = 4


class DeviceBackend:
    """A graph on a device, and a pool of scratch memory.

    Args:
        graph: The graph.
        device: Where it goes.
        first_capacity: Entries that arrays hold at first; they grow.

    Raises:
        DeviceMemoryError: The graph does not fit.
    """

    def __init__(
        self, graph: PackedGraph, device: Device, first_capacity: int = 8192
    ) -> None:
        self.graph, self.device = graph, device
        self.budget = device.budget
        self.pool = WorkPool(device, first_capacity)
        self._phrases: WeakKeyDictionary[PhraseBoosts, Phrases] = WeakKeyDictionary()
        self._lock = threading.Lock()
        arrays = {
            "arcs": graph.arcs,
            "rows": d.rows_of(graph),
            "final_cost": graph.final_cost,
        }
        self._graph_bytes = sum(array.nbytes for array in arrays.values())
        self._share = self.budget.share(f"a graph of {graph.num_arcs} arcs")
        self._share.take(self._graph_bytes)
        with device.working([]):
            self.arrays = {name: upload(device, x) for name, x in arrays.items()}
            device.wait()

    def start(self, options: WfstOptions, boosts: CompiledBoosts) -> DeviceSearch:
        """Begin an utterance."""
        return DeviceSearch(self.start_batch(options, [boosts]))

    def start_batch(
        self, options: WfstOptions, boosts: Sequence[CompiledBoosts]
    ) -> DeviceBatch:
        """Begin utterances that go side by side, each with its own boosts."""
        return DeviceBatch(self, options, boosts)

    def as_utterances(self, logprobs: Any, lengths: Any, num_tokens: int) -> list[Any]:
        """As `wfstdec.search.logprobs.as_utterances`; arrays may stay on the device."""
        return as_utterances(logprobs, lengths, num_tokens)

    def decode_batch(
        self,
        utterances: Sequence[Any],
        options: WfstOptions,
        boosts: Sequence[CompiledBoosts],
    ) -> list[BestPath]:
        """Whole utterances, float32 [T, V], in as many parts as memory asks for.

        Raises:
            DeviceMemoryError: Not even one utterance fits.
        """
        paths: dict[int, BestPath] = {}
        parts = list(self._parts([len(one) for one in utterances]))[::-1]
        while parts:
            part = parts.pop()
            chunks = [utterances[i] for i in part]
            try:
                lengths = [len(chunk) for chunk in chunks]
                batch = DeviceBatch(self, options, [boosts[i] for i in part], lengths)
                batch.advance(chunks)
                paths.update(zip(part, batch.finish(), strict=True))
            except DeviceMemoryError:
                if len(part) < 2:
                    raise
                half = len(part) // 2
                parts += [part[half:], part[:half]]
        return [paths[i] for i in range(len(utterances))]

    def first_bad(self, rows: Sequence[Rows]) -> tuple[int, int] | None:
        """The first utterance and frame with a number that is no log-prob."""
        utterances = np.zeros(len(rows), d.UTTERANCE)
        utterances["bad_frame"] = d.NONE
        set_chunks(utterances, rows)
        todo = np.flatnonzero(utterances["num_frames"])
        if len(todo) == 0:
            return None
        blocks = min(len(todo), self.device.num_blocks)
        task = np.zeros(1, d.TASK)
        task["num_tokens"] = len(self.graph.tokens)
        how = ("check_logprobs", blocks, 0)
        frames = launch(self.device, how, task, utterances, todo)["bad_frame"]
        bad = np.flatnonzero(frames != d.NONE)
        return (int(bad[0]), int(frames[bad[0]])) if len(bad) else None

    def memory_plan(
        self, num_utterances: int, num_frames: int | None = None
    ) -> MemoryPlan:
        """What a batch takes on the device, before anything grows.

        Args:
            num_utterances: Utterances side by side.
            num_frames: Frames of each, where that is known at the start.
        """
        blocks = min(num_utterances, self.device.num_blocks)
        one = memory.utterance_bytes(self.pool.entries, num_frames)
        row = len(self.graph.tokens) * _LOGPROB_BYTES
        return MemoryPlan(
            graph=self._graph_bytes,
            scratch=memory.Work.bytes_of(blocks, self.pool.entries),
            utterances=num_utterances * one,
            logprobs=num_utterances * (num_frames or 0) * row,
        )

    def _parts(self, lengths: Sequence[int]) -> Iterator[list[int]]:
        """Utterances that fit side by side by the plan, the longest first."""
        entries, row = self.pool.entries, len(self.graph.tokens) * _LOGPROB_BYTES
        room = self.budget.left + self.pool.num_bytes
        block = memory.Work.bytes_of(1, entries)
        part: list[int] = []
        taken = 0
        for i in sorted(range(len(lengths)), key=lambda i: -lengths[i]):
            one = memory.utterance_bytes(entries, lengths[i]) + lengths[i] * row
            scratch = block * min(len(part) + 1, self.device.num_blocks)
            if part and taken + one + scratch > room:
                yield part
                part, taken = [], 0
            part.append(i)
            taken += one
        if part:
            yield part

    def phrases_of(self, phrases: PhraseBoosts) -> Phrases:
        """Phrases on the device; once for all batches that have them.

        Raises:
            DeviceMemoryError: They do not fit.
        """
        with self._lock:
            if phrases not in self._phrases:
                self._phrases[phrases] = Phrases(self.device, phrases)
            return self._phrases[phrases]


class Phrases:
    """Compiled phrases on a device.

    Attributes:
        address: Of one AUTOMATON.
    """

    def __init__(self, device: Device, phrases: PhraseBoosts) -> None:
        automaton = phrases.automaton
        arrays = d.automaton_arrays(automaton)
        what = f"a list of phrases of {phrases.num_arcs} arcs"
        self._share = device.budget.share(what)
        self._share.take(sum(array.nbytes for array in arrays.values()))
        self._buffers = {name: upload(device, x) for name, x in arrays.items()}
        record = np.zeros(1, d.AUTOMATON)
        for name, buffer in self._buffers.items():
            record[name] = device.address(buffer)
        record["num_labels"] = automaton.model_label_splits[1]
        record["default_cost"] = automaton.model_default_cost[0]
        record["start"], record["of_tokens"] = phrases.start, phrases.unit == "token"
        self._record = upload(device, record)
        self.address = device.address(self._record)
        device.wait()  # another stream may have them next


class DeviceSearch:
    """One utterance: a batch of one."""

    def __init__(self, batch: DeviceBatch) -> None:
        self._batch = batch

    @property
    def counts(self) -> dict[str, int]:
        """See `DeviceBatch.counts`."""
        return self._batch.counts

    def advance(self, logprobs: np.ndarray | Rows) -> None:
        """Pass the search through a chunk, float32 [T, V], C order."""
        self._batch.advance([logprobs])

    def finish(self) -> BestPath:
        """End the utterance."""
        return self._batch.finish()[0]
