"""Nodes of the search: in the lexicon's trie, the second trie, and open words.

    token = token_of(search, node)
    cost = lookahead_of(search, scratch, state, node, parent)
    for i in range(num_word_ends(search, node)):
        end = word_end(search, scratch, entry, i)           # words that end there
    credit, state = credit_word(search, boost, end.word)    # and their boosts
    cost, boost = pay_step(search, boost, credit, state)

Without a second trie and open words `search.has_oov` is false and all nodes are in the
lexicon's trie.
"""

from typing import NamedTuple

import numpy as np
from numpy import float32, int32, int64, uint32, uint64

from wfstdec.boost.kernels import cost_at_end, credit, pay, state_of, word_bonus
from wfstdec.jit import by_class, inlined, part
from wfstdec.lattice.arrays import OPEN
from wfstdec.lm.kernels import UNKNOWN, Automaton, OnDemandTable, row_of_state, step
from wfstdec.search.hypothesis import NO_CUTOFF
from wfstdec.search.options import MAX_OPEN_TOKENS
from wfstdec.search.paths.tokens import OPEN_PRON
from wfstdec.text.tokens import EPSILON
from wfstdec.trie.cpu import arrays
from wfstdec.trie.lexicon_trie import (
    EMPTY_TEXT,
    extended,
    find_text,
    label_of,
    open_length,
    open_node,
    open_token,
    spelling_cost,
)
from wfstdec.trie.lookahead import ANYWHERE, AT_ROOT, Rows, potential_of
from wfstdec.trie.search_space import Node, WordEnd, advance_credit, oov_lookahead

_CACHE_FACTOR = np.uint64(0x9E3779B97F4A7C15)
_CACHE_SHIFT = np.uint64(64 - arrays.CACHE_BITS)
_STEP_SHIFT = np.uint64(64 - arrays.STEP_CACHE_BITS)
_TAKEN = np.uint64(1 << 63)
_EMPTY = np.uint64(EMPTY_TEXT)
_INF = float32(np.inf)
_NO_SPELLING = uint64(0)
_NO_COST = float32(0)


@inlined
def token_of(search, node):
    """Return the token that leads to a node; at the root the separator, or -1."""
    if not search.has_oov or node < search.first_oov:
        return int64(search.space.node_token[node])
    if node < search.first_open:
        return int64(search.oov.trie.node_token[int64(node) - search.first_oov])
    return open_token(search.first_open, int64(node), search.space.num_tokens)


@inlined
def lookahead_of(search, scratch, state, node, parent):
    """Return the look-ahead in a state at a node; `parent` is the node before it."""
    space = search.space
    if node == 0:
        return space.lookahead.state_cost[row_of_state(space.automaton, state)]
    if search.has_oov and node >= search.first_oov:
        if not space.looks_ahead:
            return _NO_COST
        unk_cost = space.unk_lookahead[row_of_state(space.automaton, state)]
        if node < search.first_open:
            at = int64(node) - search.first_oov
            return oov_lookahead(search.oov, unk_cost, at)
        length = open_length(search.first_open, int64(node), space.num_tokens)
        return spelling_cost(space.open, unk_cost, length)
    # The same few are needed in every frame.
    key, cache = _key_of(state, node), scratch.lookahead_cache
    cached = cache[(key * _CACHE_FACTOR) >> _CACHE_SHIFT]
    if cached.key != key:
        above = Rows(AT_ROOT, AT_ROOT)
        if parent != 0:
            above, key_above = Rows(ANYWHERE, ANYWHERE), _key_of(state, parent)
            kept = cache[(key_above * _CACHE_FACTOR) >> _CACHE_SHIFT]
            if kept.key == key_above:
                above = Rows(int64(kept.row), int64(kept.backoff_row))
        cost, rows = potential_of(space.automaton, space.lookahead, state, node, above)
        cached.key, cached.row, cached.backoff_row = key, rows.own, rows.backoff
        if space.open.is_open and space.looks_ahead:
            length = int64(space.open.node_length[node])
            if length > 0:
                unk_cost = space.unk_lookahead[row_of_state(space.automaton, state)]
                cost = min(cost, spelling_cost(space.open, unk_cost, length))
        cached.cost = cost
    return cached.cost


@inlined
def _key_of(state, node):
    return (uint64(state) << uint64(32)) | uint64(node)


