"""Noting arcs for a lattice while the CPU kernels search; `recorded.py` has the rule.

    noting.py       where candidates become entries: those that lose, and epsilon arcs
    finish_noting   once the frontier is closed: excess, which drops most of them
    commit          once the trace has the nodes that these arcs are between
    keep            now and then: drops what cannot be part of the lattice
    forget          and what is settled and was handed out
    gathering.py    at the end, after the last `keep`: what is left, sorted

The arc that won a node stands in the trace; its excess is 0. The others of a frame are
noted in an order such that those into an entry come before those out of it.

A candidate's excess only grows when the entry that it leads to improves, and the extra
cost of a state is no less than what it is with every entry of the frontier at 0. So
dropping early drops nothing that counts.
"""

from __future__ import annotations

import numpy as np
from numpy import float32, uint32, uint64

from wfstdec.jit import inlined, jit, part
from wfstdec.wfst.cpu import records as k
from wfstdec.wfst.cpu.added_entries import label_at
from wfstdec.wfst.cpu.arc_costs import arc_of_flagged
from wfstdec.wfst.cpu.noting import OF_OVERLAY

_NONE = uint32(k.NONE)
_EPSILON_ARC = uint32(k.EPSILON_ARC)


@part
def finish_noting(graph, added, work, channel, record, count):
    """Finish the arcs of a frame, whose frontier is closed; did they fit?"""
    first = uint32(channel.counts[k.TRACE])
    noted, last = uint64(record.counts[0]), uint64(record.counts[1])
    if last > uint64(len(record.arcs)):
        return False
    for q in range(noted, last):
        one = record.arcs[q]
        to = _position(one.nextstate, count)
        excess = float32(one.excess - work.next[uint64(to)].cost)
        if excess <= record.limit:
            kept, arc, state = record.arcs[noted], one.arc, one.state
            if arc & _EPSILON_ARC:
                arc = arc_of_flagged(arc ^ _EPSILON_ARC)
                kept.state = first + _position(state, count)
                kept.acoustic = float32(0)
            else:
                arc = arc_of_flagged(arc)
                kept.state = state
                kept.acoustic = work.unscaled[label_at(graph, added, arc)]
            kept.nextstate, kept.arc, kept.excess = first + to, arc, excess
            noted += uint64(1)
    record.counts[1] = np.int64(noted)
    return True


@inlined
def _position(noted, count):
    """Where an entry is in `work.next`; `count` of these are the graph's."""
    if noted & OF_OVERLAY:
        return (noted ^ OF_OVERLAY) + uint32(count)
    return noted


@part
def commit(phrases, work, channel, record, count):
    """Count the arcs of a frame in, now that the trace has its nodes."""
    record.counts[0] = record.counts[1]
    row = record.frames[record.counts[2]]
    row[0], row[1] = channel.counts[k.TRACE], record.counts[0]
    record.counts[2] += 1
    if phrases is not None:
        first = uint64(channel.counts[k.TRACE]) - count
        for i in range(count):
            record.boosts[first + uint64(i)] = work.next_boosts[i].boost


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
        while at < behind and np.int64(kept[at]) < last:
            n = np.int64(kept[at])
            number[n], trace[num_nodes] = num_nodes, trace[n]
            if len(boosts):
                boosts[num_nodes] = boosts[n]
            num_nodes, at = num_nodes + 1, at + 1
        for a in range(first_arc, last_arc):
            if arcs[a].arc != _NONE:
                arcs[num_arcs] = arcs[a]
                num_arcs += 1
        frames[row, 0], frames[row, 1] = num_nodes, num_arcs
        first_arc = last_arc
    for n in range(num_nodes):
        if trace[n].previous != _NONE:
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
    for row in range(rows - 1, -1, -1):
        first, first_arc = begin_of(record, row)
        last, last_arc = record.frames[row, 0], record.frames[row, 1]
        for a in range(last_arc - 1, first_arc - 1, -1):
            one = arcs[a]
            through = float32(one.excess + extra[one.nextstate])
            if through <= limit and through < np.inf:
                extra[one.state] = min(extra[one.state], through)
            else:
                one.arc = _NONE
        for n in range(last - 1, first - 1, -1):
            if extra[n] < np.inf:
                at -= 1
                kept[at] = n
                if is_emitted(trace, n, first):
                    before = np.int64(trace[n].previous)
                    extra[before] = min(extra[before], extra[n])
    return at, behind


@inlined
def is_emitted(trace, node, first):
    """Whether an emitting arc made a node; `first`: the first node of its frame."""
    return trace[node].arc != _NONE and np.int64(trace[node].previous) < first


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
    trace[0].previous, trace[0].arc, trace[0].acoustic = _NONE, _NONE, float32(0)
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
