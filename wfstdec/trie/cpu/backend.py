"""The CPU backend of the trie search: numba kernels, no GIL, an utterance per thread.

    backend = CpuBackend(space)
    search = backend.start(options, boosts)       # one utterance
    search.advance(logprobs)                      # float32 [T, V], any number of times
    paths = search.finish()                       # TokenPaths, best first

Arrays grow when a kernel reports that they are too small; the frame is then repeated,
so that growth never changes a result. The record of a lattice is pruned when its arrays
are full, and they grow only if that frees less than half: they stay a small multiple of
the lattice.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from operator import attrgetter
from typing import TypeVar

import numpy as np

from wfstdec.boost.compiled import CompiledBoosts
from wfstdec.boost.tables import BoostTables
from wfstdec.jit import read_only
from wfstdec.jit.records import WeakCache, longer
from wfstdec.lm.on_demand import LmArrays
from wfstdec.search.paths.tokens import (
    OPEN_PRON,
    PartialPath,
    SettledTokens,
    TokenPath,
    TokenRows,
)
from wfstdec.search.threads import CallBudget, GroupingBackend, check
from wfstdec.text.vocabulary import OovWords
from wfstdec.trie.cpu import arrays
from wfstdec.trie.cpu import frame as kernels
from wfstdec.trie.cpu import lattice_kernels as recording
from wfstdec.trie.cpu.final import (
    accepted_endings,
    end_alone,
    settle_trace,
    trace_back,
    unfinished_endings,
)
from wfstdec.trie.cpu.groups import (
    FoundPaths,
    SearchMemory,
    begin,
    decode_group,
    grown,
    new_state,
    with_model,
)
from wfstdec.trie.cpu.nodes import num_word_ends, word_end
from wfstdec.trie.lattice_pack import RecordedArcs, RecordedEntries, RecordedFrames
from wfstdec.trie.oov_trie import (
    OovTrie,
    build_oov_trie,
    least_label_costs,
    no_oov,
)
from wfstdec.trie.options import TrieOptions
from wfstdec.trie.search_space import (
    NONE,
    SearchSpace,
    WordEnd,
    lookahead_cost,
    start_cost,
)

_Found = TypeVar("_Found")


class CpuSearch:
    """The search of one utterance: `advance` any number of times, then `finish`."""

    def __init__(
        self,
        memory: SearchMemory,
        search: arrays.Search,
        lm: LmArrays,
        options: TrieOptions,
        boosts: CompiledBoosts,
    ) -> None:
        self._memory, self._options, self._boosts = memory, options, boosts
        self._search, self._lm = search, lm
        self.state = new_state(memory.capacity, options.beam_size)
        begin(search, self.state)
        self._settled = SettledTokens()
        self._record = self._new_record()

    def _new_record(self) -> arrays.Record | None:
        """Room for what a search notes; None notes nothing."""
        return None

    @property
    def counts(self) -> dict[str, int]:
        """Work done so far: `frames`, and sums of `active` entries and `candidates`."""
        names = {
            "frames": arrays.FRAMES,
            "active": arrays.ACTIVE,
            "candidates": arrays.CANDIDATES,
        }
        return {name: int(self.state.counts[at]) for name, at in names.items()}

    def advance(self, logprobs: np.ndarray) -> None:
        """Pass the search through a chunk, float32 [T, V], C order."""
        frame = 0

        def run(scratch: arrays.Scratch) -> int:
            nonlocal frame
            status, frame = kernels.advance(
                self._search, scratch, self.state, self._record, logprobs, frame
            )
            return status

        self._until_done(run)

    def _until_done(self, call: Callable[[arrays.Scratch], int]) -> None:
        """Call a kernel until it is done: arrays grow, the language model answers."""
        num_tokens = self._memory.space.num_tokens
        scratch, status = self._memory.take(num_tokens, len(self.state.frontier)), -1
        try:
            with self._lm:
                while status != arrays.OK:
                    self._search = with_model(self._search, self._lm)
                    status = call(scratch)
                    scratch = self._grow(status, scratch)
                    if self._lm.answer():
                        check()  # a model of the user's may be slow
        finally:
            self._memory.give(scratch)

    def _answered(self, find: Callable[[arrays.Search], _Found]) -> _Found:
        """Call kernels until the language model has answered what they ask."""
        with self._lm:
            found = find(with_model(self._search, self._lm))
            while self._lm.answer():
                found = find(with_model(self._search, self._lm))
        return found

    def finish(self) -> list[TokenPath]:
        """End the utterance; the search cannot be used afterwards."""
        params, utterance = self._search.params, self.state
        if params.by_text:  # the order of sums
            utterance = self._in_order()
        found = FoundPaths.room_for(
            1, params.nbest, int(utterance.counts[arrays.FRAMES])
        )

        def end(scratch: arrays.Scratch) -> int:
            nonlocal found
            status = end_alone(self._search, scratch, utterance, *found)
            found = found.grown(status)
            return status

        self._until_done(end)
        return found.read({0: self._settled}, sums=params.sums)[0]

    def look(self) -> PartialPath[TokenRows]:
        """The partial result; the search is not changed."""
        self.settle_trace()
        counts, utterance = self.state.counts, self._in_order()
        unfinished = unfinished_endings(self._search, utterance)
        at = int(unfinished["cost"].argmin())
        ended = np.float32(np.inf)
        if counts[arrays.DIED] < 0:
            accepted = self._answered(
                lambda search: accepted_endings(search, utterance)
            )
            ended = accepted["cost"].min(initial=np.inf)
        best = unfinished[at]
        entry = utterance.frontier[at // 2]
        pron = self._ending_pron(entry)
        return PartialPath(
            settled=self._settled,
            unsettled=lambda token, _: TokenRows(self._tokens(best, token), pron),
            num_frames=int(counts[arrays.FRAMES]),
            final_cost=float(ended) - float(best["cost"]),
        )

    def settle_trace(self) -> None:
        """Take out of the trace what is settled, and what no entry can reach."""
        self._settled.add(*settle_trace(self.state))

    def _ending_pron(self, entry: np.ndarray) -> int:
        """The pronunciation of least cost that ends at an entry's node, or -1."""
        if not self._memory.space.has_lexicon or entry["node"] == 0:
            return NONE

        def ends(search: arrays.Search) -> list[WordEnd]:
            here = entry.view(np.recarray)
            count = num_word_ends(search, here.node)
            return [word_end(search, None, here, number) for number in range(count)]

        # An open word that is none costs `inf`.
        found = [
            one
            for one in self._answered(ends)
            if one.pron != OPEN_PRON or one.cost < np.inf
        ]
        best = min(found, key=attrgetter("cost"), default=None)
        return NONE if best is None else int(best.pron)

    def _tokens(self, ending: np.void, since: int) -> np.ndarray:
        """The tokens of an ending but the first ones, as rows of `TokenPath`."""
        at, token_end = int(ending["trace"]), int(ending["token_end"])
        rows, end = trace_back(self.state.trace, at, token_end)
        return self._settled.followed_by(rows, end, since)

    def _in_order(self) -> arrays.UtteranceState:
        """The utterance with its entries in order: the first of equal endings wins."""
        frontier = self.state.frontier[: self.state.counts[arrays.FRONTIER]]
        keys = [frontier[name] for name in ("text", "spelling", "boost", "node")]
        states = self._lm.orders(frontier["state"])
        order = np.lexsort([*keys, states, frontier["cost"]])
        return self.state._replace(frontier=frontier[order])

    def _grow(self, status: int, scratch: arrays.Scratch) -> arrays.Scratch:
        """Enlarge what a kernel found too small; returns the new scratch."""
        most_words = self._memory.most_words
        scratch, self.state = grown(
            status, scratch, self.state, most_words, self._settled
        )
        return scratch


