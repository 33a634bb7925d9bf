"""The search of one utterance by the CPU kernels, and the one that records a lattice.

    search = CpuSearch(memory, laid_out, lm, options, boosts)
    search.advance(logprobs)                      # float32 [T, V], any number of times
    paths = search.finish()                       # TokenPaths, best first

Arrays grow when a kernel says so; the frame is then done again, so that growing never
changes a result. What is recorded for a lattice is pruned whenever its arrays are full,
and they grow only where that frees less than half: they stay a small multiple of the
lattice itself.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import numpy as np

from wfstdec.boost.compiled import CompiledBoosts
from wfstdec.lm.on_demand import LmArrays
from wfstdec.search.interrupts import check
from wfstdec.search.paths.so_far import PathSoFar
from wfstdec.search.paths.token_path import SettledTokens, TokenPath, TokenRows
from wfstdec.trie.cpu import arrays as k
from wfstdec.trie.cpu import frame as kernels
from wfstdec.trie.cpu import lattice_kernels as recording
from wfstdec.trie.cpu.final import (
    accepted_endings,
    merge_texts,
    settle_trace,
    trace_back,
    unfinished_endings,
)
from wfstdec.trie.cpu.memory import SearchMemory, new_scratch
from wfstdec.trie.lattice_pack import Recorded, RecordedArcs, RecordedEntries
from wfstdec.trie.options import TrieOptions
from wfstdec.trie.reference_steps import Key, Steps
from wfstdec.trie.search_space import SearchSpace, lookahead_cost
from wfstdec.trie.traceback import Ending, Outcome, most_endings, path_of, start_cost

_Found = TypeVar("_Found")
FIRST_ENTRIES = 1024
FIRST_ARCS = 1 << 15
"""Room for so many arcs of a lattice at first, and for a quarter as many places."""


class CpuSearch:
    """The search of one utterance: `advance` any number of times, then `finish`."""

    def __init__(
        self,
        memory: SearchMemory,
        search: k.Search,
        lm: LmArrays,
        options: TrieOptions,
        boosts: CompiledBoosts,
    ) -> None:
        self._memory, self._options, self._boosts = memory, options, boosts
        self._search, self._lm = search, lm
        first = _first_entry(search, memory.space)
        frontier = np.zeros(min(options.beam_size, FIRST_ENTRIES), k.ENTRY)
        frontier[:1] = first
        counts = np.zeros(8, np.int64)
        counts[k.FRONTIER], counts[k.DIED] = 1, -1
        trace = np.empty(memory.capacity, k.TRACE_NODE)
        base = np.array([start_cost(options, first["lookahead_cost"][0])])
        self._utterance = k.UtteranceState(frontier, trace, counts, base)
        self._settled = SettledTokens()
        self._record: k.Record | None = None

    @property
    def counts(self) -> dict[str, int]:
        """Work done so far: `frames`, and sums of `active` entries and `candidates`."""
        names = {"frames": k.FRAMES, "active": k.ACTIVE, "candidates": k.CANDIDATES}
        return {name: int(self._utterance.counts[at]) for name, at in names.items()}

    @property
    def state(self) -> k.UtteranceState:
        """State of the utterance; kernels elsewhere may have advanced it."""
        return self._utterance

    @state.setter
    def state(self, state: k.UtteranceState) -> None:
        """Go on from another state of the same utterance."""
        self._utterance = state

    def advance(self, logprobs: np.ndarray) -> None:
        """Pass the search through a chunk, float32 [T, V], C order."""
        num_tokens = logprobs.shape[1]
        scratch = self._memory.take(num_tokens, len(self._utterance.frontier))
        try:
            with self._lm:
                frame, status = 0, -1
                self._take_model()
                while status != k.OK:
                    status, frame = kernels.advance(
                        *(self._search, scratch, self._utterance, self._record),
                        *(logprobs, frame),
                    )
                    scratch = self._grow(status, scratch)
                    if self._lm.answer():
                        self._take_model()
                        check()  # a model of the user's may be slow
        finally:
            self._memory.give(scratch)

    def _take_model(self) -> None:
        """Let kernels have the language model's arrays as they are now."""
        if self._search.space.automaton is not self._lm.now:
            space = self._search.space._replace(automaton=self._lm.now)
            self._search = self._search._replace(space=space)

    def _answered(self, find: Callable[[k.Search], _Found]) -> _Found:
        """Call kernels until the language model has answered what they ask."""
        with self._lm:
            self._take_model()
            found = find(self._search)
            while self._lm.answer():
                self._take_model()
                found = find(self._search)
        return found

    def finish(self) -> list[TokenPath]:
        """End the utterance; the search cannot be used afterwards."""
        counts, utterance = self._utterance.counts, self._utterance
        if self._search.params.by_text:  # sums are added up in this order
            utterance = self._in_order()
        endings, complete = self._endings(utterance)
        if not self._search.params.by_text:
            # Entries have no order of their own; only equal endings ask for one.
            costs = endings["cost"]
            if np.count_nonzero(costs == costs.min()) > 1:
                endings, complete = self._endings(self._in_order())
        outcome = Outcome(
            float(utterance.base[0]),
            complete,
            int(counts[k.FRAMES]),
            int(counts[k.DIED]),
        )
        return [
            path_of(self._tokens(ending), ending, outcome, self._options)
            for ending in self._best_of(endings)
        ]

    def _endings(self, utterance: k.UtteranceState) -> tuple[np.ndarray, bool]:
        """The ways to end, ENDING [N], and whether any is a whole sentence."""
        if utterance.counts[k.DIED] < 0:
            endings = self._answered(lambda search: accepted_endings(search, utterance))
            if (endings["cost"] < np.inf).any():
                return endings, True
        return unfinished_endings(self._search, utterance), False

    def look(self) -> PathSoFar[TokenRows]:
        """How far the search has come; it goes on as if nobody had looked."""
        self.settle_trace()
        counts, utterance = self._utterance.counts, self._in_order()
        unfinished = unfinished_endings(self._search, utterance)
        at = int(unfinished["cost"].argmin())
        ended = np.float32(np.inf)
        if counts[k.DIED] < 0:
            accepted = self._answered(
                lambda search: accepted_endings(search, utterance)
            )
            ended = accepted["cost"].min(initial=np.inf)
        (best,) = _as_endings(unfinished[at : at + 1])
        entry = utterance.frontier[at // 2]
        pron = self._ending_pron(entry)
        return PathSoFar(
            settled=self._settled,
            said_since=lambda token, _: TokenRows(self._tokens(best, token), pron),
            num_frames=int(counts[k.FRAMES]),
            final_cost=float(ended) - float(best.cost),
        )

    def settle_trace(self) -> None:
        """Take out of the trace what is settled, and what no entry can reach."""
        self._settled.add(*settle_trace(self._utterance))

    def _ending_pron(self, entry: np.ndarray) -> int:
        """The cheapest pronunciation that ends at the node of an entry, or -1."""
        space, added = self._memory.space, self._search.added
        names = ("state", "node", "boost", "spelling", "text")
        key = Key(*(int(entry[name]) for name in names))
        with self._lm as lm:
            steps = Steps(space, self._options, self._boosts, added, lm)
            return steps.ending_pron(key)

    def _tokens(self, ending: Ending, since: int = 0) -> np.ndarray:
        """The tokens of an ending but the first ones, as rows of `TokenPath`."""
        trace = self._utterance.trace
        rows, end = trace_back(trace, ending.trace, ending.token_end)
        return self._settled.followed_by(rows, end, since)

    def _best_of(self, endings: np.ndarray) -> list[Ending]:
        """The endings that become paths, best first."""
        if not self._search.params.by_text:
            at = endings["cost"].argmin()
            return _as_endings(endings[at : at + 1])
        best, costs = merge_texts(endings, self._search.params.sums)
        has_lexicon = self._search.space.has_lexicon
        most = most_endings(self._options, has_lexicon=has_lexicon)
        order = costs.argsort(kind="stable")[:most]
        chosen = endings[best[order]]
        chosen["cost"] = costs[order]
        return _as_endings(chosen)

    def _in_order(self) -> k.UtteranceState:
        """The utterance with its entries in order: the first of equal endings wins."""
        frontier = self._utterance.frontier[: self._utterance.counts[k.FRONTIER]]
        keys = [frontier[name] for name in ("text", "spelling", "boost", "node")]
        states = self._lm.orders(frontier["state"])
        order = np.lexsort([*keys, states, frontier["cost"]])
        return self._utterance._replace(frontier=frontier[order])

    def _grow(self, status: int, scratch: k.Scratch) -> k.Scratch:
        """Enlarge what a kernel found too small; returns the scratch to go on with."""
        utterance = self._utterance
        if status == k.GROW_CANDIDATES:
            sizes = (
                len(scratch.costs),
                len(scratch.sources),
                2 * len(scratch.candidates),
            )
            return new_scratch(*sizes, self._memory.most_words)
        if status == k.GROW_FRONTIER:
            size = 2 * len(utterance.frontier)
            frontier = np.zeros(size, k.ENTRY)
            frontier[: len(utterance.frontier)] = utterance.frontier
            self._utterance = utterance._replace(frontier=frontier)
            sizes = len(scratch.costs), size, len(scratch.candidates)
            return new_scratch(*sizes, self._memory.most_words)
        if status == k.GROW_TRACE:
            self.settle_trace()
            kept = int(utterance.counts[k.TRACE])
            most = 2 * len(scratch.candidates)
            if 2 * (kept + most) > len(utterance.trace):
                longer = np.empty(2 * (len(utterance.trace) + most), k.TRACE_NODE)
                longer[:kept] = utterance.trace[:kept]
                self._utterance = utterance._replace(trace=longer)
        return scratch


class RecordingSearch(CpuSearch):
    """The search of one utterance: `advance` any number of times, then `finish`."""

    _record: k.Record

    def __init__(
        self,
        memory: SearchMemory,
        search: k.Search,
        lm: LmArrays,
        options: TrieOptions,
        boosts: CompiledBoosts,
        *,
        first_arcs: int = FIRST_ARCS,
    ) -> None:
        super().__init__(memory, search, lm, options, boosts)
        limit = np.float32(options.beam_of_lattice)
        self._record = _new_record(first_arcs, max(1, first_arcs // 4), limit)
        first, place = self._utterance.frontier[0], self._record.places[:1]
        for name in ("cost", "lookahead_cost", "state", "node", "boost", "spelling"):
            place[name] = first[name]
        place["frame"] = place["nonblank_first"] = 0
        self._record.counts[:] = 0, 1, 0

    def finish(self) -> Recorded:  # type: ignore[override]
        """End the utterance; the search cannot be used afterwards."""
        record, ends = self._record, self._ends()
        by_state = np.full(2 * self._utterance.counts[k.FRONTIER], np.inf, np.float32)
        np.minimum.at(by_state, 2 * ends["entry"] + ends["phase"], ends["cost"])
        recording.spread(record, by_state)
        first = record.counts[k.FIRST]
        recording.keep(record)
        ends["entry"] = record.number[first + ends["entry"]]
        arcs = self._answered(lambda search: recording.gather(search, record, ends))
        places = record.places[: record.counts[k.NUM_PLACES]]
        names = ("frame", "cost", "node", "boost", "spelling")
        columns = {name: places[name].copy() for name in names}
        return Recorded(
            super().finish()[0],
            RecordedEntries(
                nonblank_first=places["nonblank_first"] != 0,
                state=self._lm.orders(places["state"].copy()),
                **columns,
            ),
            RecordedArcs(*arcs),
        )

    def _ends(self) -> np.ndarray:
        """The ends within the limit, ENDING [N]; their costs are excess."""
        utterance, ends = self._utterance, np.zeros(0, k.ENDING)
        if utterance.counts[k.DIED] < 0:
            ends = self._answered(lambda search: accepted_endings(search, utterance))
        if not (ends["cost"] < np.inf).any():
            ends = unfinished_endings(self._search, utterance)
        ends = ends[ends["cost"] < np.inf]
        ends["cost"] -= ends["cost"].min()
        return ends[ends["cost"] <= self._record.limit]

    def _grow(self, status: int, scratch: k.Scratch) -> k.Scratch:
        """Enlarge what a kernel found too small; returns the scratch to go on with."""
        if status == k.GROW_NOTED:
            self._make_room(4 * len(scratch.candidates), len(self._utterance.frontier))
            return scratch
        return super()._grow(status, scratch)

    def _make_room(self, arcs: int, places: int) -> None:
        """Prune; lengthen what that leaves more than half full."""
        record, counts = self._record, self._record.counts
        recording.prune(record, self._utterance.counts[k.FRONTIER])
        needed = 2 * (int(counts[k.NUM_ARCS]) + arcs)
        if needed > len(record.arcs):
            record = record._replace(arcs=_longer(record.arcs, needed))
        needed = 2 * (int(counts[k.NUM_PLACES]) + places)
        if needed > len(record.places):
            record = record._replace(
                places=_longer(record.places, needed),
                extra=np.empty(2 * needed, np.float32),
                number=np.empty(needed, np.int32),
            )
        self._record = record


def _first_entry(search: k.Search, space: SearchSpace) -> np.ndarray:
    """The entry before the first frame, ENTRY [1]."""
    first = np.zeros(1, k.ENTRY)
    state = int(search.space.automaton.model_start[0])
    first["state"], first["node"] = state, space.start_node
    first["boost"] = search.phrases.start
    first["lookahead_cost"] = lookahead_cost(space, state, space.start_node)
    first["nonblank_cost"] = np.inf
    first["blank_trace"], first["nonblank_trace"] = -1, -1
    return first


def _as_endings(endings: np.ndarray) -> list[Ending]:
    """Records as tuples; costs stay float32."""
    others = (endings[name].tolist() for name in Ending._fields[1:])
    return [
        Ending(cost, *rest)
        for cost, *rest in zip(endings["cost"], *others, strict=True)
    ]


def _new_record(arcs: int, places: int, limit: np.float32) -> k.Record:
    return k.Record(
        arcs=np.empty(arcs, k.NOTED),
        places=np.zeros(places, k.PLACE),
        counts=np.zeros(3, np.int64),
        limit=limit,
        extra=np.empty(2 * places, np.float32),
        number=np.empty(places, np.int32),
    )


def _longer(array: np.ndarray, size: int) -> np.ndarray:
    longer = np.zeros(size, array.dtype)
    longer[: len(array)] = array
    return longer
