"""The search of one utterance by the CPU kernels, and the one that records a lattice.

    search = CpuSearch(memory, inputs, added)
    search.advance(logprobs)                      # float32 [T, V], any number of times
    search.finish()                               # a BestPath

Arrays grow when a kernel says so; the frame is then done again, so that growing never
changes a result. What is recorded for a lattice is pruned whenever its arrays are full,
and they grow only where that frees less than half: they stay a small multiple of the
lattice itself. Segments that are settled leave it altogether when they are asked for.
"""

from __future__ import annotations

import copy
from itertools import pairwise
from typing import Any

import numpy as np
from numpy import uint32

from wfstdec.boost.tables import ListedWords, PhraseRows
from wfstdec.jit import jit
from wfstdec.search.paths.label_path import BestPath
from wfstdec.search.paths.so_far import PathSoFar
from wfstdec.search.paths.traceback import History
from wfstdec.search.paths.traceback_kernels import read
from wfstdec.wfst.cpu import arrays as k
from wfstdec.wfst.cpu import frame as cpu_kernels
from wfstdec.wfst.cpu import lattice_kernels as recording
from wfstdec.wfst.cpu.memory import SearchMemory, new_scratch
from wfstdec.wfst.cpu.oov import AddedArrays, with_scratch
from wfstdec.wfst.final import best_end, best_so_far
from wfstdec.wfst.lattice_pack import Recorded, Segment, cuts_of
from wfstdec.wfst.options import SearchParams, WfstOptions

FIRST_ARCS = 1 << 16
"""Room for so many arcs of a lattice at first."""
_NO_NODE = uint32(k.NONE)

SearchInputs = tuple[k.GraphArrays, SearchParams, ListedWords, PhraseRows | None]
"""What a search goes by: the first arguments of kernels.

They stay apart, and `AddedArrays` from them: numba leaves out code only where `None` is
an argument. `PhraseRows` are needed for phrases, and for bonuses above an instalment.
"""


class CpuSearch:
    """The search of one utterance: `advance` any number of times, then `finish`."""

    def __init__(
        self, memory: SearchMemory, inputs: SearchInputs, added: AddedArrays | None
    ) -> None:
        self._memory = memory
        self._inputs, self._added = inputs, added
        self._boosted = inputs[-1] is not None
        self._record: Any = None  # a `k.Record` where a lattice is wanted
        self._utterance = memory.states[self._boosted].take()
        cpu_kernels.restart(self._utterance)
        rule = memory.rule
        if added is not None:
            rule = rule._replace(added=added.arcs)
        self._history = History(rule)

    @property
    def counts(self) -> dict[str, int]:
        """Scratch done so far: `frames`, and sums of `active` states and `arcs`."""
        names = {"frames": k.FRAMES, "active": k.ACTIVE, "arcs": k.ARCS}
        return {name: int(self._utterance.counts[at]) for name, at in names.items()}

    def advance(self, logprobs: np.ndarray) -> None:
        """Pass the search through a chunk, float32 [T, V], C order."""
        entries = int(self._utterance.counts[k.FRONTIER])
        scratches = self._memory.scratches[self._boosted]
        scratch = scratches.take(entries)
        try:
            frame, status = 0, -1
            while status != k.OK:
                status, frame = cpu_kernels.advance(
                    *(*self._inputs, self._added),
                    *(scratch, self._utterance, logprobs, frame, self._record),
                )
                scratch = self._grow(status, scratch)
        finally:
            scratches.give(scratch)

    def finish(self) -> BestPath:
        """End the utterance; the search cannot be used afterwards."""
        self._begin()
        utterance, counts = self._utterance, self._utterance.counts
        graph, params, *_ = self._inputs
        at, cost, final, said = best_path(
            self._history.state,
            *(utterance.frontier, utterance.trace, counts),
            *(graph.final_cost, params.lm_scale),
            self._boosts_at_end(),
        )
        # The history has what was folded away; what was said since is read from the
        # trace.
        state = utterance.frontier[at]["state"]
        path = BestPath(
            said=self._history.after_settled(*said),
            final_cost=float(graph.final_cost[state]) if final else 0.0,
            search_cost=float(utterance.base[0]) + cost,
            reached_final=final,
            num_frames=int(counts[k.FRAMES]),
            died_at_frame=int(counts[k.DIED]),
        )
        self._memory.states[self._boosted].give(utterance)
        return path

    def look(self) -> PathSoFar:
        """How far the search has come; it goes on as if nobody had looked."""
        self._begin()
        self._fold()
        utterance, counts = self._utterance, self._utterance.counts
        graph, params, *_ = self._inputs
        at, cost, ended = best_so_far(
            utterance.frontier[: counts[k.FRONTIER]],
            graph.final_cost,
            params.lm_scale,
            bool(counts[k.DIED] < 0),
            self._boosts_at_end(),
        )
        nothing = np.zeros(0, np.int64), np.zeros(0, np.float32)
        history = self._history
        return PathSoFar(
            settled=history.settled,
            said_since=lambda *since: history.read(at, *nothing, since),
            num_frames=int(counts[k.FRAMES]),
            final_cost=ended - cost,
        )

    def _boosts_at_end(self) -> tuple[np.ndarray, np.ndarray, np.float32] | None:
        """Boosts as `best_end` takes them."""
        _, params, _, phrases = self._inputs
        if phrases is None:
            return None
        states = self._utterance.boosts["boost"]
        return states, phrases.final_cost, params.instalment

    def _begin(self) -> None:
        """Make the frontier before the first frame, where none has come."""
        if self._utterance.counts[k.FRONTIER] == 0:
            self.advance(np.zeros((0, len(self._memory.graph.tokens)), np.float32))

    def _fold(self) -> None:
        """Keep of the trace what was said; of what has not begun there is none."""
        utterance, counts = self._utterance, self._utterance.counts
        if counts[k.FRONTIER] == 0:
            return
        frontier = utterance.frontier[: counts[k.FRONTIER]]
        nodes = self._history.fold(frontier, utterance.trace, counts[k.TRACE])
        counts[k.TRACE] = nodes

    def _grow(self, status: int, scratch: k.Scratch) -> k.Scratch:
        """Enlarge what a kernel found too small; returns the scratch to go on with."""
        utterance = self._utterance
        if status == k.GROW_SCRATCH:
            entries, candidates = len(scratch.next), len(scratch.candidates)
            graph, boosted = self._memory.graph, self._boosted
            return new_scratch(graph, 2 * entries, 2 * candidates, boosted)
        if status == k.GROW_ADDED and self._added is not None:
            self._added = with_scratch(self._added, 2 * len(self._added.next))
        if status == k.GROW_FRONTIER:
            size = 2 * len(scratch.next)
            frontier = k.longer(utterance.frontier, size)
            boosts = k.longer(utterance.boosts, size if self._boosted else 0)
            self._utterance = utterance._replace(frontier=frontier, boosts=boosts)
        if status == k.GROW_TRACE:
            self._make_room_in_trace(len(scratch.next))
        return scratch

    def _make_room_in_trace(self, most: int) -> None:
        """Fold the trace; lengthen it where that frees less than half."""
        self._fold()
        utterance = self._utterance
        needed = 2 * (int(utterance.counts[k.TRACE]) + most)
        if needed > len(utterance.trace):
            self._utterance = utterance._replace(
                trace=k.longer(utterance.trace, needed)
            )


