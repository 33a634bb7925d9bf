"""Arrays that searches of one graph borrow: scratch, states, records for lattices."""

from __future__ import annotations

from functools import partial

import numpy as np

from wfstdec.graph.packed import PackedGraph
from wfstdec.jit.pool import Pool
from wfstdec.search.paths.traceback import rule_of
from wfstdec.wfst.cpu import arrays as k
from wfstdec.wfst.cpu.emitting import BLOCK_ARCS, CREDIT_LEVELS, LEVELS


class SearchMemory:
    """Pools of arrays; those of searches with boost states are apart from others.

    Args:
        graph: What is searched.
        first_capacity: Entries that the arrays hold at first; they grow.

    Attributes:
        graph: The same.
        rule: How paths through it are read.
        scratches: Scratch of a thread; `take` is told how many entries it must hold.
        states: The state of an utterance.
        records: Room for what a lattice is made of; `take` is told for how many arcs.
    """

    def __init__(self, graph: PackedGraph, first_capacity: int) -> None:
        self.graph, self.rule = graph, rule_of(graph)
        scratches: list[Pool[k.Scratch]] = [
            Pool(partial(_first_scratch, graph, first_capacity, boosted), fits=_fits)
            for boosted in (False, True)
        ]
        self.scratches = scratches
        self.states: list[Pool[k.UtteranceState]] = [
            Pool(
                partial(_new_state, first_capacity, boosted), beside=scratches[boosted]
            )
            for boosted in (False, True)
        ]
        self.records: Pool[k.Record] = Pool(_new_record, beside=scratches[False])


def new_scratch(
    graph: PackedGraph, entries: int, candidates: int, boosted: bool
) -> k.Scratch:
    """Make scratch for so many entries and candidates."""
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


def _first_scratch(
    graph: PackedGraph, first_capacity: int, boosted: bool, entries: int
) -> k.Scratch:
    entries = max(entries, first_capacity)
    return new_scratch(graph, entries, 4 * entries, boosted)


def _fits(scratch: k.Scratch, entries: int) -> bool:
    return len(scratch.next) >= entries


def _new_state(first_capacity: int, boosted: bool) -> k.UtteranceState:
    return k.UtteranceState(
        frontier=np.empty(first_capacity, k.ENTRY),
        boosts=np.empty(first_capacity if boosted else 0, k.BOOST),
        trace=np.empty(16 * first_capacity, k.NODE),
        counts=np.zeros(9, np.int64),
        base=np.zeros(1),
        beam=np.zeros(1, np.float32),
        top_credit=np.zeros(1, np.float32),
    )


def _new_record(arcs: int) -> k.Record:
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
