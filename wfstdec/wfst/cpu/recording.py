"""Noting arcs for a lattice while the CPU kernels search; `recorded.py` has the rule.

    note_emitted   before a frontier is closed: the candidates within the cutoff
    note_closed    after it: the excess of these, and the epsilon arcs, by rank
    commit         once the trace has the nodes that these arcs are between
    prune          now and then: drops what cannot be part of the lattice
    gather         at the end, after the last `spread`: what is left

A candidate's excess only grows when the entry that it leads to improves, and the extra
cost of a state is no less than what it is with every entry of the frontier at 0. So
dropping early drops nothing that counts.
"""

from __future__ import annotations

import numpy as np
from numpy import float32, uint32, uint64

from wfstdec.jit import inlined, jit, kernel
from wfstdec.wfst.cpu import records as k
from wfstdec.wfst.cpu.added import paid_added
from wfstdec.wfst.cpu.added_entries import find_added, label_at
from wfstdec.wfst.cpu.arc_costs import arc_of_flagged, bonus_of, step_boosts
from wfstdec.wfst.cpu.closure import relax
from wfstdec.wfst.cpu.recombination import find, find_alone, find_quiet
from wfstdec.wfst.noted import spread

_NONE = uint32(k.NONE)
_EPSILON_ARC = uint32(k.EPSILON_ARC)
_OF_OVERLAY = uint32(1 << 31)
"""Set in the position of an entry that is one of the overlay's."""
_ONE = uint64(1)
_ZERO = uint64(0)


@kernel
def note_emitted(phrases, added, work, record, count, more, made, cutoff):
    """Note candidates, with their costs and the positions of entries; do they fit?

    Entries of an overlay are not yet behind those of the graph: their positions are
    flagged.
    """
    noted = uint64(record.counts[0])
    if noted + made[0] + made[1] + made[2] > uint64(len(record.arcs)):
        return False
    for q in range(made[0]):
        candidate = work.candidates[q]
        if candidate.cost <= cutoff:
            i = find_quiet(phrases, work, count, candidate.state)
            noted = _note(
                *(record, noted, candidate.node, candidate.arc, candidate.cost),
                *(uint32(i), work.next[i].cost),
            )
    if phrases is not None:
        for q in range(made[1]):
            candidate = work.side[q]
            if candidate.cost <= cutoff:
                i = find(work, count, candidate.state, candidate.boost)
                noted = _note(
                    *(record, noted, candidate.node, candidate.arc, candidate.cost),
                    *(uint32(i), work.next[i].cost),
                )
    if added is not None:
        for q in range(made[2]):
            candidate = added.made[q]
            if candidate.cost <= cutoff:
                i, least = _entry_of(phrases, added, work, count, more, candidate)
                noted = _note(
                    *(record, noted, candidate.node, candidate.arc, candidate.cost),
                    *(i, least),
                )
    record.counts[1] = np.int64(noted)
    return True


@inlined
def _entry_of(phrases, added, work, count, more, candidate):
    """The entry that a candidate of an overlay's arc leads to, and what it costs."""
    if candidate.state >= added.first_state:
        i = find_added(added, more, candidate.state, candidate.boost)
        return uint32(i) | _OF_OVERLAY, added.next[i].cost
    if phrases is None:
        i = find_alone(work, count, candidate.state)
    else:
        i = find(work, count, candidate.state, candidate.boost)
    return uint32(i), work.next[i].cost


@inlined
def _note(record, noted, node, arc, cost, i, least):
    """Note a candidate that leads to entry `i`, if it may count; how many there are."""
    one = record.arcs[noted]
    one.state, one.nextstate = node, i
    one.arc, one.excess = arc, cost
    excess = float32(cost - least)
    return noted + uint64(excess <= record.limit)


@kernel
def note_closed(
    graph,
    scales,
    words,
    phrases,
    added,
    work,
    channel,
    record,
    count,
    more,
    waiting,
    cutoff,
):
    """Finish the arcs of a frame, whose frontier is closed; do they fit?"""
    first = uint32(channel.counts[k.TRACE])
    noted = uint64(record.counts[0])
    for q in range(noted, uint64(record.counts[1])):
        one = record.arcs[q]
        to = one.nextstate
        if to & _OF_OVERLAY:
            to = (to ^ _OF_OVERLAY) + uint32(count)
        excess = float32(one.excess - work.next[uint64(to)].cost)
        if excess <= record.limit:
            kept, arc = record.arcs[noted], arc_of_flagged(one.arc)
            kept.acoustic = work.unscaled[label_at(graph, added, arc)]
            kept.state, kept.nextstate = one.state, to + first
            kept.arc, kept.excess = arc, excess
            noted += _ONE
    fits = True
    if count == _ZERO:
        waiting = _ZERO
    for w in range(waiting):
        i = uint64(work.waiting[w])
        if fits and graph.rows[uint64(work.next[i].state)].rank == uint32(0):
            noted, fits = _note_epsilons(
                *(graph, scales, words, phrases, work, record, noted, count, cutoff),
                *(first, i),
            )
    for rank in range(_ONE, graph.num_ranks):
        i = uint64(work.rank_heads[rank]) if count > _ZERO else uint64(_NONE)
        while fits and i != uint64(_NONE):
            noted, fits = _note_epsilons(
                *(graph, scales, words, phrases, work, record, noted, count, cutoff),
                *(first, i),
            )
            i = uint64(work.links[i])
    if added is not None:
        if noted + more > uint64(len(record.arcs)):
            return False
        noted = _note_epsilons_added(added, work, record, noted, first, count, more)
    record.counts[1] = np.int64(noted)
    return fits