@inlined
def advance_of(search, node):
    """Return the part of a bonus that was credited in advance at a node."""
    if search.has_oov and search.first_oov <= node < search.first_open:
        at = int64(node) - search.first_oov
        return float32(advance_credit(search.oov, search.params.credit_cap, at))
    return _NO_COST


@inlined
def node_begun(search, token):
    """Return the node of a token that begins a word of the lexicon, or an open one."""
    space = search.space
    child = int64(space.root_child[token])
    if child < 0 and space.open.is_open and space.open.begins[token]:
        return open_node_behind(search, int64(0), _EMPTY, token)
    return Node(child, _NO_SPELLING)


@inlined
def oov_begun(search, token):
    """Return the node of a token that begins an OOV word."""
    node = int64(-1)
    if search.oov.num_nodes > 0:
        child = int64(search.oov.root_child[token])
        if child >= 0:
            node = search.first_oov + child
    return Node(node, _NO_SPELLING)


@inlined
def open_node_behind(search, length, text, token):
    """Return the node of an open word of `length` tokens and one more."""
    if length >= MAX_OPEN_TOKENS:
        return Node(int64(-1), _NO_SPELLING)
    spelling = extended(search.space.open.texts, text, token)
    num_tokens = search.space.num_tokens
    node = open_node(search.first_open, length + 1, token, num_tokens)
    return Node(node, spelling)


@inlined
def open_beginning(search, entry):
    """Return tokens and text of the open word that an entry may be in; 0 for none."""
    opened, node = search.space.open, int64(entry.node)
    if node < search.first_oov:
        return int64(opened.node_length[node]), opened.node_text[node]
    if node < search.first_open:
        return int64(0), _NO_SPELLING
    length = open_length(search.first_open, node, search.space.num_tokens)
    return length, uint64(entry.spelling)


@inlined
def num_word_ends(search, node):
    """Return how many words may end at a node that is not the root."""
    splits, at = search.space.trie.node_pron_splits, int64(node)
    if search.has_oov and at >= search.first_open:
        return int64(1)
    if search.has_oov and at >= search.first_oov:
        splits, at = search.oov.trie.node_pron_splits, at - search.first_oov
        return int64(splits[at + 1]) - int64(splits[at])
    count = int64(splits[at + 1]) - int64(splits[at])
    if search.has_oov and count == 0 and search.space.open.is_open:
        count = int64(search.space.open.node_length[at] > 0)
    return count


@part
def _step_cached(automaton, scratch, state, word):
    """Take a step of a model whose states are shared by all utterances."""
    # Cached in scratch, if there is any: a word may end in many frames.
    if scratch is None:
        return step(automaton, 0, state, word)
    key = _TAKEN | (uint64(state) << uint64(32)) | uint64(word)
    cached = scratch.step_cache[(key * _CACHE_FACTOR) >> _STEP_SHIFT]
    if cached.key != key:
        cached.key = key
        cached.cost, cached.nextstate = step(automaton, 0, state, word)
    return cached.cost, cached.nextstate


@inlined
def _step_on_demand(table, scratch, state, word):
    """Take a step of a user's model, whose states belong to one table."""
    return step(table, 0, state, word)


_step_word = by_class({Automaton: _step_cached, OnDemandTable: _step_on_demand})


@inlined
def word_end(search, scratch, entry, number):
    """Return a word that ends at the node of an entry; `scratch` may be None."""
    trie, node = search.space.trie, int64(entry.node)
    if search.has_oov:
        first = int64(0)
        if node < search.first_oov:
            first = int64(trie.node_pron_splits[node])
        if node >= search.first_oov or first == trie.node_pron_splits[node + 1]:
            return _oov_word_end(search, scratch, entry, number)
    pron = int64(trie.node_pron_splits[node]) + number
    word = int64(trie.pron_word[pron])
    cost, state = _step_word(search.space.automaton, scratch, entry.state, word)
    cost = float32(cost + trie.pron_cost[pron])
    return WordEnd(pron, word, cost, state, word, _NO_COST)


