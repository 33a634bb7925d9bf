"""The second trie of an utterance: OOV words of its list.

    oov = build_oov_trie(boosts.oov, space, least_label_costs)       # once per list

Its node n is the node `first_oov + n` of the search; the root is shared. Nodes have a
look-ahead, as those of the lexicon's trie: the cost of `<unk>` in the state, or the
least cost of known words in any state. The best bonus below a node is credited in
advance, up to the charge for `<unk>` at the beginning: an OOV word is not dropped
before it is complete, and a list does not flood the search.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy import float32

from wfstdec.jit import inlined, jit, read_only
from wfstdec.lm.automaton import Automaton
from wfstdec.lm.on_demand import OnDemandLM
from wfstdec.text.vocabulary import OovWords
from wfstdec.trie.lexicon_trie import (
    LexiconTrie,
    parents_of,
    root_children,
    trie_of,
)
from wfstdec.trie.open_words import TextTable, text_table
from wfstdec.trie.search_space import SearchSpace, least_backoff

_INF = np.float32(np.inf)


class OovTrie(NamedTuple):
    """The second trie of M nodes, as kernels take it; no nodes without OOV words."""

    trie: LexiconTrie
    root_child: np.ndarray  # int32 [V], the root's child by each token, or -1
    pron: np.ndarray  # int32 [P], the number in the list of the trie's pronunciations
    bonus: np.ndarray  # float32 [P], nats
    best_bonus: np.ndarray  # float32 [M], the best below each node, at least 0
    has_new: np.ndarray  # bool [M], a word that is not in the word table is below
    least_cost: np.ndarray  # float32 [M], no known word below costs less; inf without
    num_nodes: int  # M, or 0
    fall: np.float32  # most by which the look-ahead falls where an OOV word begins
    texts: TextTable  # the new words by text


def no_oov() -> OovTrie:
    """The second trie without OOV words."""
    nothing = read_only(np.zeros(0, np.float32))
    return OovTrie(
        trie=trie_of(()),
        root_child=read_only(np.zeros(0, np.int32)),
        pron=read_only(np.zeros(0, np.int32)),
        bonus=nothing,
        best_bonus=nothing,
        has_new=read_only(np.zeros(0, np.bool_)),
        least_cost=nothing,
        num_nodes=0,
        fall=np.float32(0),
        texts=text_table((), ()),
    )


def build_oov_trie(
    oov: OovWords, space: SearchSpace, least_label_cost: np.ndarray
) -> OovTrie:
    """The second trie of a list."""
    tokens, splits = oov.tokens.tolist(), oov.splits.tolist()
    words, bonuses = oov.word.tolist(), oov.bonus.tolist()
    spelt = [tuple(tokens[a:b]) for a, b in zip(splits, splits[1:], strict=False)]
    numbers = sorted(range(len(words)), key=lambda pron: (spelt[pron], words[pron]))
    trie = trie_of([(spelt[pron], words[pron], 0.0) for pron in numbers])
    bonus = np.array([bonuses[pron] for pron in numbers], np.float32)
    is_new = trie.pron_word >= oov.num_known
    known = np.where(is_new, 0, trie.pron_word)
    known_cost = least_label_cost[known] if space.looks_ahead else 0.0 * known
    least = np.where(is_new, _INF, known_cost).astype(np.float32)
    best_bonus = np.zeros(trie.num_nodes, np.float32)
    has_new = np.zeros(trie.num_nodes, np.bool_)
    least_cost = np.full(trie.num_nodes, _INF, np.float32)
    below = best_bonus, has_new, least_cost
    _fill(trie, parents_of(trie), (bonus, is_new, least), below)
    ids = range(oov.num_known, oov.num_known + len(oov.words))
    return OovTrie(
        trie=trie,
        root_child=root_children(trie, space.num_tokens),
        pron=read_only(np.array(numbers, np.int32)),
        bonus=read_only(bonus),
        best_bonus=read_only(best_bonus),
        has_new=read_only(has_new),
        least_cost=read_only(least_cost),
        num_nodes=trie.num_nodes,
        fall=_fall(space, bool(has_new[0]), least_cost[0]),
        texts=text_table(oov.words, ids),
    )


def least_label_costs(automaton: Automaton | OnDemandLM, num_labels: int) -> np.ndarray:
    """No label costs less in any state, back-off included; float32 [L]."""
    if isinstance(automaton, OnDemandLM):
        costs = automaton.word_costs()[:num_labels].copy()
        costs[np.isinf(costs)] = costs[np.isfinite(costs)].max(initial=0)
        return costs
    if len(automaton.label_alias) == 0:
        return np.zeros(num_labels, np.float32)
    least = np.full(len(automaton.label_alias) + 1, _INF, np.float32)
    np.minimum.at(least, automaton.arc_label, automaton.arc_cost)
    finite = np.isfinite(least)
    rounding = 1e-4 * np.abs(least[finite]) + 1e-4
    least[finite] += np.float32(least_backoff(automaton)) - rounding
    return least[automaton.label_alias[:num_labels]]


@inlined
def oov_lookahead(oov, unk_lookahead, node):
    """The look-ahead at a node of the second trie, float32."""
    least = oov.least_cost[node]
    if oov.has_new[node]:
        least = min(least, unk_lookahead)
    return float32(least)


@inlined
def advance_credit(oov, cap, node):
    """Bonus credited in advance at a node of the second trie, float32."""
    return min(oov.best_bonus[node], cap)


def credit_cap(space: SearchSpace, lm_scale: float) -> np.float32:
    """No more is credited in advance."""
    cost = float(space.unk_lookahead[0])  # in the empty history
    return np.float32(min(max(0.0, lm_scale * cost), 1e6) if np.isfinite(cost) else 0.0)


def _fall(space: SearchSpace, has_new: bool, least_cost: np.float32) -> np.float32:
    """Bound the fall of the look-ahead where an OOV word begins."""
    before = space.lookahead.state_cost
    after = np.minimum(space.unk_lookahead if has_new else _INF, least_cost)
    fall = np.where(np.isfinite(before), before, 0) - after
    return np.float32(max(0.0, float(fall.max(initial=0))))


@jit
def _fill(trie, parent, prons, below):
    """Fill in what is below each node, the children first."""
    bonus, is_new, least = prons
    best_bonus, has_new, least_cost = below
    for node in range(len(parent) - 1, -1, -1):
        for pron in range(trie.node_pron_splits[node], trie.node_pron_splits[node + 1]):
            best_bonus[node] = max(best_bonus[node], bonus[pron])
            has_new[node] |= is_new[pron]
            least_cost[node] = min(least_cost[node], least[pron])
        if node > 0:
            above = parent[node]
            best_bonus[above] = max(best_bonus[above], best_bonus[node])
            has_new[above] |= has_new[node]
            least_cost[above] = min(least_cost[above], least_cost[node])
