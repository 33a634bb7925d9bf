"""What the words below a node of the trie will cost at least, by the language model.

    ahead = build_lookahead(lm, trie, "ngram")
    cost = potential(ahead, lm.automaton, state, node)

A state lists the nodes on the way to the words of its own arcs; with back-off to the
others this bounds the cost of every word below the node:

    list(s, n) = min over arcs (s, w), w said at n or below: arc cost + pronunciation
    phi(s, n)  = min(list(s, n), backoff(s) + phi(backoff state of s, n))
    phi(root, n) = min over all words said at n or below

This is the look-ahead of a composed graph whose weights are pushed as far to the front
as the trie goes (Mohri, Riley: A weight pushing algorithm for large vocabulary speech
recognition, 2001), made once per model, and smeared over the trie.
"""

from __future__ import annotations

from typing import Literal, NamedTuple, get_args

import numpy as np

from wfstdec.errors import OptionError
from wfstdec.jit import inlined, jit, read_only
from wfstdec.lm.automaton import Automaton
from wfstdec.lm.kernels import canonical, find_arc, step
from wfstdec.lm.ngram import NgramLM
from wfstdec.trie.lexicon_trie import LexiconTrie, parents_of

Kind = Literal["ngram", "unigram", "none"]
ROOT = 0


class Lookahead(NamedTuple):
    """Costs of S states of a model and N nodes of a trie in E entries; read-only.

    A row that has a node has its ancestors too, the trie's root first.

    Attributes:
        splits: int64 [S + 1], the row of each state; that of the model's root is empty.
        node: int32 [E], increasing in each row.
        cost: float32 [E], nats, of the words of the state's own arcs.
        root_cost: float32 [N], of all words in the empty history.
        state_cost: float32 [S], of what may follow in a state: a word or the end;
            finite in the state that utterances begin in.
        chained: Whether states count; if not, phi(s, n) is `root_cost[n]`.
    """

    splits: np.ndarray
    node: np.ndarray
    cost: np.ndarray
    root_cost: np.ndarray
    state_cost: np.ndarray
    chained: bool

    @property
    def num_bytes(self) -> int:
        """What the arrays take."""
        return sum(array.nbytes for array in self[:-1])


def build_lookahead(lm: NgramLM, trie: LexiconTrie, kind: Kind) -> Lookahead:
    """Make the look-ahead of a model over words.

    Args:
        lm: The model, of the unit word.
        trie: The trie; its word ids are the labels of the model.
        kind: `"ngram"` (the history counts), `"unigram"` (the empty history for all;
            what is impossible in it costs the most that is not, since others may say
            it) or `"none"` (0 everywhere).

    Raises:
        OptionError: Another kind, or a model over tokens.
    """
    if kind not in get_args(Kind):
        found = f"lookahead={kind!r}"
        raise OptionError(f"{found}, expected {', '.join(map(repr, get_args(Kind)))}")
    if lm.unit != "word":
        raise OptionError(f"a language model over {lm.unit}s, expected one over words")
    return _of_kind(lm.automaton, trie, kind)


@inlined
def potential(lookahead, automaton, state, node):
    """phi(s, n), float32: no word below the node costs less in this state.

    best = min over the back-off chain of s: (b1 + b2 + ...) + list cost, float32, the
    sum from the left; at the root the cost is `root_cost[n]`.
    """
    total, best = np.float32(0), np.float32(np.inf)
    state = np.int64(state)
    while lookahead.chained and automaton.backoff_state[state] >= 0:
        end = lookahead.splits[state + 1]
        at = find_arc(lookahead.node, lookahead.splits[state], end, node)
        if at < end and lookahead.node[at] == node:
            best = min(best, total + lookahead.cost[at])
        total += automaton.backoff_cost[state]
        state = np.int64(automaton.backoff_state[state])
    return min(best, total + lookahead.root_cost[node])


class _Arcs(NamedTuple):
    """The arcs of all states but the root, by label.

    Attributes:
        splits: int64 [L + 2], the arcs of each label; the last is `<unk>`.
        state: int32 [A].
        cost: float32 [A].
    """

    splits: np.ndarray
    state: np.ndarray
    cost: np.ndarray


class _Leaves(NamedTuple):
    """The pronunciations of the words of each state's arcs.

    Attributes:
        splits: int64 [S + 1], the row of each state.
        node: int32, where it ends; sorted in each row.
        cost: float32, of the arc and the pronunciation.
    """

    splits: np.ndarray
    node: np.ndarray
    cost: np.ndarray


def _of_kind(automaton: Automaton, trie: LexiconTrie, kind: Kind) -> Lookahead:
    num_states, num_nodes = len(automaton.final_cost), trie.num_nodes
    empty = np.zeros(num_states + 1, np.int64), np.zeros(0, np.int32), _costs(0, 0.0)
    state_cost = _costs(num_states, 0.0)
    if kind == "none":
        return _frozen(empty, _costs(num_nodes, 0.0), state_cost, False)
    parent = parents_of(trie)
    root_cost = _root_costs(automaton, trie, parent)
    if kind == "unigram":
        root_cost[np.isinf(root_cost)] = _largest(root_cost)
        state_cost[:] = root_cost[0]
        return _frozen(empty, root_cost, state_cost, False)
    arcs = _arcs_by_label(automaton, len(automaton.label_alias))
    rows = _rows(_leaves(automaton, trie, arcs), parent)
    ahead = _frozen(rows, root_cost, _costs(num_states, 0.0), True)
    _state_costs(ahead, automaton, state_cost)
    start = automaton.model_start[0]
    if np.isinf(state_cost[start]):  # nothing can be paid in advance for nothing
        state_cost[start] = 0
    return _frozen(rows, root_cost, state_cost, True)


