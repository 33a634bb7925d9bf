"""The CPU backend of the trie search: numba kernels, no GIL, an utterance per thread.

backend = CpuBackend(space)
search = backend.start(options, boosts)       # one utterance
search.advance(logprobs)                      # float32 [T, V], any number of times
paths = search.finish()                       # TokenPaths, best first
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from wfstdec.boost.compiled import CompiledBoosts
from wfstdec.boost.tables import BoostTables
from wfstdec.jit import read_only
from wfstdec.jit.pool import Once
from wfstdec.lm.on_demand import LmArrays
from wfstdec.search.interrupts import Pace
from wfstdec.search.paths.token_path import TokenPath
from wfstdec.search.scheduling import GroupingBackend
from wfstdec.text.vocabulary import OovWords
from wfstdec.trie.added_trie import (
    AddedTrie,
    lay_out_added,
    least_label_costs,
    no_added,
)
from wfstdec.trie.cpu import arrays as k
from wfstdec.trie.cpu.arrays import search_params
from wfstdec.trie.cpu.groups import decode_group, with_model
from wfstdec.trie.cpu.memory import SearchMemory
from wfstdec.trie.cpu.search import CpuSearch, RecordingSearch
from wfstdec.trie.options import TrieOptions
from wfstdec.trie.search_space import SearchSpace, lookahead_cost
from wfstdec.trie.traceback import start_cost

NO_ADDED = no_added()


class CpuBackend(GroupingBackend):
    """A space, boosts laid out for the kernels, and memory of searches.

    Args:
        space: What is searched.
        first_capacity: Candidates and nodes that arrays hold at first; they grow.
    """

    def __init__(self, space: SearchSpace, first_capacity: int = 4096) -> None:
        super().__init__(space.num_tokens, space)
        self.space = space
        self.memory = SearchMemory(space, first_capacity)
        self.tables = BoostTables(space.trie.pron_word, space.trie.node_pron_splits)
        self._added = Once(_AddedTries(self.memory).lay_out)
        self._searches: Once[CompiledBoosts, dict[TrieOptions, k.Search]]
        self._searches = Once(lambda _: {})

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
        pace: Pace,
        names: Sequence[int] | None = None,
    ) -> list[list[TokenPath]]:
        """Decode whole utterances with the same boosts, as `GroupingBackend`."""
        inputs, called = self.inputs_of(options, boosts), range(len(utterances))
        return decode_group(self.memory, inputs, utterances, pace, names or called)

    def inputs_of(
        self, options: TrieOptions, boosts: CompiledBoosts
    ) -> tuple[k.Search, LmArrays]:
        """Lay out what a search goes by; for the last options of each list, once."""
        known = self._searches.of(boosts)
        search = known.get(options)
        new_words = boosts.added.words if boosts.added is not None else ()
        lm = LmArrays(self.space.automaton, new_words)
        if search is None:
            known.clear()
            search = known[options] = self._lay_out(options, boosts, lm)
        return with_model(search, lm), lm

    def _lay_out(
        self, options: TrieOptions, boosts: CompiledBoosts, lm: LmArrays
    ) -> k.Search:
        space, added = self.space, self.added_trie(boosts.added)
        first_added, phrases = space.trie.num_nodes, self.tables.phrases(boosts)
        first = _first_entry(space, int(lm.now.model_start[0]), int(phrases.start))
        return k.Search(
            space=space,
            params=search_params(options, space, boosts),
            words=self.tables.words(boosts),
            phrases=phrases,
            added=added,
            beside=space.open.is_open or added.num_nodes > 0,
            first_added=first_added,
            first_open=first_added + added.num_nodes,
            first=read_only(first),
            first_base=start_cost(options, first["lookahead_cost"][0]),
        )

    def added_trie(self, added: OovWords | None) -> AddedTrie:
        """The second trie of a list; made once."""
        return NO_ADDED if added is None else self._added.of(added)


def _first_entry(space: SearchSpace, state: int, boost: int) -> np.ndarray:
    """Make the entry before the first frame, ENTRY [1]."""
    first = np.zeros(1, k.ENTRY)
    first["state"], first["node"], first["boost"] = state, space.start_node, boost
    first["lookahead_cost"] = lookahead_cost(space, state, space.start_node)
    first["nonblank_cost"] = np.inf
    first["blank_trace"], first["nonblank_trace"] = -1, -1
    return first


class _AddedTries:
    """The tries of words that a space lacks."""

    def __init__(self, memory: SearchMemory) -> None:
        self._memory = memory
        self._least_costs: np.ndarray | None = None

    def lay_out(self, added: OovWords) -> AddedTrie:
        """The second trie of a list, for which scratch is made large enough."""
        space = self._memory.space
        if self._least_costs is None:
            self._least_costs = least_label_costs(space.automaton, added.num_known)
        made = lay_out_added(added, space, self._least_costs)
        self._memory.make_room_for(made.trie)
        return made
