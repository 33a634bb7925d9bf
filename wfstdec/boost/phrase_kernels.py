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
def grow_tree(
    labels: np.ndarray, splits: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """The tree of spellings that are sorted, different and not empty.

    Args:
        labels: int32, all spellings in a row.
        splits: int64 [P + 1], where each stands.

    Returns:
        Of each node but -1 where it has none: parent, label, depth (0 for the root)
        and the spelling that ends there; int32 [N].
    """
    size = len(labels) + 1
    parent, label = np.full(size, -1, np.int32), np.full(size, -1, np.int32)
    depth, ending = np.zeros(size, np.int32), np.full(size, -1, np.int32)
    path = np.zeros(size, np.int32)  # the nodes of the spelling before
    num_nodes, length_before, begin_before = 1, 0, 0
    for i in range(len(splits) - 1):
        begin, length = splits[i], splits[i + 1] - splits[i]
        common = 0
        while (
            common < min(length, length_before)
            and labels[begin + common] == labels[begin_before + common]
        ):
            common += 1
        for position in range(common, length):
            parent[num_nodes] = path[position]
            label[num_nodes] = labels[begin + position]
            depth[num_nodes] = position + 1
            path[position + 1] = num_nodes
            num_nodes += 1
        ending[path[length]] = i
        length_before, begin_before = length, begin
    return (
        parent[:num_nodes],
        label[:num_nodes],
        depth[:num_nodes],
        ending[:num_nodes],
    )


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
def spread(
    parent: np.ndarray,
    failure: np.ndarray,
    by_depth: np.ndarray,
    own: np.ndarray,
    scale: np.ndarray,
) -> tuple[np.ndarray, np.ndarray]:
    """What is completed at a node, and the greatest scale of what goes on from it.

    Args:
        parent: int32 [N].
        failure: int32 [N].
        by_depth: The nodes, shorter ones before longer ones.
        own: float64 [N], the amount of the spelling that ends at the node, or 0.
        scale: float64 [N], its scale, or 0.

    Returns:
        float64 [N] each: the amounts of all spellings that end there, as suffixes
        too; the greatest scale of spellings that are longer, at least 0.
    """
    done, greatest = own.copy(), np.zeros(len(own))
    for node in by_depth[1:]:
        done[node] += done[failure[node]]
    for node in range(len(own) - 1, 0, -1):
        here = max(greatest[node], scale[node])
        greatest[parent[node]] = max(greatest[parent[node]], here)
    return done, greatest


@jit
def nearest_states(
    failure: np.ndarray, by_depth: np.ndarray, is_state: np.ndarray
) -> np.ndarray:
    """Each node's longest suffix, or itself, that is a state, int32 [N]."""
    nearest = np.zeros(len(failure), np.int32)
    for node in by_depth[1:]:
        nearest[node] = node if is_state[node] else nearest[failure[node]]
    return nearest


@jit
def least_above(credit: np.ndarray, backoff_state: np.ndarray) -> np.ndarray:
    """The least credit of a state and all states that back off to it."""
    least = credit.copy()
    for state in range(len(credit) - 1, 0, -1):
        below = backoff_state[state]
        least[below] = min(least[below], least[state])
    return least