@jit
def _arcs_by_label(automaton, num_labels):
    row_splits, arc_label = automaton.state_arc_splits, automaton.arc_label
    counts = np.zeros(num_labels + 1, np.int64)
    for arc in range(row_splits[ROOT + 1], len(arc_label)):
        counts[arc_label[arc]] += 1
    splits = _splits_of(counts)
    place = splits[:-1].copy()
    states = np.empty(splits[-1], np.int32)
    costs = np.empty(splits[-1], np.float32)
    for state in range(ROOT + 1, len(automaton.final_cost)):
        for arc in range(row_splits[state], row_splits[state + 1]):
            label = arc_label[arc]
            states[place[label]] = state
            costs[place[label]] = automaton.arc_cost[arc]
            place[label] += 1
    return _Arcs(splits, states, costs)


@jit
def _leaves(automaton, trie, arcs):
    """Pronunciations are taken by node, so that rows need no sorting."""
    counts = np.zeros(len(automaton.final_cost), np.int64)
    for word in trie.said_word:
        label = canonical(automaton, 0, word)
        for arc in range(arcs.splits[label], arcs.splits[label + 1]):
            counts[arcs.state[arc]] += 1
    splits = _splits_of(counts)
    place = splits[:-1].copy()
    nodes = np.empty(splits[-1], np.int32)
    costs = np.empty(splits[-1], np.float32)
    for node in range(len(trie.node_token)):
        for said in range(trie.said_splits[node], trie.said_splits[node + 1]):
            label = canonical(automaton, 0, trie.said_word[said])
            for arc in range(arcs.splits[label], arcs.splits[label + 1]):
                leaf = place[arcs.state[arc]]
                nodes[leaf] = node
                costs[leaf] = arcs.cost[arc] + trie.said_cost[said]
                place[arcs.state[arc]] += 1
    return _Leaves(splits, nodes, costs)


@jit
def _row_sizes(leaves, parent):
    """The number of nodes on the way to the leaves of each state."""
    sizes = np.zeros(len(leaves.splits) - 1, np.int64)
    for state in range(len(sizes)):
        before = -1  # an ancestor that is not below it is one of the leaf before too
        for leaf in range(leaves.splits[state], leaves.splits[state + 1]):
            node = leaves.node[leaf]
            while node > before:
                sizes[state] += 1
                node = parent[node]
            before = leaves.node[leaf]
    return sizes


@jit
def _rows(leaves, parent):
    """Splits, nodes and costs of the rows; O(output)."""
    splits = _splits_of(_row_sizes(leaves, parent))
    nodes = np.empty(splits[-1], np.int32)
    costs = np.full(splits[-1], np.inf, np.float32)
    place = np.zeros(len(parent), np.int64)  # of each node, in the row at work
    end = 0
    for state in range(len(splits) - 1):
        before = -1
        for leaf in range(leaves.splits[state], leaves.splits[state + 1]):
            last = leaves.node[leaf]
            node, begin = last, end
            while node > before:
                end += 1
                node = parent[node]
            node = last
            for at in range(end - 1, begin - 1, -1):
                nodes[at], place[node] = node, at
                node = parent[node]
            costs[place[last]] = min(costs[place[last]], leaves.cost[leaf])
            before = last
        for at in range(end - 1, splits[state], -1):
            above = place[parent[nodes[at]]]
            costs[above] = min(costs[above], costs[at])
    return splits, nodes, costs


@jit
def _root_costs(automaton, trie, parent):
    costs = np.full(len(parent), np.inf, np.float32)
    for node in range(len(parent) - 1, -1, -1):
        for said in range(trie.said_splits[node], trie.said_splits[node + 1]):
            cost, _ = step(automaton, 0, ROOT, trie.said_word[said])
            costs[node] = min(costs[node], cost + trie.said_cost[said])
        if node > 0:
            costs[parent[node]] = min(costs[parent[node]], costs[node])
    return costs


@jit
def _state_costs(lookahead, automaton, costs):
    for state in range(len(costs)):
        ahead = potential(lookahead, automaton, state, 0)
        costs[state] = min(ahead, automaton.final_cost[state])


@jit
def _splits_of(sizes):
    splits = np.zeros(len(sizes) + 1, np.int64)
    for row in range(len(sizes)):
        splits[row + 1] = splits[row] + sizes[row]
    return splits


def _largest(costs: np.ndarray) -> float:
    """The largest finite cost, at least 0."""
    return float(costs[np.isfinite(costs)].max(initial=0))


def _costs(count: int, cost: float) -> np.ndarray:
    return np.full(count, cost, np.float32)


def _frozen(
    rows: tuple[np.ndarray, np.ndarray, np.ndarray],
    root_cost: np.ndarray,
    state_cost: np.ndarray,
    chained: bool,
) -> Lookahead:
    splits, node, cost = map(read_only, rows)
    root_cost, state_cost = read_only(root_cost), read_only(state_cost)
    return Lookahead(splits, node, cost, root_cost, state_cost, chained)
