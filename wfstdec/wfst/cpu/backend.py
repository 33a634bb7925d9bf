"""The CPU backend: numba kernels, no GIL, one utterance per thread.

    backend = CpuBackend(graph)
    search = backend.start(options, boosts)       # one utterance
    search.advance(logprobs)                      # float32 [T, V], any number of times
    search.finish()                               # a BestPath

Arrays grow when a kernel says so; the frame is then done again, so that growing never
changes a result.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

import numpy as np

from wfstdec.boost.compile import CompiledBoosts
from wfstdec.boost.phrases import PhraseBoosts
from wfstdec.boost.tables import (
    ListedWords,
    PhraseRows,
    WordPlaces,
    list_words,
    no_phrases,
    no_words,
)
from wfstdec.graph.overlay import Overlay
from wfstdec.graph.packed import PackedGraph
from wfstdec.search.paths.label_path import BestPath
from wfstdec.search.paths.so_far import PathSoFar
from wfstdec.search.paths.traceback import History, rule_of
from wfstdec.wfst.added import Overlays
from wfstdec.wfst.cpu import arrays as k
from wfstdec.wfst.cpu import frame as cpu_kernels
from wfstdec.wfst.cpu import traceback as trace
from wfstdec.wfst.cpu.emitting import BLOCK_ARCS, CREDIT_LEVELS, LEVELS
from wfstdec.wfst.cpu.layout import graph_arrays, phrase_rows_of, with_plain_sets
from wfstdec.wfst.cpu.oov import AddedArrays, added_arrays, with_scratch
from wfstdec.wfst.final import best_so_far
from wfstdec.wfst.options import SearchParams, WfstOptions, search_params

if TYPE_CHECKING:
    from wfstdec.wfst.cpu.lattice import RecordingSearch

MANY_FRAMES, LONG_TRACE = 100, 1 << 20
"""With so many frames of a chunk to go, traces grow to so many nodes (12 MB)."""
NO_PHRASES = no_phrases()


SearchInputs = tuple[k.GraphArrays, SearchParams, ListedWords, PhraseRows | None]
"""What a search goes by: the first arguments of kernels.

