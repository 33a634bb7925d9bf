"""Histories of an n-gram model, from which G and `NgramLM` are built.

    histories = build_histories(arpa, of_word, num_labels)
    is_state = histories.prefixes()              # G and NgramLM extend it
    target, backoff = histories.targets(is_state)
    # n-gram n leads from the state of its history to the state target[n], with
    # backoff[n] for the histories in between that are not states

Unlisted prefixes of n-grams are added, at the cost of backing off, so that every n-gram
of the file is used. In the trie, node 0 is the empty n-gram; those of the file follow
in order; added ones are last.
"""

import logging
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from wfstdec.errors import ArpaError
from wfstdec.jit import jit
from wfstdec.jit.arrays import slot_of_pair
from wfstdec.text.arpa import ArpaModel

NO_LABEL = -1  # of a word without a label: n-grams with it are dropped
ROOT = 0  # node of the empty n-gram
_log = logging.getLogger("wfstdec.lm")


class NgramTrie(NamedTuple):
    """Trie of M nodes, with a hash table of their children."""

    pair: np.ndarray  # int32 [M, 2], parent and last label of each n-gram
    depth: np.ndarray  # int32 [M], order of each n-gram
    suffix: np.ndarray  # int32 [M], longest proper suffix; the root's is the root
    slots: np.ndarray  # int32, hash table of pairs; see `jit.arrays`
    num_listed: int  # nodes in the tables, including the root

    @property
    def num_nodes(self) -> int:
        """Number of nodes, M."""
        return len(self.depth)

    @property
    def parent(self) -> np.ndarray:
        """The n-gram without its last label, int32 [M]; the root's is the root."""
        return self.pair[:, 0]

    @property
    def label(self) -> np.ndarray:
        """Last label of each n-gram, int32 [M]; -1 for the empty one."""
        return self.pair[:, 1]

    def by_depth(self) -> np.ndarray:
        """Return the nodes, shorter n-grams first."""
        return np.argsort(self.depth, kind="stable").astype(np.int32)


def build_trie(tables: list[np.ndarray]) -> NgramTrie:
    """Build the trie of n-gram tables, order 1 first."""
    # `tables`: int32 [N, n] for each order n. The unigrams have all labels.
    num_listed = 1 + sum(len(labels) for labels in tables)
    unlisted = sum(len(labels) * max(labels.shape[1] - 2, 0) for labels in tables)
    size = num_listed + unlisted
    trie = NgramTrie(
        pair=np.tile(np.array([ROOT, -1], np.int32), (size, 1)),
        depth=np.zeros(size, np.int32),
        suffix=np.zeros(size, np.int32),
        slots=np.full(1 << (2 * size).bit_length(), -1, np.int32),
        num_listed=num_listed,
    )
    node, num_nodes = 1, num_listed
    for labels in tables:
        num_nodes = _insert(trie, np.ascontiguousarray(labels), node, num_nodes)
        node += len(labels)
    pair, depth, suffix = (part[:num_nodes] for part in trie[:3])
    trie = trie._replace(pair=pair, depth=depth, suffix=suffix)
    _link_suffixes(trie, trie.by_depth())
    return trie


@jit
def find_child(trie: NgramTrie, parent: int, label: int) -> int:
    """Return the node of n-gram `parent` and `label`, or -1."""
    return trie.slots[slot_of_pair(trie.slots, trie.pair, parent, label)]


@jit
def _add(trie: NgramTrie, node: int, parent: int, label: int) -> None:
    trie.pair[node, 0], trie.pair[node, 1] = parent, label
    trie.depth[node] = trie.depth[parent] + 1
    trie.slots[slot_of_pair(trie.slots, trie.pair, parent, label)] = node


@jit
def _insert(trie: NgramTrie, labels: np.ndarray, node: int, num_nodes: int) -> int:
    """Add a table, whose first n-gram is `node`; return the new number of nodes."""
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
    for node in by_depth:
        parent, label = trie.pair[node, 0], trie.pair[node, 1]
        while parent != ROOT:
            parent = trie.suffix[parent]
            child = find_child(trie, parent, label)
            if child >= 0:
                trie.suffix[node] = child
                break


