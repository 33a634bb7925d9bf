"""The CPU backend: numba kernels, no GIL, one utterance per thread.

    backend = CpuBackend(graph)
    search = backend.start(options, boosts)       # one utterance
    search.advance(logprobs)                      # float32 [T, V], any number of times
    search.finish()                               # a BestPath

The graph and boosts are laid out for the kernels here, boosts once for each list.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from functools import cached_property, partial

import numpy as np

from wfstdec.boost.compiled import CompiledBoosts
from wfstdec.boost.tables import BoostTables
from wfstdec.errors import naming
from wfstdec.graph.arcs import LABEL_MASK
from wfstdec.graph.packed import PackedGraph
from wfstdec.jit import jit
from wfstdec.jit.pool import Once
from wfstdec.lm.automaton import Unit
from wfstdec.search.contract import SEGMENTS
from wfstdec.search.interrupts import Pace, pass_through
from wfstdec.search.paths.label_path import BestPath
from wfstdec.search.scheduling import GroupingBackend
from wfstdec.text.symbols import ilabel_of
from wfstdec.wfst.boost_support import overlay_of, steps_on
from wfstdec.wfst.cpu import arrays as k
from wfstdec.wfst.cpu.emitting import MAX_LABELS
from wfstdec.wfst.cpu.memory import SearchMemory
from wfstdec.wfst.cpu.oov import AddedArrays, added_arrays, with_scratch
from wfstdec.wfst.cpu.row_chunks import ChunkedRowSearch, RowInputs
from wfstdec.wfst.cpu.row_groups import RowSearch
from wfstdec.wfst.cpu.rows import rule_of_rows, take_apart
from wfstdec.wfst.cpu.search import CpuSearch, RecordingSearch, SearchInputs
from wfstdec.wfst.options import WfstOptions, search_params


class CpuBackend(GroupingBackend):
    """A graph laid out for the CPU kernels, and the memory of its searches.

    Args:
        graph: The graph.
        first_capacity: Entries that the scratch arrays hold at first; they grow.
    """

    can = GroupingBackend.can | {SEGMENTS}

    def __init__(self, graph: PackedGraph, first_capacity: int = 4096) -> None:
        super().__init__(len(graph.tokens), graph)
        self.graph = graph
        self._overlays = Once(partial(overlay_of, graph))
        self._added = Once(added_arrays)
        self._arrays_of: dict[str, k.GraphArrays] = {}
        self._lock = threading.Lock()
        self._first_capacity = first_capacity
        self._arrays: k.GraphArrays | None = None
        self._on_rows: RowSearch | None = None
        self._asked_for_rows = False

    def prepare(self, options: WfstOptions, boosts: CompiledBoosts) -> None:
        """Lay out boosts; they are kept while they live."""
        if self.on_rows is None:
            self.inputs_of(options, boosts)
        else:
            self._inputs_on_rows(self.on_rows, options, boosts)

    def start(
        self, options: WfstOptions, boosts: CompiledBoosts, *, record: bool = False
    ) -> CpuSearch | ChunkedRowSearch:
        """Begin an utterance."""
        on_rows = self.on_rows
        if on_rows is not None:
            inputs_on_rows = self._inputs_on_rows(on_rows, options, boosts)
            if not record:
                return on_rows.start(inputs_on_rows)
            splits = self.graph.state_arc_splits
            return on_rows.start_recording(inputs_on_rows, splits, options)
        inputs = self.inputs_of(options, boosts)
        if record:
            return RecordingSearch(self.memory, *inputs, options)
        return CpuSearch(self.memory, *inputs)

    def decode_group(
        self,
        utterances: Sequence[np.ndarray],
        options: WfstOptions,
        boosts: CompiledBoosts,
        pace: Pace,
        names: Sequence[int] | None = None,
    ) -> list[BestPath]:
        """Decode whole utterances with the same boosts, as `GroupingBackend`."""
        on_rows, first = self.on_rows, 0 if names is None else names[0]
        # An error that names nobody is at least of this group.
        with naming(first):
            if on_rows is not None:
                inputs_on_rows = self._inputs_on_rows(on_rows, options, boosts)
                return on_rows.decode(utterances, inputs_on_rows, pace)
            paths = []
            for logprobs in utterances:
                search = self.start(options, boosts)
                pass_through(search, logprobs, pace)
                paths.append(search.finish())
            return paths

    @cached_property
    def memory(self) -> SearchMemory:
        """Arrays that searches on the packed graph borrow."""
        return SearchMemory(self.graph, self._first_capacity)

    @cached_property
    def _tables(self) -> BoostTables:
        graph = self.graph
        return BoostTables(
            graph.arcs["olabel"], graph.state_arc_splits, first_token=ilabel_of(0)
        )

    @property
    def arrays(self) -> k.GraphArrays:
        """The graph as the search on it takes it, made when it is first asked for."""
        with self._lock:
            if self._arrays is None:
                self._arrays = graph_arrays(self.graph)
            return self._arrays

    @property
    def on_rows(self) -> RowSearch | None:
        """The search on rows of LG, made when it is first asked for; None without."""
        with self._lock:
            if not self._asked_for_rows:
                self._asked_for_rows = True
                rows = take_apart(self.graph)
                if rows is not None:
                    rule = rule_of_rows(rows, self.graph.info.marks_repeats)
                    self._on_rows = RowSearch(rows, rule, self._first_capacity)
            return self._on_rows

    def _inputs_on_rows(
        self, on_rows: RowSearch, options: WfstOptions, boosts: CompiledBoosts
    ) -> RowInputs:
        """Inputs of a search on rows."""
        params = search_params(options, bool(boosts.words))
        added = boosts.added
        overlay = None if added is None else self._overlays.of(added)
        return on_rows.inputs_of(params, boosts, overlay)

    def inputs_of(
        self, options: WfstOptions, boosts: CompiledBoosts
    ) -> tuple[SearchInputs, AddedArrays | None]:
        """Arrays and parameters of a search with these boosts."""
        params = search_params(options, bool(boosts.words))
        top_bonus, added = boosts.words.top_bonus, None
        if boosts.added is not None:
            overlay = self._overlays.of(boosts.added)
            added = with_scratch(self._added.of(overlay))
            top_bonus = top_bonus + overlay.top_bonus
        if boosts.phrases is None and not top_bonus > params.instalment:
            return (self.arrays, params, self._tables.words(boosts), None), added
        tables = self._tables.words(boosts), self._tables.phrases(boosts)
        return (self._arrays_with(boosts), params, *tables), added

    def _arrays_with(self, boosts: CompiledBoosts) -> k.GraphArrays:
        """The graph where boosts have states; made once."""
        arrays = self.arrays
        if boosts.phrases is None:
            return arrays
        unit = boosts.phrases.unit
        with self._lock:
            if unit not in self._arrays_of:
                self._arrays_of[unit] = with_plain_sets(self.graph, arrays, unit)
            return self._arrays_of[unit]


def graph_arrays(graph: PackedGraph) -> k.GraphArrays:
    """Rows of 32 bytes, with label sets where they fit."""
    num_states, splits = graph.num_states, graph.state_arc_splits
    rows = np.zeros(num_states + 1, k.ROW)
    rows["begin"] = splits
    rows["emit"] = splits
    rows["emit"][:num_states] += graph.state_num_epsilons
    labels = graph.arcs["ilabel"] & np.uint32(LABEL_MASK)
    # A set of labels is one word of 64 bits: larger tables are searched by rows.
    by_label = len(graph.tokens) <= MAX_LABELS and _fill_label_sets(rows, labels)
    rows["rank"][:num_states] = graph.epsilon_rank
    return k.GraphArrays(
        arcs=graph.arcs,
        rows=rows,
        final_cost=graph.final_cost,
        by_label=by_label,
        num_ranks=np.uint64(graph.epsilon_rank.max() + 1),
        blank=np.uint64(graph.tokens.blank),
        blank_label=np.uint32(ilabel_of(graph.tokens.blank)),
        least_cost=np.float32(min(0.0, graph.arcs["cost"].min(initial=0.0))),
    )


def with_plain_sets(
    graph: PackedGraph, arrays: k.GraphArrays, unit: Unit
) -> k.GraphArrays:
    """Add the labels of arcs that neither words nor phrases of `unit` step on."""
    if not arrays.by_label:
        return arrays
    rows, labels = arrays.rows.copy(), graph.arcs["ilabel"] & np.uint32(LABEL_MASK)
    steps = steps_on(graph, graph.arcs, unit) | steps_on(graph, graph.arcs, "word")
    _fill_plain_sets(rows, labels, ~steps)
    return arrays._replace(rows=rows)


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
def _fill_plain_sets(rows, labels, plain):
    """Fill `rows["plain"]`: the labels of arcs that are plain, bool [A]."""
    for s in range(len(rows) - 1):
        for a in range(rows[s].emit, rows[s + 1].begin):
            if plain[a]:
                rows[s].plain |= np.uint64(1) << np.uint64(labels[a])
