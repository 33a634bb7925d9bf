"""The lexicon as a trie: words that begin alike share nodes.

    trie = build_trie(lexicon, {word: i for i, word in enumerate(words)})
    node = find_child(trie, node, token)                       # -1 where there is none
    ending = slice(*trie.node_pron_splits[node : node + 2])    # pronunciations, by row
    trie.pron_word[ending], trie.pron_cost[ending]             # and their words

Nodes are in preorder: the root is 0, and children follow their parent in the order of
their tokens, each with all that is below it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from wfstdec.errors import LexiconError
from wfstdec.jit import inlined, read_only
from wfstdec.jit.arrays import grow_tree
from wfstdec.lm.kernels import find_arc
from wfstdec.text.lexicon import Lexicon, Pronunciation


class LexiconTrie(NamedTuple):
    """A trie of N nodes for P pronunciations, as the kernels take it; read-only."""

    node_child_splits: np.ndarray  # int32 [N + 1], the row of each node's children
    child_token: np.ndarray  # int32 [N - 1], increasing in each row
    child_node: np.ndarray  # int32 [N - 1]
    # uint64 [N], the tokens of each node's children, modulo 64
    node_child_bits: np.ndarray
    node_token: np.ndarray  # int32 [N], the token that leads there; -1 at the root
    node_pron_splits: np.ndarray  # int32 [N + 1], which pronunciations end at each node
    # int32 [P], the word id of each pronunciation; increasing in each row
    pron_word: np.ndarray
    pron_cost: np.ndarray  # float32 [P], nats

    @property
    def num_nodes(self) -> int:
        """The number of nodes, N; at least the root."""
        return len(self.node_token)


def build_trie(lexicon: Lexicon, word_ids: Mapping[str, int]) -> LexiconTrie:
    """Make the trie of the entries whose words have an id."""
    # Of equal entries the one of least cost counts. The order of entries changes
    # nothing.
    costs = lexicon.costs.tolist()
    everything = zip(lexicon.pronunciations, lexicon.words, costs, strict=True)
    entries = sorted(
        (spelt, word_ids[word], cost)
        for spelt, word, cost in everything
        if word in word_ids
    )
    if entries and not entries[0][0]:
        word = lexicon.words[lexicon.pronunciations.index(())]
        raise LexiconError(f"{word!r} has no tokens, expected at least one")
    before = [None, *(entry[:2] for entry in entries)]
    pairs = zip(entries, before, strict=False)
    return trie_of([entry for entry, last in pairs if entry[:2] != last])


def trie_of(entries: Sequence[tuple[Pronunciation, int, float]]) -> LexiconTrie:
    """Make the trie of entries: tokens, word id, cost; sorted, each pair once."""
    counts = Counter(spelt for spelt, _, _ in entries)  # sorted, as the entries are
    tokens = np.array([token for spelt in counts for token in spelt], np.int32)
    splits = np.cumsum([0, *map(len, counts)])
    parent, node_token, _, ending = grow_tree(tokens, splits)
    prons = np.array([*counts.values()], np.int64)
    pron_node = np.repeat(np.flatnonzero(ending >= 0), prons)
    num_nodes = len(parent)
    children = 1 + np.argsort(parent[1:], kind="stable")
    child_bits = np.zeros(num_nodes, np.uint64)
    bits = np.uint64(1) << (node_token[1:] % 64).astype(np.uint64)
    np.bitwise_or.at(child_bits, parent[1:], bits)
    return LexiconTrie(
        node_child_splits=_splits_of(parent[1:], num_nodes),
        child_token=read_only(np.array(node_token[children], np.int32)),
        child_node=read_only(np.array(children, np.int32)),
        node_child_bits=read_only(child_bits),
        node_token=read_only(np.array(node_token, np.int32)),
        node_pron_splits=_splits_of(pron_node, num_nodes),
        pron_word=read_only(np.array([word for _, word, _ in entries], np.int32)),
        pron_cost=read_only(np.array([cost for _, _, cost in entries], np.float32)),
    )


@inlined
def find_child(trie, node, token):
    """The child of a node by a token, or -1."""
    begin = np.int64(trie.node_child_splits[node])
    end = np.int64(trie.node_child_splits[node + 1])
    child = find_arc(trie.child_token, begin, end, token)
    if child < end and trie.child_token[child] == token:
        return np.int64(trie.child_node[child])
    return np.int64(-1)


def root_children(trie: LexiconTrie, num_tokens: int) -> np.ndarray:
    """The child of the root by each token, int32 [V]; -1 for none."""
    child, count = np.full(num_tokens, -1, np.int32), trie.node_child_splits[1]
    child[trie.child_token[:count]] = trie.child_node[:count]
    return read_only(child)


def parents_of(trie: LexiconTrie) -> np.ndarray:
    """The parent of each node, int32 [N]; -1 for the root."""
    parent = np.full(trie.num_nodes, -1, np.int32)
    counts = np.diff(trie.node_child_splits)
    parent[trie.child_node] = np.repeat(np.arange(trie.num_nodes), counts)
    return parent


def pron_lengths(trie: LexiconTrie) -> np.ndarray:
    """Count the tokens of each pronunciation, int32 [P]."""
    depth = np.zeros(trie.num_nodes, np.int32)
    for node, parent in enumerate(parents_of(trie).tolist()):
        depth[node] = depth[parent] + 1 if parent >= 0 else 0
    return np.repeat(depth, np.diff(trie.node_pron_splits))


def _splits_of(rows: np.ndarray, num_rows: int) -> np.ndarray:
    """Where each row begins, given the row of each element."""
    counts = np.bincount(rows, minlength=num_rows)
    return read_only(np.array(np.concatenate([[0], np.cumsum(counts)]), np.int32))