@inlined
def _note_epsilons_added(added, work, record, noted, first, count, more):
    """Note the epsilon arcs of an overlay's entries, which cost nothing."""
    for i in range(more):
        entry = added.next[i]
        state = uint64(entry.state - added.first_state)
        a = added.begin[state]
        if a < added.emit[state]:
            nextstate = added.arcs[a].nextstate
            to = find_added(added, more, nextstate, entry.boost)
            one = record.arcs[noted]
            one.state = first + uint32(count + i)
            one.nextstate = first + uint32(count + to)
            one.arc, one.acoustic = a + added.first_arc, float32(0)
            one.excess = float32(entry.cost - work.next[count + to].cost)
            noted += uint64(one.excess <= record.limit)
    return noted


@inlined
def _note_epsilons(
    graph, scales, words, phrases, work, record, noted, count, cutoff, first, i
):
    """Note the epsilon arcs of entry `i`; how many arcs there are, whether they fit."""
    made, side, _ = relax(graph, scales, words, phrases, work, _ZERO, _ZERO, cutoff, i)
    if noted + made + side > uint64(len(record.arcs)):
        return noted, False
    for q in range(made):
        candidate = work.candidates[q]
        to = find_quiet(phrases, work, count, candidate.state)
        noted = _note_epsilon(
            *(work, record, noted, first, i, to),
            *(candidate.arc, candidate.cost),
        )
    if phrases is not None:
        for q in range(side):
            candidate = work.side[q]
            to = find(work, count, candidate.state, candidate.boost)
            noted = _note_epsilon(
                *(work, record, noted, first, i, to),
                *(candidate.arc, candidate.cost),
            )
    return noted, True


@inlined
def _note_epsilon(work, record, noted, first, i, to, arc, cost):
    """The same of an epsilon arc of entry `i`, to entry `to` of the same frontier."""
    one = record.arcs[noted]
    one.state, one.nextstate = first + uint32(i), first + uint32(to)
    one.arc = arc_of_flagged(arc ^ _EPSILON_ARC)
    one.excess = float32(cost - work.next[to].cost)
    one.acoustic = float32(0)
    return noted + uint64(one.excess <= record.limit)


@kernel
def commit(phrases, work, channel, record, count):
    """Count the arcs of a frame in, now that the trace has its nodes."""
    record.counts[0] = record.counts[1]
    if phrases is not None:
        first = uint64(channel.counts[k.TRACE]) - count
        for i in range(count):
            record.boosts[first + uint64(i)] = work.next_boosts[i].boost


@jit
def prune(frontier, end_excess, trace, num_nodes, record):
    """Drop arcs and nodes whose extra cost is above the limit; renumbers the rest.

    `end_excess`: float32 [F], the least extra cost that entries of the frontier have.
    Written anew are the nodes of the frontier, of `trace`, and what `record` has.

    Returns:
        (nodes, arcs) that are left.
    """
    arcs, num_arcs, boosts = record.arcs, record.counts[0], record.boosts
    spread(frontier, end_excess, num_nodes, record)
    extra, number = record.extra, record.number
    nodes = 0
    for n in range(num_nodes):
        if extra[n] < np.inf:
            number[n] = nodes
            trace[nodes] = trace[n]
            if len(boosts):
                boosts[nodes] = boosts[n]
            nodes += 1
    for n in range(nodes):
        if trace[n].previous != _NONE:
            trace[n].previous = number[trace[n].previous]
    for i in range(len(frontier)):
        frontier[i].node = number[frontier[i].node]
    kept = 0
    for a in range(num_arcs):
        if arcs[a].arc != _NONE:
            arcs[kept] = arcs[a]
            arcs[kept].state = number[arcs[a].state]
            arcs[kept].nextstate = number[arcs[a].nextstate]
            kept += 1
    return nodes, kept


@jit
def gather(graph, scales, words, phrases, added, trace, num_nodes, record):
    """After `spread`, what is left: arcs and nodes, numbered anew.

    Returns:
        (the columns of `RecordedArcs`; node uint32 [N], the frames passed at each).
    """
    arcs, number, count = record.arcs, record.number, 0
    for a in range(record.counts[0]):
        count += np.int64(arcs[a].arc != _NONE)
    state, nextstate = np.empty(count, np.int64), np.empty(count, np.int64)
    taken, excess = np.empty(count, np.uint32), np.empty(count, np.float32)
    acoustic, boost_cost = np.empty(count, np.float32), np.empty(count, np.float32)
    nodes, frames = np.empty(count + 1, np.uint32), np.empty(count + 1, np.int32)
    number[:num_nodes] = -1
    kept, at = 1, 0
    for n in range(num_nodes):
        if trace[n].previous == _NONE:
            nodes[0], frames[0], number[n] = n, 0, 0
            break
    for a in range(record.counts[0]):
        one = arcs[a]
        if one.arc == _NONE:
            continue
        source = np.int64(number[one.state])
        if number[one.nextstate] < 0:
            number[one.nextstate] = kept
            nodes[kept] = one.nextstate
            label = label_at(graph, added, one.arc)
            frames[kept] = frames[source] + np.int32(label != uint32(0))
            kept += 1
        state[at], nextstate[at] = source, number[one.nextstate]
        taken[at], excess[at], acoustic[at] = one.arc, one.excess, one.acoustic
        boost = record.boosts[one.state] if len(record.boosts) else uint32(0)
        paid = _paid(graph, scales, words, phrases, added, one.arc, boost)
        boost_cost[at] = float32(float32(0) - paid)
        at += 1
    columns = (state, nextstate, taken, excess, acoustic, boost_cost)
    return columns, nodes[:kept], frames[:kept]


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