class RecordingSearch(CpuSearch):
    """The search of one utterance: `advance` any number of times, then `finish`."""

    def __init__(
        self,
        memory: SearchMemory,
        inputs: SearchInputs,
        added: AddedArrays | None,
        options: WfstOptions,
        first_arcs: int = FIRST_ARCS,
    ) -> None:
        super().__init__(memory, inputs, added)
        record = memory.records.take(first_arcs)
        if not self._boosted:  # those of another search: kernels go by their length
            record = record._replace(boosts=record.boosts[:0])
        limit = np.float32(options.beam_of_lattice)
        self._record: k.Record = record._replace(limit=limit)
        self._record.counts[:] = 0
        self._start = 0, np.uint32(0)  # frame and graph state of the first node
        self._insertion = np.float32(options.word_insertion)
        self._fit_to_trace()

    def advance(self, logprobs: np.ndarray) -> None:
        """Pass the search through a chunk, float32 [T, V], C order."""
        frames, rows = self._record.frames, int(self._record.counts[2])
        needed = rows + len(logprobs) + 1
        if needed > len(frames):
            longer = np.empty((2 * needed, 2), np.int64)
            longer[:rows] = frames[:rows]
            self._record = self._record._replace(frames=longer)
        super().advance(logprobs)

    def finish(self) -> Recorded:  # type: ignore[override]
        """End the utterance; the search cannot be used afterwards."""
        self._begin()
        utterance, record = self._utterance, self._record
        graph, params, *_ = self._inputs
        states, arcs = recording.gather_last(
            (*self._inputs, self._added),
            utterance.frontier[: utterance.counts[k.FRONTIER]],
            (
                self._boosts_at_end(),
                graph.final_cost,
                params.lm_scale,
                bool(utterance.counts[k.DIED] < 0),
            ),
            (utterance.trace, record),
            (*self._start, self._insertion),
        )
        recorded = Recorded(super().finish(), states, arcs)
        self._memory.records.give(record)
        return recorded

    def settle(self, shortest: int) -> list[Segment]:
        """The segments that are settled since the last call; they are forgotten."""
        self._begin()
        self._make_room(0, 0)
        utterance, record = self._utterance, self._record
        frames = record.frames[: record.counts[2]]
        cuts = cuts_of(np.diff(frames[:, 0], prepend=0), shortest)
        segments = []
        for rows in pairwise([0, *cuts]):
            arrays = recording.gather(
                (*self._inputs, self._added),
                *(utterance.trace, record, (*self._start, self._insertion), rows),
            )
            segments.append(Segment.closed(*arrays))
        if cuts:
            self._forget(cuts[-1], segments[-1])
        return segments

    def _forget(self, row: int, segment: Segment) -> None:
        """Let the search begin at the last state of a segment, in a row of frames."""
        utterance, counts = self._utterance, self._utterance.counts
        node = int(self._record.frames[row - 1, 0])
        last = np.zeros(1, k.ENTRY)
        last["node"] = node
        self._history.fold(last, utterance.trace[: node + 1].copy(), node + 1)
        frontier = utterance.frontier[: counts[k.FRONTIER]]
        counts[k.TRACE] = recording.forget(frontier, utterance.trace, self._record, row)
        end = segment.states[-1]
        self._start = int(end["frame"]), np.uint32(end["graph_state"])

    def look(self) -> PathSoFar:
        """How far the search has come; it goes on as if nobody had looked."""
        self._begin()
        utterance, counts = self._utterance, self._utterance.counts
        # Looking folds the trace, whose nodes the lattice needs: a copy is folded.
        other = copy.copy(self)
        other._utterance = utterance._replace(
            frontier=utterance.frontier[: counts[k.FRONTIER]].copy(),
            trace=utterance.trace[: counts[k.TRACE]].copy(),
            counts=counts.copy(),
        )
        other._history = self._history.copy()
        return CpuSearch.look(other)

    def _grow(self, status: int, scratch: k.Scratch) -> k.Scratch:
        """Enlarge what a kernel found too small; returns the scratch to go on with."""
        if status == k.GROW_NOTED:
            counts = self._record.counts
            self._make_room(0, int(counts[1] - counts[0]))
            return scratch
        return super()._grow(status, scratch)

    def _make_room_in_trace(self, most: int) -> None:
        self._make_room(most, 0)

    def _make_room(self, nodes: int, arcs: int) -> None:
        """Prune; lengthen what that leaves more than half full."""
        utterance, record = self._utterance, self._record
        counts = utterance.counts
        frontier = utterance.frontier[: counts[k.FRONTIER]]
        # Pruned first: usually that makes room enough, and memory follows what is kept,
        # not what was looked at.
        if len(frontier):
            none = np.zeros(len(frontier), np.float32)  # the least it can come to
            counts[k.TRACE], record.counts[0] = recording.keep(
                frontier, none, utterance.trace, record
            )
        needed = 2 * (int(counts[k.TRACE]) + nodes)
        if needed > len(utterance.trace):
            self._utterance = utterance._replace(
                trace=k.longer(utterance.trace, needed)
            )
            self._fit_to_trace()
        needed = 2 * (int(record.counts[0]) + arcs)
        if needed > len(record.arcs):
            longer = k.longer(record.arcs, needed)
            self._record = self._record._replace(arcs=longer)

    def _fit_to_trace(self) -> None:
        """Make what is there for each node of the trace as long as it."""
        record, size = self._record, len(self._utterance.trace)
        if len(record.extra) < size:
            self._record = record = record._replace(
                extra=np.empty(size, np.float32),
                number=np.empty(size, np.int32),
                kept=np.empty(size, np.int32),
            )
        if self._boosted and len(record.boosts) < size:
            self._record = record._replace(boosts=k.longer(record.boosts, size))


@jit
def walk_back(trace, node):
    """The arcs from a root to a node, and their acoustic costs.

    Returns:
        (number of the root's tip, int64 [N], float32 [N]).
    """
    length = 0
    at = node
    while trace[at].arc != _NO_NODE:
        length += 1
        at = trace[at].previous
    root = np.int64(trace[at].acoustic)
    arcs, acoustic = np.empty(length, np.int64), np.empty(length, np.float32)
    at = node
    while trace[at].arc != _NO_NODE:
        length -= 1
        arcs[length] = trace[at].arc
        acoustic[length] = trace[at].acoustic
        at = trace[at].previous
    return root, arcs, acoustic


@jit
def best_path(state, frontier, trace, counts, final_cost, lm_scale, boosts):
    """`best_end`, `walk_back` and `read` in one call; `state` is that of a history.

    Returns:
        (position of the entry to end at, cost, whether it is final, what `read`
        returns).
    """
    entries = frontier[: counts[k.FRONTIER]]
    survived = counts[k.DIED] < 0
    at, cost, final = best_end(entries, final_cost, lm_scale, survived, boosts)
    root, arcs, acoustic = walk_back(trace, frontier[at].node)
    said = read(*state, root, arcs, acoustic)
    return at, np.float64(cost), final, said
