"""Walking back through a trace, and keeping it small."""

from __future__ import annotations

import numpy as np
from numpy import uint32

from wfstdec.jit import jit
from wfstdec.wfst import kernel_types as k
from wfstdec.wfst.path import BestPath
from wfstdec.wfst.selection import key_of

_NONE = uint32(k.NONE)


@jit
def best_final(frontier, count, final_cost, lm_scale, use_final):
    """The entry to end at: (position, cost, whether it is final).

    The least `cost + lm_scale * final`, ties to the lower state; where no entry is
    final, or with `use_final` off, the least entry.
    """
    best, best_key, best_cost = -1, np.uint64(0), np.float32(0)
    for i in range(count):
        final = final_cost[frontier[i].state]
        if use_final and final < np.inf:
            cost = np.float32(frontier[i].cost + np.float32(lm_scale * final))
            key = key_of(cost, frontier[i].state)
            if best < 0 or key < best_key:
                best, best_key, best_cost = i, key, cost
    if best >= 0:
        return best, best_cost, True
    for i in range(count):
        key = key_of(frontier[i].cost, frontier[i].state)
        if best < 0 or key < best_key:
            best, best_key, best_cost = i, key, frontier[i].cost
    return best, best_cost, False


@jit
def walk_back(trace, node):
    """The arcs from the root to a node, and their acoustic costs.

    Returns:
        (int64 [N], float32 [N]).
    """
    length = 0
    at = node
    while trace[at].arc != _NONE:
        length += 1
        at = trace[at].previous
    arcs, acoustic = np.empty(length, np.int64), np.empty(length, np.float32)
    at = node
    while trace[at].arc != _NONE:
        length -= 1
        arcs[length] = trace[at].arc
        acoustic[length] = trace[at].acoustic
        at = trace[at].previous
    return arcs, acoustic


def best_path(
    channel: k.Channel, final_cost: np.ndarray, lm_scale: np.float32
) -> BestPath:
    """End an utterance: pick the entry to end at and walk back from it."""
    counts = channel.counts
    at, cost, final, arcs, acoustic = _best_path(
        channel.frontier, channel.trace, counts, final_cost, lm_scale
    )
    return BestPath(
        arcs=arcs,
        acoustic=acoustic,
        final_cost=float(final_cost[channel.frontier[at]["state"]]) if final else 0.0,
        search_cost=float(channel.base[0]) + cost,
        reached_final=final,
        num_frames=int(counts[k.FRAMES]),
        died_at_frame=int(counts[k.DIED]),
    )


@jit
def _best_path(frontier, trace, counts, final_cost, lm_scale):
    """`best_final` and `walk_back` in one call."""
    at, cost, final = best_final(
        frontier, counts[k.FRONTIER], final_cost, lm_scale, counts[k.DIED] < 0
    )
    arcs, acoustic = walk_back(trace, frontier[at].node)
    return at, np.float64(cost), final, arcs, acoustic


@jit
def compact(trace, count, frontier, num_entries):
    """Drop the nodes that no frontier entry can reach; returns how many are left.

    Nodes keep their order, links and the frontier's nodes are renumbered in place.
    """
    new = np.full(count, _NONE, np.uint32)
    for i in range(num_entries):
        at = frontier[i].node
        while at != _NONE and new[at] == _NONE:
            new[at] = uint32(0)
            at = trace[at].previous
    kept = 0
    for i in range(count):
        if new[i] != _NONE:
            new[i] = uint32(kept)
            kept += 1
    for i in range(count):
        if new[i] != _NONE:
            previous = trace[i].previous
            trace[new[i]] = trace[i]
            if previous != _NONE:
                trace[new[i]].previous = new[previous]
    for i in range(num_entries):
        frontier[i].node = new[frontier[i].node]
    return kept
