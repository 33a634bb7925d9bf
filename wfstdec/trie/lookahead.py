"""The least that the words below a node of the trie cost, by the language model.

    lookahead = build_lookahead(lm, trie, "ngram")
    cost = potential(lookahead, state, node)

Each state of the model has a row: the nodes on the paths to the words of its own arcs.
With back-off to shorter histories this bounds the cost of every word below the node:

    row(s, n)    = min over arcs (s, w) with w at n or below: arc cost + pronunciation
    phi(s, n)    = min(row(s, n), backoff(s) + phi(backoff state of s, n))
    phi(root, n) = min over all words at n or below

This is the look-ahead of a composed graph whose weights are pushed as far to the front
as the trie goes (Mohri, Riley: A weight pushing algorithm for large vocabulary speech
recognition, 2001), computed once per model.
"""

from typing import Literal, NamedTuple, get_args

import numpy as np

from wfstdec.errors import OptionError
from wfstdec.jit import by_class, inlined, jit, read_only
from wfstdec.jit.records import record
from wfstdec.jit.sorting import counted
from wfstdec.lm.automaton import Automaton
from wfstdec.lm.kernels import OnDemandTable
from wfstdec.lm.ngram import NgramLM
from wfstdec.lm.on_demand import OnDemandLM
from wfstdec.trie.lexicon_trie import LexiconTrie, least_below, parents_of

LookaheadKind = Literal["ngram", "unigram", "none"]
ROOT = 0
ABSENT, ANYWHERE, AT_ROOT = np.int64(-1), np.int64(-2), np.int64(-3)
"""In place of a position in a row: the row lacks the node; not looked up yet; the node
is the root, so that `first_bits` has the children that a row lacks."""
_BIT_FACTOR, _BIT_SHIFT = np.uint64(0x9E3779B97F4A7C15), np.uint64(58)
_ONE = np.uint64(1)
STATE = record("i8 first end", "u8 first_bits", "i4 backoff_state", "f4 backoff_cost")
"""State of the model: positions of its row; `bit_of` the children of the trie's root in
it; its back-off state, below 0 for the model's root. Half a cache line."""
NODE = record("i4 node", "f4 cost")
"""Node in a row, and the least cost of words below it by the state's own arcs."""


class Lookahead(NamedTuple):
    """Least costs for S states of a model and N nodes of a trie; read-only, nats."""

    # A row that has a node has its ancestors too, the trie's root first. Together the
    # rows have E elements. Fields that are read together are records, since memory
    # latency dominates.

    states: np.ndarray  # STATE [S]; the row of the model's root is empty
    rows: np.ndarray  # NODE [E], by increasing node in each row
    unigram_cost: np.ndarray  # float32 [N], of all words in the empty history
    # float32 [S], of all that may follow in a state, a word or the end; finite in the
    # state in which utterances begin
    state_cost: np.ndarray
    uses_history: bool  # whether states matter; if not, phi(s, n) is `unigram_cost[n]`

    @property
    def row_splits(self) -> np.ndarray:
        """Splits of the rows, int64 [S + 1]."""
        return np.append(self.states["first"], len(self.rows))


def build_lookahead(
    lm: NgramLM | OnDemandLM, trie: LexiconTrie, kind: LookaheadKind
) -> Lookahead:
    """Compute the look-ahead of a model over words."""
    kinds = get_args(LookaheadKind)
    if kind not in kinds:
        known = ", ".join(map(repr, kinds))
        raise OptionError(f"lookahead={kind!r}, expected {known}")
    if lm.unit != "word":
        raise OptionError(f"a language model over {lm.unit}s, expected one over words")
    if not isinstance(lm, OnDemandLM):
        return _of_kind(lm, trie, kind)
    if kind == "ngram":
        raise OptionError(
            "lookahead='ngram' with a language model whose n-grams cannot be listed, "
            "expected 'unigram' or 'none'; 'unigram' queries it for every word, once"
        )
    if kind == "none":
        return no_lookahead(trie)
    return _of_unigrams(_least_of_words(lm.word_costs(), trie, parents_of(trie)), 1)


def no_lookahead(trie: LexiconTrie, num_states: int = 1) -> Lookahead:
    """Return zeros, for a trie and N states of a model."""
    zeros = np.zeros(trie.num_nodes, np.float32), np.zeros(num_states, np.float32)
    return _without_history(*zeros)


