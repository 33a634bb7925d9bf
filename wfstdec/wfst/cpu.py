"""The CPU backend: numba kernels, no GIL, one utterance per thread.

    backend = CpuBackend(graph)
    search = backend.start(options, boosts)       # one utterance
    search.advance(logprobs)                      # float32 [T, V], any number of times
    search.finish()                               # a BestPath

Arrays grow when a kernel says so; the frame is then done again, so that growing never
changes a result.
"""

from __future__ import annotations

import functools
import math
import threading

import numpy as np

from wfstdec.arcs import LABEL_MASK
from wfstdec.boost.boosts import UtteranceBoosts
from wfstdec.boost.words import WordBoosts
from wfstdec.errors import BackendError
from wfstdec.graph import PackedGraph
from wfstdec.jit import jit
from wfstdec.wfst import cpu_kernels, trace
from wfstdec.wfst import kernel_types as k
from wfstdec.wfst.emission import BLOCK, LEVELS, MOST_LABELS
from wfstdec.wfst.options import DecodeOptions
from wfstdec.wfst.path import BestPath


class CpuBackend:
    """A graph laid out for the CPU kernels, and pools of scratch memory.

    Args:
        graph: The graph.
        first_capacity: Entries that the scratch arrays hold at first; they grow.
    """

    def __init__(self, graph: PackedGraph, first_capacity: int = 4096) -> None:
        self.graph = graph
        self.arrays = _lay_out(graph)
        self._capacity = first_capacity
        self._lock = threading.Lock()
        self._works: list[k.Work] = []
        self._channels: list[k.Channel] = []

    def start(self, options: DecodeOptions, boosts: UtteranceBoosts) -> CpuSearch:
        """Begin an utterance."""
        if boosts.phrases is not None:
            raise BackendError("phrases, which backend 'cpu' lacks; use 'reference'")
        words = boosts.words
        return CpuSearch(self, scales_of(options, bool(words)), words)

    def take_work(self, entries: int) -> k.Work:
        """Scratch for one thread and that many entries, from the pool or new."""
        with self._lock:
            while self._works:
                work = self._works.pop()
                if len(work.next) >= entries:
                    return work
        entries = max(entries, self._capacity)
        return _new_work(self.graph, entries, 4 * entries)

    def give_work(self, work: k.Work) -> None:
        """Put scratch back."""
        with self._lock:
            self._works.append(work)

    def take_channel(self) -> k.Channel:
        """A channel for one utterance, from the pool or new."""
        with self._lock:
            if self._channels:
                return self._channels.pop()
        entries = np.empty(self._capacity, k.ENTRY)
        nodes = np.empty(16 * self._capacity, k.NODE)
        counts, base, beam = np.zeros(8, np.int64), np.zeros(1), np.zeros(1, np.float32)
        return k.Channel(entries, nodes, counts, base, beam)

    def give_channel(self, channel: k.Channel) -> None:
        """Put a channel back, unless the pool has as many as there may be threads."""
        with self._lock:
            if len(self._channels) < max(1, len(self._works)):
                self._channels.append(channel)


class CpuSearch:
    """The search of one utterance: `advance` any number of times, then `finish`."""

    def __init__(
        self, backend: CpuBackend, scales: k.Scales, boosts: WordBoosts
    ) -> None:
        self._backend = backend
        self._scales = scales
        self._boosts = boosts
        self._channel = backend.take_channel()
        self._channel.counts[:] = 0
        self._channel.counts[k.DIED] = -1
        self._channel.base[:] = 0.0

    @property
    def counts(self) -> dict[str, int]:
        """Work done so far: `frames`, and sums of `active` states and `arcs`."""
        names = {"frames": k.FRAMES, "active": k.ACTIVE, "arcs": k.ARCS}
        return {name: int(self._channel.counts[at]) for name, at in names.items()}

    def advance(self, logprobs: np.ndarray) -> None:
        """Pass the search through a chunk, float32 [T, V], C order."""
        work = self._backend.take_work(int(self._channel.counts[k.FRONTIER]))
        graph, scales, boosts = self._backend.arrays, self._scales, self._boosts
        try:
            frame, status = 0, -1
            while status != k.OK:
                status, frame = cpu_kernels.advance(
                    graph, scales, boosts, work, self._channel, logprobs, frame
                )
                work = self._grow(status, work)
        finally:
            self._backend.give_work(work)

    def finish(self) -> BestPath:
        """End the utterance; the search cannot be used afterwards."""
        if self._channel.counts[k.FRONTIER] == 0:  # not one frame came
            self.advance(np.zeros((0, len(self._backend.graph.tokens)), np.float32))
        final_cost = self._backend.arrays.final_cost
        path = trace.best_path(self._channel, final_cost, self._scales.lm_scale)
        self._backend.give_channel(self._channel)
        return path

    def _grow(self, status: int, work: k.Work) -> k.Work:
        """Enlarge what a kernel found too small; returns the work to go on with."""
        channel = self._channel
        if status == k.GROW_WORK:
            entries, candidates = len(work.next), len(work.candidates)
            return _new_work(self._backend.graph, 2 * entries, 2 * candidates)
        if status == k.GROW_FRONTIER:
            frontier = _longer(channel.frontier, 2 * len(work.next))
            self._channel = channel._replace(frontier=frontier)
        if status == k.GROW_TRACE:
            self._make_room_in_trace(len(work.next))
        return work

    def _make_room_in_trace(self, most: int) -> None:
        """Compact the trace; lengthen it where that frees less than half."""
        channel, counts = self._channel, self._channel.counts
        counts[k.TRACE] = trace.compact(
            channel.trace,
            counts[k.TRACE],
            channel.frontier,
            counts[k.FRONTIER],
        )
        if 2 * (counts[k.TRACE] + most) > len(channel.trace):
            longer = _longer(channel.trace, 2 * (len(channel.trace) + most))
            self._channel = channel._replace(trace=longer)


