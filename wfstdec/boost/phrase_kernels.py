"""Growing the tree of phrases, in numba: nodes, failure links, sums along them.

Nodes are numbered in the order in which sorted spellings make them, so that a node
stands before its children, and children of a node in the order of their labels.
"""

from __future__ import annotations

import numpy as np

from wfstdec.jit import jit
from wfstdec.lm.kernels import find_arc

ROOT = 0


@jit
def link_failures(
    parent: np.ndarray,
    label: np.ndarray,
    by_depth: np.ndarray,
    children: tuple[np.ndarray, np.ndarray, np.ndarray],
) -> np.ndarray:
    """Each node's longest proper suffix in the tree, int32 [N]; the root's is -1.

    Args:
        parent: int32 [N].
        label: int32 [N].
        by_depth: The nodes, the root first, shorter ones before longer ones.
        children: Splits [N + 1], nodes and their labels: the children of each node.
    """
    splits, child, child_label = children
    failure = np.full(len(parent), -1, np.int32)
    for node in by_depth[1:]:
        below = failure[parent[node]]
        failure[node] = ROOT
        while below >= 0:
            end = splits[below + 1]
            found = find_arc(child_label, splits[below], end, label[node])
            if found < end and child_label[found] == label[node]:
                failure[node] = child[found]
                break
            below = failure[below]
    return failure


@jit
def sum_suffixes(
    failure: np.ndarray, by_depth: np.ndarray, amount: np.ndarray
) -> np.ndarray:
    """The amounts of all spellings that end at a node, as suffixes too, float64 [N].

    Args:
        failure: int32 [N].
        by_depth: The nodes, the root first, shorter ones before longer ones.
        amount: float64 [N], of the spelling that is the node, or 0.
    """
    total = amount.copy()
    for node in by_depth[1:]:
        total[node] += total[failure[node]]
    return total


@jit
def greatest_below(parent: np.ndarray, scale: np.ndarray) -> np.ndarray:
    """The greatest scale of spellings that go on from a node, at least 0; float64 [N].

    Args:
        parent: int32 [N].
        scale: float64 [N], of the spelling that is the node, or 0.
    """
    greatest = np.zeros(len(parent))
    for node in range(len(parent) - 1, 0, -1):
        here = max(greatest[node], scale[node])
        greatest[parent[node]] = max(greatest[parent[node]], here)
    return greatest


@jit
def nearest_states(
    failure: np.ndarray, by_depth: np.ndarray, is_state: np.ndarray
) -> np.ndarray:
    """Each node's longest suffix, or itself, that is a state, int32 [N]."""
    nearest = np.zeros(len(failure), np.int32)
    for node in by_depth[1:]:
        nearest[node] = node if is_state[node] else nearest[failure[node]]
    return nearest
