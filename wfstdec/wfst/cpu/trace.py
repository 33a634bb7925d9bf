"""Where an utterance may end, and the way back from there."""

from __future__ import annotations

import numpy as np
from numpy import uint32

from wfstdec.jit import jit
from wfstdec.jit.ordering import key_of
from wfstdec.wfst.cpu import records as k

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
def best_so_far(frontier, counts, final_cost, lm_scale, phrases):
    """The best entry, whatever it may end in: (position, its cost, that of ending).

    The cost of ending is infinite where no entry is final.
    """
    count, survived = counts[k.FRONTIER], counts[k.DIED] < 0
    at, cost, _ = best_final(frontier, count, final_cost, lm_scale, False, phrases)
    _, ended, final = best_final(
        frontier, count, final_cost, lm_scale, survived, phrases
    )
    return at, np.float64(cost), np.float64(ended) if final else np.inf


@jit
def walk_back(trace, node):
    """The arcs from a root to a node, and their acoustic costs.

    Returns:
        (number of the root's tip, int64 [N], float32 [N]).
    """
    length = 0
    at = node
    while trace[at].arc != _NONE:
        length += 1
        at = trace[at].previous
    root = np.int64(trace[at].acoustic)
    arcs, acoustic = np.empty(length, np.int64), np.empty(length, np.float32)
    at = node
    while trace[at].arc != _NONE:
        length -= 1
        arcs[length] = trace[at].arc
        acoustic[length] = trace[at].acoustic
        at = trace[at].previous
    return root, arcs, acoustic


@jit
def best_path(frontier, trace, counts, final_cost, lm_scale, phrases):
    """`best_final` and `walk_back` in one call.

    Returns:
        (position of the entry to end at, cost, whether it is final, and what
        `walk_back` returns).
    """
    survived = counts[k.DIED] < 0
    at, cost, final = best_final(
        frontier, counts[k.FRONTIER], final_cost, lm_scale, survived, phrases
    )
    root, arcs, acoustic = walk_back(trace, frontier[at].node)
    return at, np.float64(cost), final, root, arcs, acoustic