class RecordingSearch(CpuSearch):
    """The search of one utterance: `advance` any number of times, then `finish`."""

    _record: arrays.Record
    first_arcs = 1 << 15
    """Room for arcs of a lattice at first, and for a quarter as many entries."""

    def _new_record(self) -> arrays.Record:
        num_entries = max(1, self.first_arcs // 4)
        first, entries = (
            self.state.frontier[0],
            np.zeros(num_entries, arrays.LATTICE_ENTRY),
        )
        for name in ("cost", "lookahead_cost", "state", "node", "boost", "spelling"):
            entries[0][name] = first[name]
        return arrays.Record(
            arcs=np.empty(self.first_arcs, arrays.LATTICE_ARC),
            entries=entries,
            counts=np.array([0, 1, 0]),
            limit=np.float32(self._options.beam_of_lattice),
            extra=np.empty(2 * num_entries, np.float32),
            number=np.empty(num_entries, np.int32),
        )

    def finish(self) -> RecordedFrames:  # type: ignore[override]
        """End the utterance; the search cannot be used afterwards."""
        record, ends = self._record, self._ends()
        by_state = np.full(2 * self.state.counts[arrays.FRONTIER], np.inf, np.float32)
        np.minimum.at(by_state, 2 * ends["entry"] + ends["phase"], ends["cost"])
        recording.spread(record, by_state)
        first = record.counts[arrays.FIRST]
        recording.keep(record)
        ends["entry"] = record.number[first + ends["entry"]]
        arcs = self._answered(lambda search: recording.gather(search, record, ends))
        entries = record.entries[: record.counts[arrays.NUM_ENTRIES]]
        names = ("frame", "cost", "node", "boost", "spelling")
        columns = {name: entries[name].copy() for name in names}
        return RecordedFrames(
            super().finish()[0],
            RecordedEntries(
                nonblank_first=entries["nonblank_first"] != 0,
                state=self._lm.orders(entries["state"].copy()),
                **columns,
            ),
            RecordedArcs(*arcs),
        )

    def _ends(self) -> np.ndarray:
        """The ends within the limit, ENDING [N]; their costs are excess."""
        utterance, ends = self.state, np.zeros(0, arrays.ENDING)
        if utterance.counts[arrays.DIED] < 0:
            ends = self._answered(lambda search: accepted_endings(search, utterance))
        if not (ends["cost"] < np.inf).any():
            ends = unfinished_endings(self._search, utterance)
        ends = ends[ends["cost"] < np.inf]
        ends["cost"] -= ends["cost"].min()
        return ends[ends["cost"] <= self._record.limit]

    def _grow(self, status: int, scratch: arrays.Scratch) -> arrays.Scratch:
        """Enlarge what a kernel found too small; returns the new scratch."""
        if status == arrays.GROW_LATTICE:
            self._make_room(4 * len(scratch.candidates), len(self.state.frontier))
            return scratch
        return super()._grow(status, scratch)

    def _make_room(self, arcs: int, entries: int) -> None:
        """Prune; lengthen what that leaves more than half full."""
        record, counts = self._record, self._record.counts
        recording.prune(record, self.state.counts[arrays.FRONTIER])
        needed = 2 * (int(counts[arrays.NUM_ARCS]) + arcs)
        if needed > len(record.arcs):
            record = record._replace(arcs=longer(record.arcs, needed))
        needed = 2 * (int(counts[arrays.NUM_ENTRIES]) + entries)
        if needed > len(record.entries):
            record = record._replace(
                entries=longer(record.entries, needed),
                extra=np.empty(2 * needed, np.float32),
                number=np.empty(needed, np.int32),
            )
        self._record = record


NO_OOV = no_oov()


class CpuBackend(GroupingBackend):
    """A space, boosts laid out for the kernels, and memory of searches."""

    def __init__(self, space: SearchSpace, first_capacity: int = 4096) -> None:
        super().__init__(space.num_tokens, space)
        self.space = space
        self.memory = SearchMemory(space, first_capacity)
        self.tables = BoostTables(space.trie.pron_word, space.trie.node_pron_splits)
        self._oov_tries = WeakCache(OovTries(self.memory).lay_out)
        self._searches: WeakCache[CompiledBoosts, dict[TrieOptions, arrays.Search]]
        self._searches = WeakCache(lambda _: {})

    def prepare(self, options: TrieOptions, boosts: CompiledBoosts) -> None:
        """Lay out boosts; they are kept while they live."""
        self.inputs_of(options, boosts)

    def start(
        self, options: TrieOptions, boosts: CompiledBoosts, *, record: bool = False
    ) -> CpuSearch:
        """Begin an utterance."""
        kind: type[CpuSearch] = CpuSearch
        if record:
            kind, options = RecordingSearch, replace(options, nbest=1)
        return kind(self.memory, *self.inputs_of(options, boosts), options, boosts)

    def decode_group(
        self,
        utterances: Sequence[np.ndarray],
        options: TrieOptions,
        boosts: CompiledBoosts,
        pace: CallBudget,
        names: Sequence[int] | None = None,
    ) -> list[list[TokenPath]]:
        """Decode whole utterances with the same boosts, as `GroupingBackend`."""
        inputs, called = self.inputs_of(options, boosts), range(len(utterances))
        return decode_group(self.memory, inputs, utterances, pace, names or called)

    def inputs_of(
        self, options: TrieOptions, boosts: CompiledBoosts
    ) -> tuple[arrays.Search, LmArrays]:
        """Lay out what a search goes by; for the last options of each list, once."""
        known = self._searches.of(boosts)
        search = known.get(options)
        new_words = boosts.oov.words if boosts.oov is not None else ()
        lm = LmArrays(self.space.automaton, new_words)
        if search is None:
            known.clear()
            search = known[options] = self._lay_out(options, boosts, lm)
        return with_model(search, lm), lm

    def _lay_out(
        self, options: TrieOptions, boosts: CompiledBoosts, lm: LmArrays
    ) -> arrays.Search:
        space, oov = self.space, self.oov_trie(boosts.oov)
        first_oov, phrases = space.trie.num_nodes, self.tables.phrases(boosts)
        first, state = np.zeros(1, arrays.ENTRY), int(lm.now.model_start[0])
        first["state"], first["node"] = state, space.start_node
        first["boost"], first["nonblank_cost"] = int(phrases.start), np.inf
        first["lookahead_cost"] = lookahead_cost(space, state, space.start_node)
        first["blank_trace"], first["nonblank_trace"] = -1, -1
        return arrays.Search(
            space=space,
            params=arrays.search_params(options, space, boosts),
            words=self.tables.words(boosts),
            phrases=phrases,
            oov=oov,
            has_oov=space.open.is_open or oov.num_nodes > 0,
            first_oov=first_oov,
            first_open=first_oov + oov.num_nodes,
            first=read_only(first),
            first_base=start_cost(options.lm_scale, first["lookahead_cost"][0]),
        )

    def oov_trie(self, oov: OovWords | None) -> OovTrie:
        """The second trie of a list; made once."""
        return NO_OOV if oov is None else self._oov_tries.of(oov)


class OovTries:
    """The tries of words that a space lacks."""

    def __init__(self, memory: SearchMemory) -> None:
        self._memory = memory
        self._least_costs: np.ndarray | None = None

    def lay_out(self, oov: OovWords) -> OovTrie:
        """The second trie of a list, for which scratch is made large enough."""
        space = self._memory.space
        if self._least_costs is None:
            self._least_costs = least_label_costs(space.automaton, oov.num_known)
        made = build_oov_trie(oov, space, self._least_costs)
        self._memory.make_room_for(made.trie)
        return made
