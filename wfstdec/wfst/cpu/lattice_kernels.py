"""Noting arcs for a lattice while the kernels search; `lattice_pack.py` has the rule.

    lattice_notes   where candidates become entries: those that lose, and epsilon arcs
    finish_noting   once the frontier is closed: excess, which drops most of them
    commit          once the trace has the nodes that these arcs are between
    keep            now and then: drops what cannot be part of the lattice
    forget          and what is settled and was handed out
    gather          at the end, after the last `keep`: what is left, sorted

The arc that won a node stands in the trace; its excess is 0. The others of a frame are
noted in an order such that those into an entry come before those out of it.

A candidate's excess only grows when the entry that it leads to improves, and the extra
cost of a state is no less than what it is with every entry of the frontier at 0. So
dropping early drops nothing that counts.
"""

from __future__ import annotations

import numpy as np
from numpy import float32, uint32, uint64

from wfstdec.graph.arcs import CARRIES_WORD
from wfstdec.jit import inlined, jit, part
from wfstdec.jit.intrinsics import prefetch
from wfstdec.jit.sorting import STACK, sort_keys
from wfstdec.lattice.arrays import ARC, STATE
from wfstdec.wfst.cpu import arrays as k
from wfstdec.wfst.cpu.arc_costs import arc_of_flagged, bonus_of, step_boosts
from wfstdec.wfst.cpu.lattice_notes import OF_OVERLAY
from wfstdec.wfst.cpu.oov import label_at, paid_added
from wfstdec.wfst.final import best_end
from wfstdec.wfst.lattice_pack import ends

_NO_NODE = uint32(k.NONE)
_EPSILON_ARC = uint32(k.EPSILON_ARC)
_WORD = uint32(CARRIES_WORD)
_OF_TRACE = uint64(1 << 31)
"""Set in the position of an arc that stands in the trace."""
_AHEAD = 16
_LOW, _HALF = uint64(0xFFFFFFFF), uint64(32)


@part
def finish_noting(graph, added, scratch, utterance, record, count):
    """Finish the arcs of a frame, whose frontier is closed; did they fit?"""
    first = uint32(utterance.counts[k.TRACE])
    noted, last = uint64(record.counts[0]), uint64(record.counts[1])
    if last > uint64(len(record.arcs)):
        return False
    for q in range(noted, last):
        one = record.arcs[q]
        to = _position(one.nextstate, count)
        # Only now is it known what the best way to an entry costs; noted was the cost
        # of the arc's own way.
        excess = float32(one.excess - scratch.next[uint64(to)].cost)
        if excess <= record.limit:
            kept, arc, state = record.arcs[noted], one.arc, one.state
            if arc & _EPSILON_ARC:
                arc = arc_of_flagged(arc ^ _EPSILON_ARC)
                kept.state = first + _position(state, count)
                kept.acoustic = float32(0)
            else:
                arc = arc_of_flagged(arc)
                kept.state = state
                kept.acoustic = scratch.unscaled[label_at(graph, added, arc)]
            kept.nextstate, kept.arc, kept.excess = first + to, arc, excess
            noted += uint64(1)
    record.counts[1] = np.int64(noted)
    return True


@inlined
def _position(noted, count):
    """Where an entry is in `scratch.next`; `count` of these are the graph's."""
    if noted & OF_OVERLAY:
        return (noted ^ OF_OVERLAY) + uint32(count)
    return noted


@part
def commit(phrases, scratch, utterance, record, count):
    """Count the arcs of a frame in, now that the trace has its nodes."""
    record.counts[0] = record.counts[1]
    row = record.frames[record.counts[2]]
    row[0], row[1] = utterance.counts[k.TRACE], record.counts[0]
    record.counts[2] += 1
    if phrases is not None:
        first = uint64(utterance.counts[k.TRACE]) - count
        for i in range(count):
            record.boosts[first + uint64(i)] = scratch.next_boosts[i].boost


@inlined
def begin_of(record, row):
    """The first node and the first noted arc of a row of `record.frames`."""
    if row == 0:
        return np.int64(0), np.int64(0)
    return record.frames[row - 1, 0], record.frames[row - 1, 1]


@jit
def keep(frontier, end_excess, trace, record):
    """Drop arcs and nodes whose extra cost is above the limit, and renumber the rest.

    Written anew are `trace`, what `record` has, and the nodes of the frontier; those of
    entries that are dropped mean nothing.

    Args:
        frontier: Entries with `node`, [F].
        end_excess: float32 [F], what ending at each costs more than the best end.
        trace: The trace.
        record: What was noted.

    Returns:
        (nodes, arcs) that are left.
    """
    arcs, boosts, frames = record.arcs, record.boosts, record.frames
    number, kept = record.number, record.kept
    at, behind = _spread(frontier, end_excess, trace, record)
    num_nodes = num_arcs = first_arc = 0
    for row in range(record.counts[2]):
        last, last_arc = frames[row, 0], frames[row, 1]
        # In place: what is kept moves down, and never overtakes what is read.
        while at < behind and np.int64(kept[at]) < last:
            n = np.int64(kept[at])
            number[n], trace[num_nodes] = num_nodes, trace[n]
            if len(boosts):
                boosts[num_nodes] = boosts[n]
            num_nodes, at = num_nodes + 1, at + 1
        for a in range(first_arc, last_arc):
            if arcs[a].arc != _NO_NODE:
                arcs[num_arcs] = arcs[a]
                num_arcs += 1
        frames[row, 0], frames[row, 1] = num_nodes, num_arcs
        first_arc = last_arc
    for n in range(num_nodes):
        if trace[n].previous != _NO_NODE:
            trace[n].previous = number[trace[n].previous]
    for a in range(num_arcs):
        arcs[a].state = number[arcs[a].state]
        arcs[a].nextstate = number[arcs[a].nextstate]
    for i in range(len(frontier)):
        frontier[i].node = number[frontier[i].node]
    return num_nodes, num_arcs