@inlined
def _oov_word_end(search, scratch, entry, number):
    space, oov, node = search.space, search.oov, int64(entry.node)
    automaton = space.automaton
    if search.first_oov <= node < search.first_open:
        at = int64(oov.trie.node_pron_splits[node - search.first_oov]) + number
        label = int64(oov.trie.pron_word[at])
        pron = len(space.trie.pron_word) + int64(oov.pron[at])
        cost, state = _step_word(automaton, scratch, entry.state, label)
        word = label if label < search.params.num_labels else int64(0)
        return WordEnd(pron, word, cost, state, label, oov.bonus[at])
    pron, bonus = int64(OPEN_PRON), _NO_COST
    length, text = open_beginning(search, entry)
    word = find_text(space.open.words, text)
    if word >= 0:
        cost, state = _step_word(automaton, scratch, entry.state, word)
        return WordEnd(pron, word, cost, state, word, bonus)
    label = int64(label_of(text))
    unk_cost, state = _step_word(automaton, scratch, entry.state, int64(UNKNOWN))
    cost = spelling_cost(space.open, unk_cost, length)
    if text == _EMPTY or find_text(oov.texts, text) >= 0:
        cost = _INF
    return WordEnd(pron, int64(0), cost, int32(state), label, bonus)


@inlined
def olabel_of(end):
    """Return the lattice label of a word that ends; `OPEN` if it has no id."""
    if end.pron == OPEN_PRON and end.word == 0:
        return int64(OPEN)
    return max(int64(end.label), int64(EPSILON))


@inlined
def credit_word(search, boost, word):
    """Return the credit of a word, and the next state of the phrases."""
    phrases, bonus = search.phrases, _NO_COST
    if search.params.has_words:
        bonus = word_bonus(search.words, uint32(word))
    return credit(phrases, phrases.of_words, state_of(boost), uint32(word), bonus)


@inlined
def credit_token(phrases, boost, token):
    """Return the credit of a token, and the next state of the phrases."""
    return credit(phrases, phrases.of_tokens, state_of(boost), uint32(token), _NO_COST)


@inlined
def pay_step(search, boost, worth, state):
    """Return the cost of a step, and the next boost state, int32."""
    paid, boost = pay(boost, state, worth, search.params.instalment)
    return float32(_NO_COST - paid), int32(boost)


@inlined
def step_token(search, boost, token, bonus):
    """Return the cost of a token where no word ends, and the next boost state."""
    # `bonus` is credited in addition.
    worth, state = credit_token(search.phrases, boost, token)
    return pay_step(search, boost, float32(worth + bonus), state)


@inlined
def boosts_at_end(search, boost):
    """Return the cost of boosts at the end; see `boost.kernels.cost_at_end`."""
    return cost_at_end(search.phrases.final_cost, boost, search.params.instalment)


class Step(NamedTuple):
    """Costs, without acoustics, of a token that begins or of the end."""

    olabel: int  # the word that ends, 0 for none; without a lexicon the token's ilabel
    graph_cost: np.float32  # unscaled, without the entry's look-ahead
    insertion: np.float32  # of word and token
    boost_cost: np.float32


@inlined
def within_beam(params, least):
    """Return the cutoff of candidates whose least cost is `least`."""
    return min(float32(least + params.beam), NO_CUTOFF)


@inlined
def loosened(bound, credit):
    """Return the bound for a cost that may still be reduced by up to `credit`."""
    # Allows for rounding in the following sums.
    room = float32(abs(bound) + abs(credit)) * float32(1e-5) + float32(1e-3)
    return float32(float32(bound + credit) + room)


@inlined
def exceeds(cost, credit, bound):
    """Return whether a cost is over the running bound, even with a credit deducted."""
    return cost > loosened(bound, credit)


@inlined
def step_cost(params, before, step):
    """Return the cost after a step, without acoustics, in the reference's order."""
    cost = float32(before + float32(params.lm_scale * step.graph_cost))
    return float32(float32(cost + step.insertion) + step.boost_cost)


@inlined
def least_cost(entry):
    """Return the cost of the better phase."""
    return min(entry.blank_cost, entry.nonblank_cost)


@inlined
def is_over(search, scratch, source, token, bound):
    """Return whether a token that begins is over the bound at any destination."""
    params = search.params
    cost = float32(least_cost(source.entry) + scratch.costs[token])
    most = max(source.most_inside, source.most_at_end)
    credit = float32(params.begin_credit + most)
    return exceeds(cost, credit, bound)
