"""What a search noted for a lattice, gathered in the order that lattices have.

    states, arcs = gather(inputs, trace, record, start, rows)

Nodes of the trace stand by frame, so that states are sorted frame by frame, and arcs
state by state: a few at a time, in no more time than there are of them.
"""

from __future__ import annotations

import numpy as np
from numpy import float32, uint32, uint64

from wfstdec.graph.arcs import CARRIES_WORD
from wfstdec.jit import inlined, jit
from wfstdec.jit.intrinsics import prefetch
from wfstdec.jit.ordering import STACK, sort_keys
from wfstdec.lattice.arrays import ARC, STATE
from wfstdec.wfst.cpu import records as k
from wfstdec.wfst.cpu.added import paid_added
from wfstdec.wfst.cpu.arc_costs import bonus_of, step_boosts
from wfstdec.wfst.cpu.recording import begin_of, is_emitted, keep
from wfstdec.wfst.ends import best_end
from wfstdec.wfst.noted import ends

_NONE = uint32(k.NONE)
_WORD = uint32(CARRIES_WORD)
_OF_TRACE = uint64(1 << 31)
"""Set in the position of an arc that stands in the trace."""
_AHEAD = 16
_LOW, _HALF = uint64(0xFFFFFFFF), uint64(32)


@jit
def gather_last(inputs, frontier, ending, kept, start):
    """The same to the end of the utterance.

    Args:
        inputs: As of `gather`.
        frontier: Entries, [F].
        ending: (what `best_end` takes of boosts, the graph's final costs, `lm_scale`,
            whether the search survived).
        kept: (trace, record).
        start: As of `gather`.
    """
    boosts, final_cost, lm_scale, survived = ending
    trace, record = kept
    _, best, is_final = best_end(frontier, final_cost, lm_scale, survived, boosts)
    excess, rest = ends(frontier, boosts, final_cost, lm_scale, best, is_final)
    keep(frontier, excess, trace, record)
    rows = 0, record.counts[2] - 1
    states, arcs = gather(inputs, trace, record, start, rows)
    for i in range(len(frontier)):
        if excess[i] <= record.limit and excess[i] < np.inf:
            one = states[record.number[frontier[i].node]]
            one.final_excess, one.final_boost_cost = excess[i], rest[i]
            one.final_cost = float32(0)
            if is_final:
                one.final_cost = final_cost[frontier[i].state]
    return states, arcs


@jit
def gather(inputs, trace, record, start, rows):
    """What is left between two rows of `record.frames`.

    Args:
        inputs: (graph, scales, words, phrases, added).
        trace: The trace.
        record: What was noted, after `keep`; its `number` is written.
        start: (frame, graph state) of the first node of the trace; what words cost.
        rows: The first and the last; the first has one node, unless it is row 0.

    Returns:
        (`STATE` [S], none of which is an end, `ARC` [A]).
    """
    graph, _, _, _, added = inputs
    keys = _sorted_nodes(graph, added, trace, record, start, rows)
    states = np.empty(len(keys), STATE)
    begin = np.zeros(len(keys) + 1, np.int64)  # the arcs of each state, first counted
    at, number = 0, record.number
    for row in range(rows[0], rows[1] + 1):
        first, last = begin_of(record, row)[0], record.frames[row, 0]
        for n in range(first, last):
            one = states[at]
            one.frame = start[0] + row
            one.graph_state = uint32(keys[at] >> _HALF)
            one.boost_state = uint32(0)
            if len(record.boosts):
                one.boost_state = record.boosts[np.int64(keys[at] & _LOW)]
            one.final_cost, one.final_excess = np.inf, np.inf
            one.final_boost_cost = float32(0)
            at += 1
            if row > rows[0] and is_emitted(trace, n, first):
                begin[number[trace[n].previous] + 1] += 1
    noted = _noted(record, rows)
    for a in range(noted[0], noted[1]):
        begin[number[record.arcs[a].state] + 1] += 1
    for s in range(len(states)):
        begin[s + 1] += begin[s]
    order = _sorted_arcs(graph, trace, record, rows, begin)
    return states, _arcs(inputs, trace, record, (begin, order), states, start[2])


@inlined
def _noted(record, rows):
    """The first noted arc between two rows, and one behind the last."""
    first = record.frames[rows[0], 1] if rows[0] else np.int64(0)
    return first, record.frames[rows[1], 1]


