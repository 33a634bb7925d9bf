"""The CPU backend: numba kernels without the GIL, a group of utterances per thread.

    backend = CpuBackend(graph)
    search = backend.start(options, boosts)       # one utterance
    search.advance(logprobs)                      # float32 [T, V], any number of times
    search.finish()                               # a Path

The graph and each boost list are laid out for the kernels here, once.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache, partial
from itertools import compress
from typing import Any

import numpy as np

from wfstdec.boost.compiled import CompiledBoosts
from wfstdec.boost.tables import BoostTables
from wfstdec.errors import naming
from wfstdec.graph.overlay import make_overlay
from wfstdec.graph.packed import PackedGraph
from wfstdec.jit.handles import Handle
from wfstdec.jit.records import WeakCache
from wfstdec.search.paths.tokens import PATH_END, Paths
from wfstdec.search.paths.traceback import STEP, read_paths
from wfstdec.search.threads import SEGMENTS, CallBudget, HostBackend
from wfstdec.text.vocabulary import OovWords
from wfstdec.wfst.cpu.boosts import FIRST_TOKEN
from wfstdec.wfst.cpu.oov import RowOverlay, row_overlay, with_slots
from wfstdec.wfst.cpu.recording import RecordingSearch
from wfstdec.wfst.cpu.rows import row_graph_of, rule_of_rows, words_by_row
from wfstdec.wfst.cpu.search import (
    STEPS_PER_FRAME,
    CpuSearch,
    Inputs,
    RowMemory,
    UtteranceMemory,
    new_group,
    search_chunks,
    search_group,
)
from wfstdec.wfst.options import SearchParams, WfstOptions, search_params

_laid_out: Any = lru_cache(maxsize=64)(Handle)  # of parameters


class CpuBackend(HostBackend):
    """A graph laid out for the CPU search, and the memory of its searches."""

    can = HostBackend.can | {SEGMENTS}

    def __init__(self, graph: PackedGraph, first_capacity: int = 4096) -> None:
        super().__init__(len(graph.tokens), graph)
        self.graph = graph
        make = partial(RowSearch, first_capacity=first_capacity)
        self._laid_out: WeakCache[PackedGraph, RowSearch] = WeakCache(make)

    def prepare(self, options: WfstOptions, boosts: CompiledBoosts) -> None:
        """Lay out a boost list; the result lives as long as the list."""
        self.on_rows.inputs_of(options, boosts)

    def start(
        self, options: WfstOptions, boosts: CompiledBoosts, *, record: bool = False
    ) -> CpuSearch:
        """Begin an utterance."""
        rows = self.on_rows
        inputs = rows.inputs_of(options, boosts)
        given = inputs, rows.memory
        return RecordingSearch(*given, options) if record else CpuSearch(*given)

    def decode_group(
        self,
        utterances: Sequence[np.ndarray],
        options: WfstOptions,
        boosts: CompiledBoosts,
        pace: CallBudget,
        names: Sequence[int] = (),
    ) -> Paths:
        """Decode whole utterances with the same boosts, as `HostBackend`."""
        # An error without an utterance is at least one of this group.
        with naming(next(iter(names), 0)):
            rows = self.on_rows
            return rows.decode(utterances, rows.inputs_of(options, boosts), pace)

    def kind_of(self, search: CpuSearch) -> Any:
        """Return the type of a search's inputs."""
        return search.kind

    def advance_group(
        self,
        searches: Sequence[CpuSearch],
        chunks: Sequence[np.ndarray],
        names: Sequence[int | str],
        pace: CallBudget,
    ) -> None:
        """Advance searches of one kind by a chunk each, most of them in one call."""
        fits = [
            search.record is None and 0 < len(chunk) and search.has_room(len(chunk))
            for search, chunk in zip(searches, chunks, strict=True)
        ]
        if all(fits):
            search_chunks(searches, chunks, pace)
            return
        if any(fits):
            some = list(compress(searches, fits)), list(compress(chunks, fits))
            search_chunks(*some, pace)
        for i in [i for i, one in enumerate(fits) if not one]:
            super().advance_group([searches[i]], [chunks[i]], [names[i]], pace)

    @property
    def on_rows(self) -> RowSearch:
        """The search of the graph, built at the first call."""
        return self._laid_out.of(self.graph)


class RowSearch:
    """Searches of one graph."""

    def __init__(self, graph: PackedGraph, first_capacity: int) -> None:
        self._rows = rows = row_graph_of(graph)
        self._handle: Any = Handle(rows)
        self._rule = rule_of_rows(rows, graph.info.marks_repeats)
        self.memory = RowMemory(rows, first_capacity)
        self._tables = BoostTables(*words_by_row(rows), first_token=FIRST_TOKEN)
        self._inputs: WeakCache[CompiledBoosts, dict[SearchParams, Handle[Inputs]]]
        self._inputs = WeakCache(lambda boosts: {})
        self._overlays: WeakCache[OovWords, RowOverlay] = WeakCache(
            lambda oov: row_overlay(rows, make_overlay(graph, oov))
        )

    def inputs_of(self, options: WfstOptions, boosts: CompiledBoosts) -> Handle[Inputs]:
        """Return inputs of a search; cached for lists without OOV words."""
        params = search_params(options, bool(boosts.words))
        known, oov = self._inputs.of(boosts), None
        if boosts.oov is None and params in known:
            return known[params]
        top_bonus = boosts.words.top_bonus
        if boosts.oov is not None:
            oov = with_slots(self._overlays.of(boosts.oov))
            top_bonus = top_bonus + oov.top_bonus
        phrases = None
        if boosts.phrases is not None or top_bonus > params.instalment:
            phrases = self._tables.phrases(boosts)
        of_list = self._tables.words(boosts), phrases, oov, self._rule
        if oov is not None:
            of_list = *of_list[:3], self._rule._replace(oov=oov.arcs)
        inputs = Handle(Inputs(self._handle, _laid_out(params), *of_list))
        if oov is None:  # one search writes to an overlay's slots
            known.clear()
            known[params] = inputs
        return inputs

    def decode(
        self,
        utterances: Sequence[np.ndarray],
        inputs: Handle[Inputs],
        pace: CallBudget,
    ) -> Paths:
        """Decode utterances, at most `GROUP`; log-probs float32 [T, V], C order."""
        one = [UtteranceMemory(inputs, self.memory)] * len(utterances)
        group = new_group(one, utterances)._replace(
            ends=np.zeros(len(utterances), PATH_END),
            steps=np.empty(STEPS_PER_FRAME * sum(map(len, utterances)) + 1, STEP),
        )
        group = search_group(one, group, pace)
        self.memory.states.give(one[0].state)
        return read_paths(inputs.value.rule, group.steps, group.ends)
