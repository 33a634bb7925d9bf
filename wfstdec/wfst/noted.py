"""Arcs that a search noted for a lattice, on any backend: ends, extra costs, frames.

Arcs stand in the order of frames, emitting ones before the epsilon arcs of the frame
they lead to, these by rank: so that one pass back sees all arcs from a state before
those into it. The states are the nodes of the search's trace.
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
            if entries[i].state >= len(final_cost):
                continue  # in a word that is added
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
def spread(frontier, end_excess, num_nodes, record):
    """Find the extra cost of nodes; arcs above the limit are marked by arc NONE.

    Args:
        frontier: Entries with `node`, [F].
        end_excess: float32 [F], what ending at each costs more than the best end.
        num_nodes: N.
        record: Has `arcs`, of which `counts[0]` are there, `limit`, and room for what
            is found, `extra`, float32 [N].
    """
    extra, arcs, limit = record.extra, record.arcs, record.limit
    extra[:num_nodes] = np.inf
    for i in range(len(frontier)):
        if end_excess[i] <= limit:
            extra[frontier[i].node] = end_excess[i]
    for a in range(record.counts[0] - 1, -1, -1):
        one = arcs[a]
        through = float32(one.excess + extra[one.nextstate])
        if through <= limit and through < np.inf:
            if through < extra[one.state]:
                extra[one.state] = through
        else:
            one.arc = _NONE


@jit
def frames_of(graph_arcs, added_arcs, arcs, num_nodes):
    """The frames passed at each node, int32 [N]."""
    frames = np.zeros(num_nodes, np.int32)
    for a in range(len(arcs)):
        one, beyond = arcs[a], np.int64(arcs[a].arc) - len(graph_arcs)
        if beyond < 0:
            ilabel = graph_arcs[one.arc].ilabel
        else:
            ilabel = added_arcs[beyond].ilabel
        takes = np.int32((ilabel & _LABEL) != uint32(0))
        frames[one.nextstate] = frames[one.state] + takes
    return frames


def nextstates(
    graph_arcs: np.ndarray, added_arcs: np.ndarray, arcs: np.ndarray
) -> np.ndarray:
    """Where arcs lead, uint32; those of numbers from A on are of the overlay."""
    found = np.empty(len(arcs), np.uint32)
    own = arcs < len(graph_arcs)
    found[own] = graph_arcs["nextstate"][arcs[own]]
    found[~own] = added_arcs["nextstate"][arcs[~own] - np.uint32(len(graph_arcs))]
    return found