@jit
def _spread(frontier, end_excess, trace, record):
    """Find the extra cost of nodes; noted arcs above the limit get arc NONE.

    Returns:
        Where in `record.kept` the nodes begin that are not above it, in order, and one
        behind the last.
    """
    extra, arcs, limit, kept = record.extra, record.arcs, record.limit, record.kept
    rows = record.counts[2]
    at = behind = record.frames[rows - 1, 0]
    extra[:behind] = np.inf
    for i in range(len(frontier)):
        if end_excess[i] <= limit:
            extra[frontier[i].node] = end_excess[i]
    # Backwards by frames, and within a frame the epsilon arcs before the arcs of
    # tokens: what leaves a node is seen before what enters it.
    for row in range(rows - 1, -1, -1):
        first, first_arc = begin_of(record, row)
        last, last_arc = record.frames[row, 0], record.frames[row, 1]
        for a in range(last_arc - 1, first_arc - 1, -1):
            one = arcs[a]
            through = float32(one.excess + extra[one.nextstate])
            if through <= limit and through < np.inf:
                extra[one.state] = min(extra[one.state], through)
            else:
                one.arc = _NO_NODE
        for n in range(last - 1, first - 1, -1):
            if extra[n] < np.inf:
                at -= 1
                kept[at] = n
                # The arc of a token by which the search made a node is in the trace
                # alone.
                if is_emitted(trace, n, first):
                    before = np.int64(trace[n].previous)
                    extra[before] = min(extra[before], extra[n])
    return at, behind


@inlined
def is_emitted(trace, node, first):
    """Tell whether an emitting arc made a node; `first`: the first of its frame."""
    return trace[node].arc != _NO_NODE and np.int64(trace[node].previous) < first


@jit
def forget(frontier, trace, record, row):
    """After `keep`, drop all before a row of frames, which has one node.

    That node is the root of the trace from now on, of tip 0.

    Returns:
        How many nodes there are.
    """
    arcs, boosts, frames, counts = (
        record.arcs,
        record.boosts,
        record.frames,
        record.counts,
    )
    first, first_arc = frames[row - 1, 0], frames[row, 1]
    nodes, kept = frames[counts[2] - 1, 0] - first, counts[0] - first_arc
    for n in range(nodes):
        trace[n] = trace[first + n]
        trace[n].previous -= uint32(first)
        if len(boosts):
            boosts[n] = boosts[first + n]
    # All paths go through this node: what is before it was handed out as a segment.
    trace[0].previous, trace[0].arc, trace[0].acoustic = _NO_NODE, _NO_NODE, float32(0)
    for a in range(kept):
        arcs[a] = arcs[first_arc + a]
        arcs[a].state -= uint32(first)
        arcs[a].nextstate -= uint32(first)
    for i in range(len(frontier)):
        frontier[i].node -= uint32(first)
    for r in range(row, counts[2]):
        frames[r - row, 0], frames[r - row, 1] = (
            frames[r, 0] - first,
            frames[r, 1] - first_arc,
        )
    counts[0], counts[1], counts[2] = kept, kept, counts[2] - row
    return nodes


@jit
def gather_last(inputs, frontier, ending, kept, start):
    """Gather arcs from the last cut to the end of the utterance.

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
    """Gather the arcs that are left between two rows of `record.frames`.

    Args:
        inputs: (graph, params, words, phrases, added).
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
    # Counting sort by source.
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
        if trace[n].arc != _NO_NODE:
            state = _arc_at(graph, added, trace[n].arc).nextstate
        keys[n - first] = uint64(state) << _HALF | uint64(n)
    begin, boosts = 0, record.boosts
    for row in range(rows[0], rows[1] + 1):
        end = record.frames[row, 0] - first
        if end > begin + 1:
            sort_keys(keys[begin:end], end - begin, stack)
        # Boost states do not fit into the key; few nodes share a graph state, so
        # insertion is enough.
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
    graph, params, words, phrases, added = inputs
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
            # Not noted by the search: told anew, of the arcs that are left.
            paid = _paid(graph, params, words, phrases, added, arc, boost)
            one.boost_cost = float32(float32(0) - paid)
    return arcs


@inlined
def _paid(graph, params, words, phrases, added, arc, boost):
    """Pay boosts on an arc of the graph or the overlay."""
    if added is not None:
        if arc >= added.first_arc:
            a = uint64(arc - added.first_arc)
            return paid_added(graph, params, words, phrases, added, a, boost)
    taken = graph.arcs[arc]
    if phrases is None:
        paid = bonus_of(params, words, taken)
    else:
        paid, _ = step_boosts(graph, params, words, phrases, taken, boost)
    return paid