class Rows(NamedTuple):
    """Positions of a node in the rows of a state and of its back-off state."""

    # `ABSENT` if a row lacks it, and so all nodes below it; or `ANYWHERE`, `AT_ROOT`.

    own: int
    backoff: int


@inlined
def potential(lookahead, state, node):
    """Return phi(s, n), float32: a lower bound of word costs below the node."""
    anywhere = Rows(ANYWHERE, ANYWHERE)
    return potential_below(None, lookahead, state, node, anywhere)[0]


@inlined
def potential_below(lm, lookahead, state, node, above):
    """Return phi(s, n), and `Rows` of the node; `above` are its parent's."""
    # best = min over the back-off chain of s: (b1 + b2 + ...) + row cost, float32, the
    # sum from the left; at the root the cost is `unigram_cost[n]`. A row has the nodes
    # below another one shortly after it, or none: most searches are short.
    total, best = np.float32(0), np.float32(np.inf)
    own, backoff, depth = ABSENT, ABSENT, 0
    if lookahead.uses_history:
        row = lookahead.states[state]
        while row["backoff_state"] >= 0:  # syntax for records in Python too
            begin = AT_ROOT if above.own == AT_ROOT else ANYWHERE
            if depth < 2:
                begin = above.own if depth == 0 else above.backoff
            at = ABSENT
            if begin != ABSENT:
                at = _find_behind(lookahead.rows, row, begin, node)
            if at != ABSENT:
                best = min(best, total + lookahead.rows[at]["cost"])
            if depth == 0:
                own = at
            elif depth == 1:
                backoff = at
            total += row["backoff_cost"]
            row = lookahead.states[row["backoff_state"]]
            depth += 1
    return min(best, total + lookahead.unigram_cost[node]), Rows(own, backoff)


@inlined
def _find_behind(rows, row, begin, node):
    """Return a node's position in a state's row after another node; or `ABSENT`."""
    if begin == AT_ROOT and not row["first_bits"] & bit_of(node):
        return ABSENT
    row_end = np.int64(row["end"])
    end = row_end
    if begin < 0:
        begin = np.int64(row["first"])
    else:
        begin, step = begin + 1, 1
        while begin + step < end and rows[begin + step - 1]["node"] < node:
            begin, step = begin + step, 2 * step
        end = min(end, begin + step)
    while begin < end:
        middle = (begin + end) >> 1
        if rows[middle]["node"] < node:
            begin = middle + 1
        else:
            end = middle
    return begin if begin < row_end and rows[begin]["node"] == node else ABSENT


@inlined
def bit_of(node):
    """Return a bit of 64 for a child of the root."""
    return _ONE << ((np.uint64(node) * _BIT_FACTOR) >> _BIT_SHIFT)


@inlined
def _no_history(lm, lookahead, state, node, above):
    return lookahead.unigram_cost[node], Rows(ABSENT, ABSENT)


potential_of = by_class({Automaton: potential_below, OnDemandTable: _no_history})
"""`potential_below` for any model; for `OnDemandTable` without history."""


class _Leaves(NamedTuple):
    """For each state the pronunciations of the words of its arcs."""

    splits: np.ndarray  # int64 [S + 1]
    node: np.ndarray  # int64, node of each pronunciation; sorted in each row
    cost: np.ndarray  # float32, of its arc and of itself


def _of_kind(lm: NgramLM, trie: LexiconTrie, kind: LookaheadKind) -> Lookahead:
    automaton, num_states = lm.automaton, lm.num_states
    if kind == "none":
        return no_lookahead(trie, num_states)
    parent = parents_of(trie)
    unigram_cost = _least_of_words(lm.row(ROOT)[0], trie, parent)
    if kind == "unigram":
        return _of_unigrams(unigram_cost, num_states)
    leaves = _leaves(automaton, trie)
    splits = np.cumsum(np.append(0, _row_sizes(leaves, parent)))
    rows = np.empty(splits[-1], NODE)
    _fill_rows(leaves, parent, splits, rows)
    states = np.zeros(num_states, STATE)
    states["first"], states["end"] = splits[:-1], splits[1:]
    states["backoff_state"] = automaton.backoff_state
    states["backoff_cost"] = automaton.backoff_cost
    _fill_first_bits(states, rows, parent)
    state_cost = np.zeros(num_states, np.float32)
    lookahead = Lookahead(states, rows, unigram_cost, state_cost, True)
    _fill_state_costs(lookahead, automaton.final_cost, state_cost)
    if np.isinf(state_cost[lm.start]):  # the first entry must have a finite cost
        state_cost[lm.start] = 0
    return _frozen(lookahead)


