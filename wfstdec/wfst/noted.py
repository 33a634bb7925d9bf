"""Arcs that a search noted for a lattice, on whatever backend: ends, pruning, frames.

Arcs stand in the order of frames, emitting ones before the epsilon arcs of the frame
they lead to, these by rank: so that one pass back sees all arcs from a state before
those into it. The states are the nodes of the search's trace.

The extra cost of a state is no less than what it is with every entry of the frontier at
0: so pruning while a search is under way drops nothing that counts.
"""

from __future__ import annotations

import numpy as np
from numpy import float32, uint32

from wfstdec.boost.instalments import rest_of, state_of
from wfstdec.graph.arcs import LABEL_MASK
from wfstdec.jit import jit

_LABEL = uint32(LABEL_MASK)
_NONE = uint32(0xFFFFFFFF)


@jit
def ends(entries, boosts, final_cost, lm_scale, best, is_final):
    """What ending at each entry costs more than the best end, and the boosts' rest.

    `boosts`: as for `best_end`. Returns float32 [F] twice; `inf` where none may end.
    """
    excess = np.full(len(entries), np.inf, np.float32)
    rest = np.zeros(len(entries), np.float32)
    for i in range(len(entries)):
        cost = entries[i].cost
        if is_final:
            final = final_cost[entries[i].state]
            if not final < np.inf:
                continue
            cost = float32(cost + float32(lm_scale * final))
        if boosts is not None:
            states, refund, size = boosts
            rest[i] = float32(refund[state_of(states[i])] - rest_of(states[i], size))
        excess[i] = float32(float32(cost + rest[i]) - best)
    return excess, rest


@jit
def prune(frontier, end_excess, trace, num_nodes, arcs, num_arcs, boosts, limit):
    """Drop arcs and nodes whose extra cost is above the limit; renumbers the rest.

    `end_excess`: float32 [F], the least extra cost that entries of the frontier have.
    Written anew are the nodes of the frontier, `trace`, `arcs` and `boosts`.

    Returns:
        (nodes, arcs) that are left.
    """
    extra = np.full(num_nodes, np.inf, np.float32)
    for i in range(len(frontier)):
        if end_excess[i] <= limit:
            extra[frontier[i].node] = end_excess[i]
    for a in range(num_arcs - 1, -1, -1):
        one = arcs[a]
        through = float32(one.excess + extra[one.nextstate])
        if through <= limit and through < np.inf:
            extra[one.state] = min(extra[one.state], through)
        else:
            one.arc = _NONE
    number = np.zeros(num_nodes, np.uint32)
    nodes = 0
    for n in range(num_nodes):
        if extra[n] < np.inf:
            number[n] = nodes
            nodes += 1
    for n in range(num_nodes):
        if extra[n] < np.inf:
            at = number[n]
            previous = trace[n].previous
            if previous != _NONE:
                previous = number[previous]
            trace[at] = trace[n]
            trace[at].previous = previous
            if len(boosts):
                boosts[at] = boosts[n]
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
def frames_of(graph_arcs, arcs, num_nodes):
    """The frames passed at each node, int32 [N]: arcs come in their order."""
    frames = np.zeros(num_nodes, np.int32)
    for a in range(len(arcs)):
        one = arcs[a]
        takes = np.int32((graph_arcs[one.arc].ilabel & _LABEL) != uint32(0))
        frames[one.nextstate] = frames[one.state] + takes
    return frames