They stay apart, and `AddedArrays` from them: numba leaves out code only where `None` is
an argument. `PhraseRows` are needed for phrases, and for bonuses above an instalment.
"""


class CpuBackend:
    """A graph laid out for the CPU kernels, and pools of scratch memory.

    Args:
        graph: The graph.
        first_capacity: Entries that the scratch arrays hold at first; they grow.
    """

    group_size = k.GROUP

    def __init__(self, graph: PackedGraph, first_capacity: int = 4096) -> None:
        self.graph = graph
        self.arrays = graph_arrays(graph)
        self.rule = rule_of(graph)
        self._overlays = Overlays(graph)
        self._added: WeakKeyDictionary[Overlay, AddedArrays] = WeakKeyDictionary()
        self._capacity = first_capacity
        self._lock = threading.Lock()
        self._scratches: dict[bool, list[k.Scratch]] = {False: [], True: []}
        self._states: dict[bool, list[k.UtteranceState]] = {False: [], True: []}
        self._records: list[k.Record] = []
        self._arrays_of: dict[str, k.GraphArrays] = {}
        self._word_arcs: WordPlaces | None = None
        self._words: WeakKeyDictionary[CompiledBoosts, ListedWords]
        self._words = WeakKeyDictionary()
        self._phrases: WeakKeyDictionary[PhraseBoosts, PhraseRows] = WeakKeyDictionary()

    def start(self, options: WfstOptions, boosts: CompiledBoosts) -> CpuSearch:
        """Begin an utterance."""
        return CpuSearch(self, *self.inputs_of(options, boosts))

    def decode_group(
        self,
        utterances: Sequence[np.ndarray],
        options: WfstOptions,
        boosts: CompiledBoosts,
    ) -> list[BestPath]:
        """Decode whole utterances with the same boosts, at most `group_size`."""
        from wfstdec.wfst.cpu.groups import GroupSearch  # it imports this module

        if boosts.added is None:
            return GroupSearch(self, *self.inputs_of(options, boosts)).decode(
                utterances
            )
        paths = []
        for logprobs in utterances:
            search = self.start(options, boosts)
            search.advance(logprobs)
            paths.append(search.finish())
        return paths

    def start_recording(
        self, options: WfstOptions, boosts: CompiledBoosts
    ) -> RecordingSearch:
        """Begin an utterance of which a lattice is wanted."""
        from wfstdec.wfst.cpu.lattice import RecordingSearch  # it imports this module

        return RecordingSearch(self, *self.inputs_of(options, boosts), options)

    def inputs_of(
        self, options: WfstOptions, boosts: CompiledBoosts
    ) -> tuple[SearchInputs, AddedArrays | None]:
        """What a search goes by."""
        params = search_params(options, bool(boosts.words))
        top_bonus, added = boosts.words.top_bonus, None
        if boosts.added is not None:
            overlay = self._overlays.of(boosts.added)
            if overlay not in self._added:
                self._added[overlay] = added_arrays(overlay)
            added = with_scratch(self._added[overlay])
            top_bonus = top_bonus + overlay.top_bonus
        if boosts.phrases is None and not top_bonus > params.instalment:
            return (self.arrays, params, self._listed(boosts), None), added
        arrays, words, phrases = self._lay_out(boosts)
        return (arrays, params, words, phrases), added

    def _listed(self, boosts: CompiledBoosts) -> ListedWords:
        """Boosted words as the kernels take them; made once."""
        of_words = boosts.phrases is not None and boosts.phrases.unit == "word"
        if not boosts.words and not of_words:
            return no_words()
        with self._lock:
            if boosts not in self._words:
                if self._word_arcs is None:
                    graph = self.graph
                    olabel, num_words = graph.arcs["olabel"], len(graph.words)
                    self._word_arcs = WordPlaces(
                        olabel, graph.state_arc_splits, num_words
                    )
                self._words[boosts] = list_words(boosts, self._word_arcs)
            return self._words[boosts]

    def _lay_out(
        self, boosts: CompiledBoosts
    ) -> tuple[k.GraphArrays, ListedWords, PhraseRows]:
        """The graph where boosts have states, and the boosts; made once."""
        words, phrases = self._listed(boosts), boosts.phrases
        with self._lock:
            if phrases is None:
                return self.arrays, words, NO_PHRASES
            unit = phrases.unit
            if unit not in self._arrays_of:
                self._arrays_of[unit] = with_plain_sets(self.graph, self.arrays, unit)
            if phrases not in self._phrases:
                self._phrases[phrases] = phrase_rows_of(phrases)
            return self._arrays_of[unit], words, self._phrases[phrases]

    def take_scratch(self, entries: int, boosted: bool) -> k.Scratch:
        """Scratch for one thread and that many entries, from the pool or new."""
        with self._lock:
            while self._scratches[boosted]:
                scratch = self._scratches[boosted].pop()
                if len(scratch.next) >= entries:
                    return scratch
        entries = max(entries, self._capacity)
        return _new_scratch(self.graph, entries, 4 * entries, boosted)

    def give_scratch(self, scratch: k.Scratch, boosted: bool) -> None:
        """Put scratch back."""
        with self._lock:
            self._scratches[boosted].append(scratch)

    def take_state(self, boosted: bool) -> k.UtteranceState:
        """The state of an utterance, from the pool or new."""
        with self._lock:
            if self._states[boosted]:
                return self._states[boosted].pop()
        return k.UtteranceState(
            frontier=np.empty(self._capacity, k.ENTRY),
            boosts=np.empty(self._capacity if boosted else 0, k.BOOST),
            trace=np.empty(16 * self._capacity, k.NODE),
            counts=np.zeros(10, np.int64),
            base=np.zeros(1),
            beam=np.zeros(1, np.float32),
            top_credit=np.zeros(1, np.float32),
        )

    def give_state(self, utterance: k.UtteranceState, boosted: bool) -> None:
        """Put a utterance back, unless the pool has as many as there may be threads."""
        with self._lock:
            pool = self._states[boosted]
            if len(pool) < max(1, len(self._scratches[boosted])):
                pool.append(utterance)

    def take_record(self, arcs: int) -> k.Record:
        """Room for what a lattice is made of, from the pool or new."""
        with self._lock:
            if self._records:
                return self._records.pop()
        return k.Record(
            arcs=np.empty(arcs, k.NOTED),
            boosts=np.empty(0, np.uint32),
            extra=np.empty(0, np.float32),
            number=np.empty(0, np.int32),
            kept=np.empty(0, np.int32),
            frames=np.empty((0, 2), np.int64),
            counts=np.zeros(3, np.int64),
            limit=np.float32(0),
        )

    def give_record(self, record: k.Record) -> None:
        """Put room back, unless the pool has as many as there may be threads."""
        with self._lock:
            if len(self._records) < max(1, *map(len, self._scratches.values())):
                self._records.append(record)


class CpuSearch:
    """The search of one utterance: `advance` any number of times, then `finish`."""

    def __init__(
        self, backend: CpuBackend, inputs: SearchInputs, added: AddedArrays | None
    ) -> None:
        self._backend = backend
        self._inputs, self._added = inputs, added
        self._boosted = inputs[-1] is not None
        self._record: Any = None  # a `k.Record` where a lattice is wanted
        self._restart()

    def _restart(self) -> None:
        """Begin an utterance in a state of its own."""
        self._utterance = self._backend.take_state(self._boosted)
        cpu_kernels.restart(self._utterance)
        rule = self._backend.rule
        if self._added is not None:
            rule = rule._replace(added=self._added.arcs)
        self._history = History(rule)

    @property
    def counts(self) -> dict[str, int]:
        """Scratch done so far: `frames`, and sums of `active` states and `arcs`."""
        names = {"frames": k.FRAMES, "active": k.ACTIVE, "arcs": k.ARCS}
        return {name: int(self._utterance.counts[at]) for name, at in names.items()}

    def advance(self, logprobs: np.ndarray) -> None:
        """Pass the search through a chunk, float32 [T, V], C order."""
        entries = int(self._utterance.counts[k.FRONTIER])
        scratch = self._backend.take_scratch(entries, self._boosted)
        try:
            frame, status = 0, -1
            while status != k.OK:
                status, frame = cpu_kernels.advance(
                    *(*self._inputs, self._added),
                    *(scratch, self._utterance, logprobs, frame, self._record),
                )
                scratch = self._grow(status, scratch, len(logprobs) - frame)
        finally:
            self._backend.give_scratch(scratch, self._boosted)

    def finish(self) -> BestPath:
        """End the utterance; the search cannot be used afterwards."""
        self._begin()
        utterance, counts = self._utterance, self._utterance.counts
        graph, params, *_ = self._inputs
        at, cost, final, said = trace.best_path(
            self._history.state,
            *(utterance.frontier, utterance.trace, counts),
            *(graph.final_cost, params.lm_scale),
            self._boosts_at_end(),
        )
        state = utterance.frontier[at]["state"]
        path = BestPath(
            said=self._history.after_settled(*said),
            final_cost=float(graph.final_cost[state]) if final else 0.0,
            search_cost=float(utterance.base[0]) + cost,
            reached_final=final,
            num_frames=int(counts[k.FRAMES]),
            died_at_frame=int(counts[k.DIED]),
        )
        self._backend.give_state(utterance, self._boosted)
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
        """What `best_end` takes of boosts."""
        _, params, _, phrases = self._inputs
        if phrases is None:
            return None
        states = self._utterance.boosts["boost"]
        return states, phrases.final_cost, params.instalment

    def _begin(self) -> None:
        """Make the frontier before the first frame, where none has come."""
        if self._utterance.counts[k.FRONTIER] == 0:
            self.advance(np.zeros((0, len(self._backend.graph.tokens)), np.float32))

    def _fold(self) -> None:
        """Keep of the trace what was said; of what has not begun there is none."""
        utterance, counts = self._utterance, self._utterance.counts
        if counts[k.FRONTIER] == 0:
            return
        frontier = utterance.frontier[: counts[k.FRONTIER]]
        nodes = self._history.fold(frontier, utterance.trace, counts[k.TRACE])
        counts[k.TRACE] = nodes

    def _grow(self, status: int, scratch: k.Scratch, frames_left: int) -> k.Scratch:
        """Enlarge what a kernel found too small; returns the scratch to go on with."""
        utterance = self._utterance
        if status == k.GROW_SCRATCH:
            entries, candidates = len(scratch.next), len(scratch.candidates)
            graph, boosted = self._backend.graph, self._boosted
            return _new_scratch(graph, 2 * entries, 2 * candidates, boosted)
        if status == k.GROW_ADDED and self._added is not None:
            self._added = with_scratch(self._added, 2 * len(self._added.next))
        if status == k.GROW_FRONTIER:
            size = 2 * len(scratch.next)
            frontier = k.longer(utterance.frontier, size)
            boosts = k.longer(utterance.boosts, size if self._boosted else 0)
            self._utterance = utterance._replace(frontier=frontier, boosts=boosts)
        if status == k.GROW_TRACE:
            self._make_room_in_trace(len(scratch.next), frames_left)
        return scratch

    def _make_room_in_trace(self, most: int, frames_left: int) -> None:
        """Fold the trace; lengthen it where that frees less than half.

        A whole utterance is quicker without folding, and its state goes back soon.
        """
        utterance = self._utterance
        whole = frames_left >= MANY_FRAMES and len(utterance.trace) < LONG_TRACE
        if not whole:
            self._fold()
        self._lengthen_trace(most)

    def _lengthen_trace(self, most: int) -> None:
        """Make room for as many nodes as there are, and twice `most` more."""
        utterance = self._utterance
        needed = 2 * (int(utterance.counts[k.TRACE]) + most)
        if needed > len(utterance.trace):
            self._utterance = utterance._replace(
                trace=k.longer(utterance.trace, needed)
            )


def _new_scratch(
    graph: PackedGraph, entries: int, candidates: int, boosted: bool
) -> k.Scratch:
    num_labels = len(graph.tokens) + 1
    hashed = 1 << (2 * entries).bit_length() if boosted else 0
    return k.Scratch(
        next=np.empty(entries, k.ENTRY),
        next_boosts=np.empty(entries if boosted else 0, k.NEXT_BOOSTS),
        candidates=np.empty(candidates, k.ENTRY),
        side=np.empty(candidates if boosted else 0, k.SIDE_ENTRY),
        chain=np.empty(entries if boosted else 0, np.uint32),
        listed=np.empty(3 * BLOCK_ARCS if boosted else BLOCK_ARCS, k.ENTRY_ARC),
        slots=np.zeros(graph.num_states, np.uint32),
        hashed=np.zeros(hashed, np.uint64),
        table=np.zeros(2, np.uint64),
        rank_heads=np.empty(int(graph.epsilon_rank.max()) + 1, np.uint32),
        links=np.empty(entries, np.uint32),
        waiting=np.empty(entries + 1, np.uint32),
        bins=np.empty(1024, np.uint32),
        keys=np.empty(entries, np.uint64),
        unscaled=np.zeros(num_labels, np.float32),
        token_costs=np.zeros(num_labels, np.float32),
        live_sets=np.zeros(LEVELS + CREDIT_LEVELS, np.uint64),
    )
