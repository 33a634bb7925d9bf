"""The n-grams of a model as a trie with suffix links, in arrays.

    trie = build_trie([unigrams, bigrams, trigrams])     # int32 [N, n] each
    trie.parent[n], trie.label[n]      n-gram n is n-gram parent[n] and this label
    trie.suffix[n]                     its longest proper suffix that is in the trie

Node 0 is the empty n-gram; the n-grams follow in the order given; at the end stand
those that no table lists but a longer n-gram begins with.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from wfstdec.jit import jit
from wfstdec.jit.hashing import slot_of_pair

ROOT = 0


class NgramTrie(NamedTuple):
    """The nodes, M of them, and a hash table of their children.

    Attributes:
        pair: int32 [M, 2], the parent and the last label of each n-gram; the label of
            the empty one is -1.
        depth: int32 [M], the order of each n-gram.
        suffix: int32 [M]; the root's is the root.
        slots: int32, where each pair is found; see `jit.hashing`.
        num_listed: How many nodes the tables list, the root included.
        num_nodes: M.
    """

    pair: np.ndarray
    depth: np.ndarray
    suffix: np.ndarray
    slots: np.ndarray
    num_listed: int
    num_nodes: int

    @property
    def parent(self) -> np.ndarray:
        """The n-gram without its last label, int32 [M]; the root's is the root."""
        return self.pair[:, 0]

    @property
    def label(self) -> np.ndarray:
        """The last label of each n-gram, int32 [M]; -1 for the empty one."""
        return self.pair[:, 1]

    def by_depth(self) -> np.ndarray:
        """The nodes, shorter n-grams first."""
        return np.argsort(self.depth, kind="stable").astype(np.int32)


def build_trie(tables: list[np.ndarray]) -> NgramTrie:
    """Build the trie of n-gram tables, order 1 first.

    Args:
        tables: int32 [N, n] for each order n. The unigrams have all labels.
    """
    num_listed = 1 + sum(len(labels) for labels in tables)
    unlisted = sum(len(labels) * max(labels.shape[1] - 2, 0) for labels in tables)
    size = num_listed + unlisted
    trie = NgramTrie(
        pair=np.tile(np.array([ROOT, -1], np.int32), (size, 1)),
        depth=np.zeros(size, np.int32),
        suffix=np.zeros(size, np.int32),
        slots=np.full(1 << (2 * size).bit_length(), -1, np.int32),
        num_listed=num_listed,
        num_nodes=size,
    )
    node, num_nodes = 1, num_listed
    for labels in tables:
        num_nodes = _insert(trie, np.ascontiguousarray(labels), node, num_nodes)
        node += len(labels)
    trie = trie._replace(
        pair=trie.pair[:num_nodes],
        depth=trie.depth[:num_nodes],
        suffix=trie.suffix[:num_nodes],
        num_nodes=num_nodes,
    )
    _link_suffixes(trie, trie.by_depth())
    return trie


@jit
def find_child(trie: NgramTrie, parent: int, label: int) -> int:
    """The node of n-gram `parent` and `label`, or -1."""
    return trie.slots[slot_of_pair(trie.slots, trie.pair, parent, label)]


@jit
def _add(trie: NgramTrie, node: int, parent: int, label: int) -> None:
    trie.pair[node, 0], trie.pair[node, 1] = parent, label
    trie.depth[node] = trie.depth[parent] + 1
    trie.slots[slot_of_pair(trie.slots, trie.pair, parent, label)] = node


@jit
def _insert(trie: NgramTrie, labels: np.ndarray, node: int, num_nodes: int) -> int:
    """Add one table, whose first n-gram is `node`; returns the new number of nodes."""
    count, order = labels.shape
    for row in range(count):
        parent = ROOT
        for i in range(order - 1):
            child = find_child(trie, parent, labels[row, i])
            if child < 0:
                child = num_nodes
                _add(trie, child, parent, labels[row, i])
                num_nodes += 1
            parent = child
        _add(trie, node + row, parent, labels[row, order - 1])
    return num_nodes


@jit
def _link_suffixes(trie: NgramTrie, by_depth: np.ndarray) -> None:
    """Longest proper suffixes, from those of the parents."""
    for node in by_depth:
        parent, label = trie.pair[node, 0], trie.pair[node, 1]
        while parent != ROOT:
            parent = trie.suffix[parent]
            child = find_child(trie, parent, label)
            if child >= 0:
                trie.suffix[node] = child
                break
