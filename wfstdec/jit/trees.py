"""Growing trees from sorted spellings: of phrases, and of a lexicon's pronunciations.

Nodes are numbered in the order in which the spellings make them, so that a node stands
before its children, and children of a node in the order of their labels.
"""

from __future__ import annotations

import numpy as np

from wfstdec.jit import jit


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
        # Sorted spellings share their path with the one before, or with none.
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
