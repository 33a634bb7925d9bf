"""Where an utterance may end, and the way back from there."""

from __future__ import annotations

import numpy as np
from numpy import uint32

from wfstdec.jit import jit
from wfstdec.wfst.cpu import records as k
from wfstdec.wfst.ends import best_end

_NONE = uint32(k.NONE)


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
def best_path(frontier, trace, counts, final_cost, lm_scale, refund):
    """`best_end` and `walk_back` in one call.

    Returns:
        (position of the entry to end at, cost, whether it is final, and what
        `walk_back` returns).
    """
    entries = frontier[: counts[k.FRONTIER]]
    survived = counts[k.DIED] < 0
    at, cost, final = best_end(entries, final_cost, lm_scale, survived, refund)
    root, arcs, acoustic = walk_back(trace, frontier[at].node)
    return at, np.float64(cost), final, root, arcs, acoustic
