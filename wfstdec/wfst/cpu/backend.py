"""The CPU backend: numba kernels without the GIL, a group of utterances per thread.

    backend = CpuBackend(graph)
    search = backend.start(options, boosts)       # one utterance
    search.advance(logprobs)                      # float32 [T, V], any number of times
    search.finish()                               # a Path

The graph and each boost list are laid out for the kernels here, once.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from functools import cached_property, partial
from typing import Any

import numpy as np

from wfstdec.boost.compiled import CompiledBoosts
from wfstdec.boost.tables import NO_PHRASES, BoostTables, ListedWords
from wfstdec.errors import naming
from wfstdec.graph.overlay import Overlay
from wfstdec.graph.packed import PackedGraph
from wfstdec.jit.handles import Handle
from wfstdec.jit.records import WeakCache
from wfstdec.search.paths.tokens import Path
from wfstdec.search.paths.traceback import Rule, read_paths
from wfstdec.search.threads import (
    GROUP,
    SEGMENTS,
    CallBudget,
    HostBackend,
    check,
)
from wfstdec.wfst.boost_support import overlay_of
from wfstdec.wfst.cpu.arrays import OK, twice
from wfstdec.wfst.cpu.boosts import FIRST_TOKEN, RowPhrases, row_phrases
from wfstdec.wfst.cpu.oov import RowOverlay, row_overlay, with_slots
from wfstdec.wfst.cpu.recording import RecordingSearch
from wfstdec.wfst.cpu.rows import RowArrays, row_graph_of, rule_of_rows, words_by_row
from wfstdec.wfst.cpu.search import (
    GROW_STEPS,
    CpuSearch,
    Inputs,
    RowMemory,
    grown,
    new_group,
    search_rows,
)
from wfstdec.wfst.options import SearchParams, WfstOptions, search_params

_NO_FRAMES = np.zeros((0, 0), np.float32)


class CpuBackend(HostBackend):
    """A graph laid out for the CPU search, and the memory of its searches."""

    can, group_size = HostBackend.can | {SEGMENTS}, GROUP

    def __init__(self, graph: PackedGraph, first_capacity: int = 4096) -> None:
        super().__init__(len(graph.tokens), graph)
        self.graph = graph
        self._overlays = WeakCache(partial(overlay_of, graph))
        self._lock = threading.Lock()
        self._first_capacity = first_capacity
        self._on_rows: RowSearch | None = None

    def prepare(self, options: WfstOptions, boosts: CompiledBoosts) -> None:
        """Lay out a boost list; the result lives as long as the list."""
        self._inputs_of(options, boosts)

    def start(
        self, options: WfstOptions, boosts: CompiledBoosts, *, record: bool = False
    ) -> CpuSearch:
        """Begin an utterance."""
        inputs, rows = self._inputs_of(options, boosts), self.on_rows
        given = rows.rule_of(inputs), inputs, rows.memory
        return RecordingSearch(*given, options) if record else CpuSearch(*given)

    def decode_group(
        self,
        utterances: Sequence[np.ndarray],
        options: WfstOptions,
        boosts: CompiledBoosts,
        pace: CallBudget,
        names: Sequence[int] | None = None,
    ) -> list[Path]:
        """Decode whole utterances with the same boosts, as `HostBackend`."""
        # An error without an utterance is at least one of this group.
        with naming(0 if names is None else names[0]):
            inputs = self._inputs_of(options, boosts)
            return self.on_rows.decode(utterances, inputs, pace)

    @property
    def on_rows(self) -> RowSearch:
        """The search of the graph, built at the first call."""
        with self._lock:
            if self._on_rows is None:
                rows = row_graph_of(self.graph)
                rule = rule_of_rows(rows, self.graph.info.marks_repeats)
                self._on_rows = RowSearch(rows, rule, self._first_capacity)
            return self._on_rows

    def _inputs_of(
        self, options: WfstOptions, boosts: CompiledBoosts
    ) -> Handle[Inputs]:
        params = search_params(options, bool(boosts.words))
        oov = boosts.oov
        overlay = None if oov is None else self._overlays.of(oov)
        return self.on_rows.inputs_of(params, boosts, overlay)


class RowSearch:
    """Searches of one graph."""

    def __init__(self, rows: RowArrays, rule: Rule, first_capacity: int) -> None:
        self._rows, self._rule, self._part = rows, rule, Handle(rows)
        self.memory = RowMemory(rows, first_capacity)
        self._inputs: WeakCache[Any, dict[SearchParams, Handle[Inputs]]] = WeakCache(
            lambda boosts: {}
        )
        self._words = WeakCache(self._list)
        self._phrases = WeakCache(self._lay_out)
        self._no_phrases = row_phrases(NO_PHRASES, len(rows.repeat_arc))
        self._overlays: WeakCache[Overlay, RowOverlay] = WeakCache(
            partial(row_overlay, rows)
        )

    @cached_property
    def _tables(self) -> BoostTables:
        return BoostTables(*words_by_row(self._rows), first_token=FIRST_TOKEN)

    def _list(self, boosts: CompiledBoosts) -> ListedWords:
        return self._tables.words(boosts)

    def _lay_out(self, boosts: CompiledBoosts) -> RowPhrases:
        return row_phrases(self._tables.phrases(boosts), len(self._rows.repeat_arc))

    def inputs_of(
        self, params: SearchParams, boosts: CompiledBoosts, overlay: Overlay | None
    ) -> Handle[Inputs]:
        """Inputs of a search; those of each list without OOV words are kept."""
        known = self._inputs.of(boosts)
        if overlay is None and params in known:
            return known[params]
        phrases, oov, top_bonus = None, None, boosts.words.top_bonus
        if overlay is not None:
            oov = with_slots(self._overlays.of(overlay))
            top_bonus = top_bonus + overlay.top_bonus
        if boosts.phrases is not None:
            phrases = self._phrases.of(boosts)
        elif top_bonus > params.instalment:
            phrases = self._no_phrases
        words = self._words.of(boosts)
        inputs = Handle(Inputs(self._rows, params, words, phrases, oov), self._part)
        if oov is None:  # an overlay has slots that one search writes to
            known.clear()
            known[params] = inputs
        return inputs

    def rule_of(self, inputs: Handle[Inputs]) -> Rule:
        """How paths of a search are read."""
        oov = inputs.value.oov
        return self._rule if oov is None else self._rule._replace(oov=oov.arcs)

    def decode(
        self,
        utterances: Sequence[np.ndarray],
        inputs: Handle[Inputs],
        pace: CallBudget,
    ) -> list[Path]:
        """Decode utterances, at most `GROUP`; log-probs float32 [T, V], C order."""
        state = self.memory.states.take()
        scratch = self.memory.scratches.take(len(state.value.record))
        group = new_group(utterances)
        work, at = Handle(group), group.at[0]
        while True:
            at["left"], began = pace.frames, time.perf_counter()
            status, _ = search_rows(inputs, scratch, state, None, _NO_FRAMES, 0, work)
            if status == OK:
                seconds = time.perf_counter() - began
                pace.note(pace.frames - int(at["left"]), seconds)
                if at["utterance"] == len(utterances):
                    break
                # Signals are handled between calls, whose duration `pace` limits.
                check()
            elif status == GROW_STEPS:
                group = group._replace(steps=twice(group.steps))
                work = Handle(group)
            else:
                scratch, state = grown(status, scratch, state)
        self.memory.scratches.give(scratch)
        self.memory.states.give(state)
        ends = group.ends
        first, count = map(np.ascontiguousarray, (ends["first"], ends["count"]))
        read = read_paths(self.rule_of(inputs), group.steps, first, count)
        return [
            Path(tokens, graph + rest, acoustic, cost, bool(final), frames, died)
            for (tokens, graph, acoustic), (cost, rest, _, _, frames, died, final) in (
                zip(read, ends.tolist(), strict=True)
            )
        ]
