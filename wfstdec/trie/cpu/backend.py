"""The CPU backend of the trie search: numba kernels, no GIL, an utterance per thread.

backend = CpuBackend(space)
search = backend.start(options, boosts)       # one utterance, see `search.py`
backend.decode(utterances, options, boosts)   # many, as `HostBackend`
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from wfstdec.boost.compiled import CompiledBoosts
from wfstdec.boost.tables import BoostTables
from wfstdec.jit import read_only
from wfstdec.jit.handles import Handle
from wfstdec.jit.records import WeakCache
from wfstdec.lm.on_demand import LmArrays
from wfstdec.search.paths.tokens import Path
from wfstdec.search.threads import GROUP, CallBudget, HostBackend
from wfstdec.text.vocabulary import OovWords
from wfstdec.trie.cpu import arrays
from wfstdec.trie.cpu.search import (
    CpuSearch,
    Inputs,
    RecordingSearch,
    SearchMemory,
    with_model,
)
from wfstdec.trie.oov_trie import OovTrie, no_oov
from wfstdec.trie.options import TrieOptions
from wfstdec.trie.search_space import SearchSpace, lookahead_cost, start_cost


class CpuBackend(HostBackend):
    """A space, boosts laid out for the kernels, and memory of searches."""

    group_size = GROUP

    def __init__(self, space: SearchSpace, first_capacity: int = 4096) -> None:
        super().__init__(space.num_tokens, space)
        self.space = space
        self.memory = SearchMemory(space, first_capacity)
        self.tables = BoostTables(space.trie.pron_word, space.trie.node_pron_splits)
        # What does not change from list to list; a user's model is no tuple.
        parts = space.trie, space.lookahead, space.open, space.automaton
        self._parts = [Handle(one) for one in parts if isinstance(one, tuple)]
        self._no_oov = no_oov()
        self._oov_tries = WeakCache(self.memory.lay_out_oov)
        self._searches: WeakCache[
            CompiledBoosts, dict[TrieOptions, Handle[arrays.Search]]
        ] = WeakCache(lambda _: {})

    def prepare(self, options: TrieOptions, boosts: CompiledBoosts) -> None:
        """Lay out boosts; they are kept while they live."""
        self.inputs_of(options, boosts)

    def start(
        self, options: TrieOptions, boosts: CompiledBoosts, *, record: bool = False
    ) -> CpuSearch:
        """Begin an utterance."""
        if record:
            inputs = self.inputs_of(replace(options, nbest=1), boosts)
            return RecordingSearch(self.memory, inputs, options.beam_of_lattice)
        return CpuSearch(self.memory, self.inputs_of(options, boosts))

    def decode_group(
        self,
        utterances: Sequence[np.ndarray],
        options: TrieOptions,
        boosts: CompiledBoosts,
        pace: CallBudget,
        names: Sequence[int] | None = None,
    ) -> list[list[Path]]:
        """Decode whole utterances with the same boosts, as `HostBackend`."""
        search = CpuSearch(self.memory, self.inputs_of(options, boosts))
        return search.decode(utterances, pace, names or range(len(utterances)))

    def inputs_of(self, options: TrieOptions, boosts: CompiledBoosts) -> Inputs:
        """Lay out the tables of a search; once for the last options of each list."""
        known = self._searches.of(boosts)
        search = known.get(options)
        lm = LmArrays(
            self.space.automaton, boosts.oov.words if boosts.oov is not None else ()
        )
        if search is None:
            known.clear()
            laid_out = self._lay_out(options, boosts, lm)
            search = known[options] = Handle(laid_out, *self._parts)
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
            space=space._replace(automaton=lm.now),
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
        return self._no_oov if oov is None else self._oov_tries.of(oov)
