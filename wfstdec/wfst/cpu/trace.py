"""Walking back through a trace, and keeping it small."""

from __future__ import annotations

import numpy as np
from numpy import uint32

from wfstdec.boost.phrase_rows import PhraseRows
from wfstdec.jit import jit
from wfstdec.jit.ordering import key_of
from wfstdec.wfst.cpu import records as k
from wfstdec.wfst.path import BestPath

_NONE = uint32(k.NONE)


@jit
def best_final(frontier, count, final_cost, lm_scale, use_final, phrases):
    """The entry to end at: (position, cost, whether it is final).

    The least `(cost + lm_scale * final) + final of the phrases`, ties to the lower
    state; where no entry is final, or with `use_final` off, the same of all entries
    without the graph's final costs.
    """
    best, best_key, best_cost = -1, np.uint64(0), np.float32(0)
    best_boost, reached_final = uint32(0), False
    for of_final in (True, False):
        for i in range(count):
            cost, boost = frontier[i].cost, uint32(0)
            if of_final:
                final = final_cost[frontier[i].state]
                if not (use_final and final < np.inf):
                    continue
                cost = np.float32(cost + np.float32(lm_scale * final))
            if phrases is not None:
                boost = frontier[i].boost
                cost = np.float32(cost + phrases.final_cost[boost])
            key = key_of(cost, frontier[i].state)
            if best < 0 or key < best_key or (key == best_key and boost < best_boost):
                best, best_key, best_cost, best_boost = i, key, cost, boost
                reached_final = of_final
        if best >= 0:
            break
    return best, best_cost, reached_final


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
    channel: k.Channel,
    final_cost: np.ndarray,
    lm_scale: np.float32,
    phrases: PhraseRows | None,
) -> BestPath:
    """End an utterance: pick the entry to end at and walk back from it."""
    counts = channel.counts
    at, cost, final, arcs, acoustic = _best_path(
        channel.frontier, channel.trace, counts, final_cost, lm_scale, phrases
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
def _best_path(frontier, trace, counts, final_cost, lm_scale, phrases):
    """`best_final` and `walk_back` in one call."""
    survived = counts[k.DIED] < 0
    at, cost, final = best_final(
        frontier, counts[k.FRONTIER], final_cost, lm_scale, survived, phrases
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