def _leaves(automaton: Automaton, trie: LexiconTrie) -> _Leaves:
    row_splits, num_labels = automaton.state_arc_splits, len(automaton.label_alias)
    first = int(row_splits[ROOT + 1])  # the root's arcs are in `unigram_cost`
    splits, arcs = counted(automaton.arc_label[first:], num_labels + 1)
    # Labels that the model lacks are its last one, `<unk>`.
    aliases = np.append(automaton.label_alias, num_labels)
    labels = aliases[np.minimum(trie.pron_word, num_labels)]
    counts = np.diff(splits)[labels]
    pron = np.repeat(np.arange(len(labels)), counts)
    number = np.arange(len(pron)) - np.repeat(np.cumsum(counts) - counts, counts)
    arc = first + arcs[splits[labels[pron]] + number]
    states = np.repeat(np.arange(len(row_splits) - 1), np.diff(row_splits))
    state_splits, order = counted(states[arc], len(row_splits) - 1)
    arc, pron = arc[order], pron[order]
    node = np.repeat(np.arange(trie.num_nodes), np.diff(trie.node_pron_splits))
    cost = automaton.arc_cost[arc] + trie.pron_cost[pron]
    return _Leaves(state_splits, node[pron], cost)


def _of_unigrams(unigram_cost: np.ndarray, num_states: int) -> Lookahead:
    largest = unigram_cost[np.isfinite(unigram_cost)].max(initial=0)
    unigram_cost[np.isinf(unigram_cost)] = largest
    state_cost = np.full(num_states, unigram_cost[0], np.float32)
    return _without_history(unigram_cost, state_cost)


@jit
def _row_sizes(leaves, parent):
    sizes = np.zeros(len(leaves.splits) - 1, np.int64)
    for state in range(len(sizes)):
        before = -1  # the last leaf; ancestors up to it are already counted
        for leaf in range(leaves.splits[state], leaves.splits[state + 1]):
            node = leaves.node[leaf]
            while node > before:
                sizes[state] += 1
                node = parent[node]
            before = leaves.node[leaf]
    return sizes


@jit
def _fill_rows(leaves, parent, splits, rows):
    """Fill the rows, NODE [E], in time linear in the output."""
    place = np.zeros(len(parent), np.int64)  # of each node, in the current row
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
                rows[at].node, rows[at].cost, place[node] = node, np.inf, at
                node = parent[node]
            row = rows[place[last]]
            row.cost = min(row.cost, leaves.cost[leaf])
            before = last
        for at in range(end - 1, splits[state], -1):
            above = rows[place[parent[rows[at].node]]]
            above.cost = min(above.cost, rows[at].cost)


@jit
def _fill_first_bits(states, rows, parent):
    for state in range(len(states)):
        row = states[state]
        for at in range(row.first, row.end):
            if parent[rows[at].node] == 0:
                row.first_bits |= bit_of(rows[at].node)


def _least_of_words(
    word_cost: np.ndarray, trie: LexiconTrie, parent: np.ndarray
) -> np.ndarray:
    """Return the least cost of words and pronunciations below each node [N]."""
    costs = word_cost[trie.pron_word] + trie.pron_cost
    return least_below(costs, trie.node_pron_splits, parent)


@jit
def _fill_state_costs(lookahead, final_cost, costs):
    for state in range(len(costs)):
        costs[state] = min(potential(lookahead, state, 0), final_cost[state])


def _without_history(unigram_cost: np.ndarray, state_cost: np.ndarray) -> Lookahead:
    states = np.zeros(len(state_cost), STATE)
    states["backoff_state"] = -1
    rows = np.zeros(0, NODE)
    return _frozen(Lookahead(states, rows, unigram_cost, state_cost, False))


def _frozen(lookahead: Lookahead) -> Lookahead:
    states, rows, unigram_cost, state_cost = map(read_only, lookahead[:4])
    return Lookahead(states, rows, unigram_cost, state_cost, lookahead.uses_history)