@dataclass(frozen=True, eq=False)
class Histories:
    """N-grams over labels; each may be the history of others."""

    trie: NgramTrie  # M n-grams, including the empty one
    cost: np.ndarray  # float64 [M], nats
    backoff: np.ndarray  # float64 [M], nats
    bos: int  # label of `<s>`
    eos: int  # label of `</s>`

    @property
    def is_bos(self) -> np.ndarray:
        """Whether an n-gram is `<s>`, the history that begins sentences; bool [M]."""
        return (self.trie.label == self.bos) & (self.trie.depth == 1)

    @property
    def is_end(self) -> np.ndarray:
        """Whether n-grams end with `</s>`, bool [M]: final costs, not histories."""
        return self.trie.label == self.eos

    def predicting(self) -> np.ndarray:
        """N-grams that predict a word: not empty, not `<s>`; int [N]."""
        return np.flatnonzero((self.trie.depth > 0) & ~self.is_bos & ~self.is_end)

    def num_below_backoff(self) -> int:
        """Return the number of n-grams that are less probable than backing off."""
        suffix = self.trie.suffix
        listed = self.trie.depth[suffix] == self.trie.depth - 1
        through = self.backoff[self.trie.parent] + self.cost[suffix]
        # 1e-4 nats: estimators round, and equal costs do not count.
        below = (self.trie.depth > 1) & listed & (self.cost > through + 1e-4)
        return int(below.sum())

    def prefixes(self) -> np.ndarray:
        """Return the empty n-gram, `<s>`, and proper prefixes of n-grams; bool [M]."""
        found = self.is_bos
        found[self.trie.parent] = True
        return found

    def targets(self, is_state: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return each n-gram's longest suffix (or itself) that is a state; its cost."""
        return _targets(self.trie, self.trie.by_depth(), is_state, self.backoff)


def build_histories(
    model: ArpaModel, of_word: np.ndarray, num_labels: int
) -> Histories:
    """Build the trie of a model's n-grams over labels, `of_word`: int32 [W]."""
    # N-grams with unlabelled words, or with `<s>` or `</s>` inside, are dropped, and
    # their number is logged.
    if model.bos is None or model.eos is None:
        missing = "<s>" if model.bos is None else "</s>"
        raise ArpaError(
            f"the model has no {missing}, expected <s> and </s> among its unigrams"
        )
    bos, eos = num_labels, num_labels + 1
    of_word = of_word.copy()
    of_word[[model.bos, model.eos]] = bos, eos
    tables, listed_cost, listed_backoff = _usable(model, of_word, bos, eos)
    trie = build_trie(tables)
    cost, backoff = np.zeros((2, trie.num_nodes), np.float64)
    cost[1 : trie.num_listed] = listed_cost
    backoff[1 : trie.num_listed] = listed_backoff
    unlisted = np.arange(trie.num_listed, trie.num_nodes)
    if len(unlisted):
        text = "language model: %d histories are not listed: added at the back-off cost"
        _log.info(text, len(unlisted))
    # Short ones first: the cost of a longer history depends on its suffix.
    order = np.argsort(trie.depth[unlisted], kind="stable")
    _fill_unlisted(trie, unlisted[order], cost, backoff)
    return Histories(trie, cost, backoff, bos, eos)


def _usable(
    model: ArpaModel, of_word: np.ndarray, bos: int, eos: int
) -> tuple[list[np.ndarray], np.ndarray, np.ndarray]:
    """Return tables of labels by order; costs and back-offs of all."""
    tables, costs, backoffs = [], [], []
    unknown = misplaced = 0
    for table in model.ngrams:
        ngram = of_word[table.words]
        is_unknown = (ngram == NO_LABEL).any(axis=1)
        is_misplaced = (ngram[:, 1:] == bos).any(axis=1)
        is_misplaced |= (ngram[:, :-1] == eos).any(axis=1)
        unknown += int(is_unknown.sum())
        misplaced += int((is_misplaced & ~is_unknown).sum())
        # `<s>` is never predicted, and nothing follows `</s>`.
        kept = ~is_unknown & ~is_misplaced
        tables.append(ngram[kept])
        costs.append(table.cost[kept])
        backoffs.append(table.backoff[kept])
    if unknown:
        text = "language model: %d n-grams have words outside the vocabulary: left out"
        _log.info(text, unknown)
    if misplaced:
        text = "language model: %d n-grams have <s> or </s> in their middle: left out"
        _log.warning(text, misplaced)
    return tables, np.concatenate(costs), np.concatenate(backoffs)


@jit
def _fill_unlisted(trie, nodes, cost, backoff):
    """Set the cost of backing off for nodes, shorter n-grams first."""
    for node in nodes:
        history, label = trie.pair[node, 0], trie.pair[node, 1]
        total = 0.0
        child = -1
        while child < 0:
            total += backoff[history]
            history = trie.suffix[history]
            child = find_child(trie, history, label)
        cost[node] = total + cost[child]


@jit
def _targets(trie, by_depth, is_state, backoff):
    """Implement `Histories.targets`; `by_depth` has shorter n-grams first."""
    target = np.zeros(len(by_depth), np.int32)
    cost = np.zeros(len(by_depth), np.float64)
    for node in by_depth:
        if is_state[node]:
            target[node] = node
        else:
            suffix = trie.suffix[node]
            target[node] = target[suffix]
            cost[node] = backoff[node] + cost[suffix]
    return target, cost