@jit
def _sorted_nodes(graph, added, trace, record, start, rows):
    """The nodes that are left, by (frame, graph state, boost state).

    Writes where each stands to `record.number`.

    Returns:
        uint64 [S], the graph state of each in the upper half, the node in the lower.
    """
    first, last = begin_of(record, rows[0])[0], record.frames[rows[1], 0]
    keys, stack = np.empty(last - first, np.uint64), np.empty(STACK, np.int64)
    for n in range(first, last):
        if n + _AHEAD < last and trace[n + _AHEAD].arc < uint32(len(graph.arcs)):
            prefetch(graph.arcs, uint64(trace[n + _AHEAD].arc))
        state = start[1]
        if trace[n].arc != _NONE:
            state = _arc_at(graph, added, trace[n].arc).nextstate
        keys[n - first] = uint64(state) << _HALF | uint64(n)
    begin, boosts = 0, record.boosts
    for row in range(rows[0], rows[1] + 1):
        end = record.frames[row, 0] - first
        if end > begin + 1:
            sort_keys(keys[begin:end], end - begin, stack)
        for i in range(begin + 1, end if len(boosts) else 0):
            key, j = keys[i], i
            boost = boosts[np.int64(key & _LOW)]
            while j > begin and keys[j - 1] >> _HALF == key >> _HALF:
                if boosts[np.int64(keys[j - 1] & _LOW)] < boost:
                    break
                keys[j] = keys[j - 1]
                j -= 1
            keys[j] = key
        for i in range(begin, end):
            record.number[np.int64(keys[i] & _LOW)] = i
        begin = end
    return keys


@inlined
def _arc_at(graph, added, arc):
    """An arc of the graph or the overlay."""
    if added is not None:
        if arc >= added.first_arc:
            return added.arcs[arc - added.first_arc]
    return graph.arcs[arc]


@jit
def _sorted_arcs(graph, trace, record, rows, begin):
    """The arcs by (state, arc), uint64 [A]: the arc above, where it is noted below.

    `begin`: where those of each state begin.
    """
    order, end = np.empty(begin[-1], np.uint64), begin.copy()
    for row in range(rows[0] + 1, rows[1] + 1):
        first, last = begin_of(record, row)[0], record.frames[row, 0]
        for n in range(first, last):
            if is_emitted(trace, n, first):
                s = record.number[trace[n].previous]
                order[end[s]] = uint64(trace[n].arc) << _HALF | uint64(n) | _OF_TRACE
                end[s] += 1
    noted = _noted(record, rows)
    for a in range(noted[0], noted[1]):
        one = record.arcs[a]
        s = record.number[one.state]
        order[end[s]] = uint64(one.arc) << _HALF | uint64(a)
        end[s] += 1
        if one.arc < uint32(len(graph.arcs)):
            prefetch(graph.arcs, uint64(one.arc))
    stack = np.empty(STACK, np.int64)
    for s in range(len(begin) - 1):
        if begin[s + 1] - begin[s] > 1:
            sort_keys(order[begin[s] : begin[s + 1]], begin[s + 1] - begin[s], stack)
    return order


@jit
def _arcs(inputs, trace, record, sorted_arcs, states, word_insertion):
    """Fill in arcs, `ARC` [A]."""
    graph, scales, words, phrases, added = inputs
    begin, order = sorted_arcs
    arcs = np.empty(len(order), ARC)
    for s in range(len(states)):
        boost = states[s].boost_state
        for at in range(begin[s], begin[s + 1]):
            one, key = arcs[at], order[at]
            arc, place = uint32(key >> _HALF), np.int64(key & ~_OF_TRACE & _LOW)
            if key & _OF_TRACE:
                one.nextstate = record.number[place]
                one.acoustic_cost, one.excess = trace[place].acoustic, float32(0)
            else:
                noted = record.arcs[place]
                one.nextstate = record.number[noted.nextstate]
                one.acoustic_cost, one.excess = noted.acoustic, noted.excess
            one.state, one.arc = s, arc
            taken = _arc_at(graph, added, arc)
            one.ilabel, one.olabel = taken.ilabel, taken.olabel
            one.graph_cost, one.insertion_cost = taken.cost, float32(0)
            if taken.ilabel & _WORD:
                one.insertion_cost = word_insertion
            paid = _paid(graph, scales, words, phrases, added, arc, boost)
            one.boost_cost = float32(float32(0) - paid)
    return arcs


@inlined
def _paid(graph, scales, words, phrases, added, arc, boost):
    """What boosts pay on an arc of the graph or the overlay."""
    if added is not None:
        if arc >= added.first_arc:
            a = uint64(arc - added.first_arc)
            return paid_added(graph, scales, words, phrases, added, a, boost)
    taken = graph.arcs[arc]
    if phrases is None:
        paid = bonus_of(scales, words, taken)
    else:
        paid, _ = step_boosts(graph, scales, words, phrases, taken, boost)
    return paid
