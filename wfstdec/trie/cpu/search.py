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
from wfstdec.jit.records import longer
from wfstdec.lm.on_demand import LmArrays
from wfstdec.search.interrupts import check
from wfstdec.search.paths.so_far import PathSoFar
from wfstdec.search.paths.token_path import SettledTokens, TokenPath, TokenRows
from wfstdec.trie.cpu import arrays as k
from wfstdec.trie.cpu import frame as kernels
from wfstdec.trie.cpu import lattice_kernels as recording
from wfstdec.trie.cpu.final import (
    accepted_endings,
    end_alone,
    settle_trace,
    trace_back,
    unfinished_endings,
)
from wfstdec.trie.cpu.groups import FoundPaths, begin, with_model
from wfstdec.trie.cpu.memory import SearchMemory, grown, new_state
from wfstdec.trie.lattice_pack import Recorded, RecordedArcs, RecordedEntries
from wfstdec.trie.options import TrieOptions
from wfstdec.trie.reference_steps import Key, Steps

_Found = TypeVar("_Found")


class CpuSearch:
    """The search of one utterance: `advance` any number of times, then `finish`.

    Attributes:
        state: State of the utterance; kernels elsewhere may have advanced it.
    """

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
        self.state = new_state(memory.capacity, options.beam_size)
        begin(search, self.state)
        self._settled = SettledTokens()
        self._record = self._new_record()

    def _new_record(self) -> k.Record | None:
        """Room for what a search notes; None notes nothing."""
        return None

    @property
    def counts(self) -> dict[str, int]:
        """Work done so far: `frames`, and sums of `active` entries and `candidates`."""
        names = {"frames": k.FRAMES, "active": k.ACTIVE, "candidates": k.CANDIDATES}
        return {name: int(self.state.counts[at]) for name, at in names.items()}

    def advance(self, logprobs: np.ndarray) -> None:
        """Pass the search through a chunk, float32 [T, V], C order."""
        frame = 0

        def go_on(scratch: k.Scratch) -> int:
            nonlocal frame
            status, frame = kernels.advance(
                self._search, scratch, self.state, self._record, logprobs, frame
            )
            return status

        self._until_done(go_on)

    def _until_done(self, call: Callable[[k.Scratch], int]) -> None:
        """Call a kernel until it is done: arrays grow, and the language model answers.

        Args:
            call: Calls it, and returns its status.
        """
        num_tokens = self._memory.space.num_tokens
        scratch, status = self._memory.take(num_tokens, len(self.state.frontier)), -1
        try:
            with self._lm:
                while status != k.OK:
                    self._search = with_model(self._search, self._lm)
                    status = call(scratch)
                    scratch = self._grow(status, scratch)
                    if self._lm.answer():
                        check()  # a model of the user's may be slow
        finally:
            self._memory.give(scratch)

    def _answered(self, find: Callable[[k.Search], _Found]) -> _Found:
        """Call kernels until the language model has answered what they ask."""
        with self._lm:
            found = find(with_model(self._search, self._lm))
            while self._lm.answer():
                found = find(with_model(self._search, self._lm))
        return found

    def finish(self) -> list[TokenPath]:
        """End the utterance; the search cannot be used afterwards."""
        params, utterance = self._search.params, self.state
        if params.by_text:  # sums are added up in this order
            utterance = self._in_order()
        found = FoundPaths.room_for(1, params.nbest, int(utterance.counts[k.FRAMES]))

        def end(scratch: k.Scratch) -> int:
            nonlocal found
            status = end_alone(self._search, scratch, utterance, *found)
            found = found.grown(status)
            return status

        self._until_done(end)
        return found.read({0: self._settled}, sums=params.sums)[0]

    def look(self) -> PathSoFar[TokenRows]:
        """How far the search has come; it goes on as if nobody had looked."""
        self.settle_trace()
        counts, utterance = self.state.counts, self._in_order()
        unfinished = unfinished_endings(self._search, utterance)
        at = int(unfinished["cost"].argmin())
        ended = np.float32(np.inf)
        if counts[k.DIED] < 0:
            accepted = self._answered(
                lambda search: accepted_endings(search, utterance)
            )
            ended = accepted["cost"].min(initial=np.inf)
        best = unfinished[at]
        entry = utterance.frontier[at // 2]
        pron = self._ending_pron(entry)
        return PathSoFar(
            settled=self._settled,
            said_since=lambda token, _: TokenRows(self._tokens(best, token), pron),
            num_frames=int(counts[k.FRAMES]),
            final_cost=float(ended) - float(best["cost"]),
        )

    def settle_trace(self) -> None:
        """Take out of the trace what is settled, and what no entry can reach."""
        self._settled.add(*settle_trace(self.state))

    def _ending_pron(self, entry: np.ndarray) -> int:
        """The cheapest pronunciation that ends at the node of an entry, or -1."""
        space, added = self._memory.space, self._search.added
        names = ("state", "node", "boost", "spelling", "text")
        key = Key(*(int(entry[name]) for name in names))
        with self._lm as lm:
            steps = Steps(space, self._options, self._boosts, added, lm)
            return steps.ending_pron(key)

    def _tokens(self, ending: np.void, since: int) -> np.ndarray:
        """The tokens of an ending but the first ones, as rows of `TokenPath`."""
        at, token_end = int(ending["trace"]), int(ending["token_end"])
        rows, end = trace_back(self.state.trace, at, token_end)
        return self._settled.followed_by(rows, end, since)

    def _in_order(self) -> k.UtteranceState:
        """The utterance with its entries in order: the first of equal endings wins."""
        frontier = self.state.frontier[: self.state.counts[k.FRONTIER]]
        keys = [frontier[name] for name in ("text", "spelling", "boost", "node")]
        states = self._lm.orders(frontier["state"])
        order = np.lexsort([*keys, states, frontier["cost"]])
        return self.state._replace(frontier=frontier[order])

    def _grow(self, status: int, scratch: k.Scratch) -> k.Scratch:
        """Enlarge what a kernel found too small; returns the scratch to go on with."""
        most_words = self._memory.most_words
        scratch, self.state = grown(
            status, scratch, self.state, most_words, self._settled
        )
        return scratch


class RecordingSearch(CpuSearch):
    """The search of one utterance: `advance` any number of times, then `finish`."""

    _record: k.Record
    first_arcs = 1 << 15
    """Room for so many arcs of a lattice at first, and for a quarter as many places."""

    def _new_record(self) -> k.Record:
        num_places = max(1, self.first_arcs // 4)
        first, places = self.state.frontier[0], np.zeros(num_places, k.PLACE)
        for name in ("cost", "lookahead_cost", "state", "node", "boost", "spelling"):
            places[0][name] = first[name]
        return k.Record(
            arcs=np.empty(self.first_arcs, k.NOTED),
            places=places,
            counts=np.array([0, 1, 0]),
            limit=np.float32(self._options.beam_of_lattice),
            extra=np.empty(2 * num_places, np.float32),
            number=np.empty(num_places, np.int32),
        )

    def finish(self) -> Recorded:  # type: ignore[override]
        """End the utterance; the search cannot be used afterwards."""
        record, ends = self._record, self._ends()
        by_state = np.full(2 * self.state.counts[k.FRONTIER], np.inf, np.float32)
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
        utterance, ends = self.state, np.zeros(0, k.ENDING)
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
            self._make_room(4 * len(scratch.candidates), len(self.state.frontier))
            return scratch
        return super()._grow(status, scratch)

    def _make_room(self, arcs: int, places: int) -> None:
        """Prune; lengthen what that leaves more than half full."""
        record, counts = self._record, self._record.counts
        recording.prune(record, self.state.counts[k.FRONTIER])
        needed = 2 * (int(counts[k.NUM_ARCS]) + arcs)
        if needed > len(record.arcs):
            record = record._replace(arcs=longer(record.arcs, needed))
        needed = 2 * (int(counts[k.NUM_PLACES]) + places)
        if needed > len(record.places):
            record = record._replace(
                places=longer(record.places, needed),
                extra=np.empty(2 * needed, np.float32),
                number=np.empty(needed, np.int32),
            )
        self._record = record
