"""The n-grams of an ARPA model as a trie with suffix links, in arrays.

    trie = build_trie([unigrams, bigrams, trigrams])     # int32 [N, n] each
    trie.parent[n], trie.word[n]       n-gram n is n-gram parent[n] and this word
    trie.suffix[n]                     its longest proper suffix that is in the trie

Node 0 is the empty n-gram; the n-grams follow in the order given; at the end stand
those that no table lists but a longer n-gram begins with.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from wfstdec.jit import jit

ROOT = 0
_PARENT_FACTOR = 1000003
_KEY_MASK = (1 << 31) - 1
_SPREAD_FACTOR = 2654435761  # below 2**32: products stay below 2**63


class NgramTrie(NamedTuple):
    """The nodes, M of them, and a hash table of their children.

    Attributes:
        parent: int32 [M].
        word: int32 [M], the last word of each n-gram; -1 for the empty one.
        depth: int32 [M], the order of each n-gram.
        suffix: int32 [M]; the root's is the root.
        slots: int32, open addressing by (parent, word), -1 where empty.
        num_listed: How many nodes the tables list, the root included.
        num_nodes: M.
    """

    parent: np.ndarray
    word: np.ndarray
    depth: np.ndarray
    suffix: np.ndarray
    slots: np.ndarray
    num_listed: int
    num_nodes: int

    def by_depth(self) -> np.ndarray:
        """The nodes, shorter n-grams first."""
        return np.argsort(self.depth, kind="stable").astype(np.int32)


def build_trie(tables: list[np.ndarray]) -> NgramTrie:
    """Build the trie of n-gram tables, order 1 first; the unigrams have all words."""
    num_listed = 1 + sum(len(words) for words in tables)
    unlisted = sum(len(words) * max(words.shape[1] - 2, 0) for words in tables)
    size = num_listed + unlisted
    trie = NgramTrie(
        parent=np.full(size, ROOT, np.int32),
        word=np.full(size, -1, np.int32),
        depth=np.zeros(size, np.int32),
        suffix=np.zeros(size, np.int32),
        slots=np.full(1 << (2 * size).bit_length(), -1, np.int32),
        num_listed=num_listed,
        num_nodes=size,
    )
    node, num_nodes = 1, num_listed
    for words in tables:
        num_nodes = _insert(trie, np.ascontiguousarray(words), node, num_nodes)
        node += len(words)
    trie = NgramTrie(
        parent=trie.parent[:num_nodes],
        word=trie.word[:num_nodes],
        depth=trie.depth[:num_nodes],
        suffix=trie.suffix[:num_nodes],
        slots=trie.slots,
        num_listed=num_listed,
        num_nodes=num_nodes,
    )
    _link_suffixes(trie, trie.by_depth())
    return trie


@jit
def _slot(trie: NgramTrie, parent: int, word: int) -> int:
    """Where the child of `parent` by `word` stands, or would stand."""
    mask = len(trie.slots) - 1
    key = (int(parent) * _PARENT_FACTOR ^ int(word)) & _KEY_MASK
    slot = (key * _SPREAD_FACTOR >> 16) & mask
    while True:
        node = trie.slots[slot]
        if node < 0 or (trie.parent[node] == parent and trie.word[node] == word):
            return slot
        slot = (slot + 1) & mask


@jit
def find_child(trie: NgramTrie, parent: int, word: int) -> int:
    """The node of n-gram `parent` and `word`, or -1."""
    return trie.slots[_slot(trie, parent, word)]


@jit
def _add(trie: NgramTrie, node: int, parent: int, word: int) -> None:
    trie.parent[node] = parent
    trie.word[node] = word
    trie.depth[node] = trie.depth[parent] + 1
    trie.slots[_slot(trie, parent, word)] = node


@jit
def _insert(trie: NgramTrie, words: np.ndarray, node: int, num_nodes: int) -> int:
    """Add one table, whose first n-gram is `node`; returns the new number of nodes."""
    count, order = words.shape
    for row in range(count):
        parent = ROOT
        for i in range(order - 1):
            child = find_child(trie, parent, words[row, i])
            if child < 0:
                child = num_nodes
                _add(trie, child, parent, words[row, i])
                num_nodes += 1
            parent = child
        _add(trie, node + row, parent, words[row, order - 1])
    return num_nodes


@jit
def _link_suffixes(trie: NgramTrie, by_depth: np.ndarray) -> None:
    """Longest proper suffixes, from those of the parents."""
    for node in by_depth:
        parent = trie.parent[node]
        while parent != ROOT:
            parent = trie.suffix[parent]
            child = find_child(trie, parent, trie.word[node])
            if child >= 0:
                trie.suffix[node] = child
                break


@jit
def fill_unlisted(
    trie: NgramTrie, nodes: np.ndarray, cost: np.ndarray, backoff: np.ndarray
) -> None:
    """Give these nodes, shorter n-grams first, the cost of backing off."""
    for node in nodes:
        history = trie.parent[node]
        total = 0.0
        child = -1
        while child < 0:
            total += backoff[history]
            history = trie.suffix[history]
            child = find_child(trie, history, trie.word[node])
        cost[node] = total + cost[child]