@functools.lru_cache(maxsize=64)
def scales_of(options: DecodeOptions, boosted: bool) -> k.Scales:
    """The options as the kernels take them."""
    skip = options.blank_skip_threshold
    delta = options.beam_delta
    return k.Scales(
        beam=min(np.float32(options.beam), k.LARGEST),
        beam_delta=np.float32(-1 if delta is None else delta),
        max_active=np.uint64(options.max_active or 1 << 40),
        min_active=np.uint64(options.min_active),
        acoustic_scale=np.float32(options.acoustic_scale),
        lm_scale=np.float32(options.lm_scale),
        word_insertion=np.float32(options.word_insertion),
        has_extras=bool(options.word_insertion != 0 or boosted),
        blank_penalty=np.float32(options.blank_penalty),
        blank_skip_logprob=np.float32(math.inf if skip is None else math.log(skip)),
    )


def _longer(array: np.ndarray, size: int) -> np.ndarray:
    longer = np.empty(size, array.dtype)
    longer[: len(array)] = array
    return longer


def _new_work(graph: PackedGraph, entries: int, candidates: int) -> k.Work:
    num_labels = len(graph.tokens) + 1
    return k.Work(
        next=np.empty(entries, k.ENTRY),
        candidates=np.empty(candidates, k.ENTRY),
        named=np.empty(BLOCK * MOST_LABELS, k.NAMED),
        slots=np.zeros(graph.num_states, np.uint32),
        rank_heads=np.empty(int(graph.epsilon_rank.max()) + 1, np.uint32),
        links=np.empty(entries, np.uint32),
        waiting=np.empty(entries + 1, np.uint32),
        bins=np.empty(1024, np.uint32),
        keys=np.empty(entries, np.uint64),
        unscaled=np.zeros(num_labels, np.float32),
        token_costs=np.zeros(num_labels, np.float32),
        live_sets=np.zeros(LEVELS, np.uint64),
    )


def _lay_out(graph: PackedGraph) -> k.GraphArrays:
    """Rows of 32 bytes, with label sets where they fit."""
    num_states, splits = graph.num_states, graph.state_arc_splits
    rows = np.zeros(num_states + 1, k.ROW)
    rows["begin"] = splits
    rows["emit"] = splits
    rows["emit"][:num_states] += graph.state_num_epsilons
    labels = graph.arcs["ilabel"] & np.uint32(LABEL_MASK)
    by_label = len(graph.tokens) <= MOST_LABELS and _fill_label_sets(rows, labels)
    rows["rank"][:num_states] = graph.epsilon_rank
    _fill_least_epsilons(rows, graph.arcs["cost"])
    return k.GraphArrays(
        arcs=graph.arcs,
        rows=rows,
        final_cost=graph.final_cost,
        by_label=by_label,
        num_ranks=np.uint64(graph.epsilon_rank.max() + 1),
        blank=np.uint64(graph.tokens.blank),
        least_cost=np.float32(min(0.0, graph.arcs["cost"].min(initial=0.0))),
    )


@jit
def _fill_label_sets(rows, labels):
    """Fill `rows["labels"]`; False where a label stands twice in a row."""
    for s in range(len(rows) - 1):
        for a in range(rows[s].emit, rows[s + 1].begin):
            bit = np.uint64(1) << np.uint64(labels[a])
            if rows[s].labels & bit:
                return False
            rows[s].labels |= bit
    return True


@jit
def _fill_least_epsilons(rows, cost):
    """Fill `rows["least_epsilon"]`, `inf` where there are no epsilon arcs."""
    for s in range(len(rows) - 1):
        rows[s].least_epsilon = np.inf
        for a in range(rows[s].begin, rows[s].emit):
            rows[s].least_epsilon = min(rows[s].least_epsilon, cost[a])
