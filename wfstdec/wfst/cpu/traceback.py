"""Where an utterance may end, and the way back from there."""

from __future__ import annotations

import numpy as np
from numpy import uint32

from wfstdec.jit import jit
from wfstdec.search.paths.traceback_kernels import read
from wfstdec.wfst.cpu import arrays as k
from wfstdec.wfst.final import best_end

_NO_NODE = uint32(k.NONE)


@jit
def walk_back(trace, node):
    """The arcs from a root to a node, and their acoustic costs.

    Returns:
        (number of the root's tip, int64 [N], float32 [N]).
    """
    length = 0
    at = node
    while trace[at].arc != _NO_NODE:
        length += 1
        at = trace[at].previous
    root = np.int64(trace[at].acoustic)
    arcs, acoustic = np.empty(length, np.int64), np.empty(length, np.float32)
    at = node
    while trace[at].arc != _NO_NODE:
        length -= 1
        arcs[length] = trace[at].arc
        acoustic[length] = trace[at].acoustic
        at = trace[at].previous
    return root, arcs, acoustic


@jit
def best_path(state, frontier, trace, counts, final_cost, lm_scale, boosts):
    """`best_end`, `walk_back` and `read` in one call; `state` is that of a history.

    Returns:
        (position of the entry to end at, cost, whether it is final, what `read`
        returns).
    """
    entries = frontier[: counts[k.FRONTIER]]
    survived = counts[k.DIED] < 0
    at, cost, final = best_end(entries, final_cost, lm_scale, survived, boosts)
    root, arcs, acoustic = walk_back(trace, frontier[at].node)
    said = read(*state, root, arcs, acoustic)
    return at, np.float64(cost), final, said
