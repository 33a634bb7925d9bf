"""Nodes of the search: of the lexicon's trie, of the second trie, of open words.

    token = token_of(search, node)
    cost = lookahead_of(search, scratch, state, node, parent)
    for i in range(num_word_ends(search, node)):
        end = word_end(search, scratch, entry, i)           # words that end there
    credit, state = credit_word(search, boost, end.word)    # and what boosts make of it
    cost, boost = pay_step(search, boost, credit, state)

Without a second trie and open words `search.beside` is false: all nodes are of the
lexicon's trie.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy import float32, int32, int64, uint32, uint64

from wfstdec.boost.kernels import cost_at_end, credit, pay, state_of, word_bonus
from wfstdec.jit import by_class, inlined, part
from wfstdec.lattice.arrays import OPEN
from wfstdec.lm.kernels import Automaton, row_of_state, step, unknown_label
from wfstdec.lm.on_demand_table import LazyTable
from wfstdec.search.options import MAX_OPEN_TOKENS
from wfstdec.search.paths.token_path import OPEN_PRON
from wfstdec.trie.added_trie import added_lookahead, advance_credit
from wfstdec.trie.cpu import arrays as k
from wfstdec.trie.lookahead import ANYWHERE, AT_ROOT, Rows, potential_of
from wfstdec.trie.open_words import (
    EMPTY_TEXT,
    extended,
    find_text,
    label_of,
    open_length,
    open_node,
    open_token,
    spelling_cost,
)

_CACHE_FACTOR = np.uint64(0x9E3779B97F4A7C15)
_CACHE_SHIFT = np.uint64(64 - k.CACHE_BITS)
_STEP_SHIFT = np.uint64(64 - k.STEP_CACHE_BITS)
_TAKEN = np.uint64(1 << 63)
_EMPTY = np.uint64(EMPTY_TEXT)
_INF = float32(np.inf)
_NO_SPELLING = uint64(0)
_NO_COST = float32(0)


class Place(NamedTuple):
    """A node, -1 for none, and the hash of an open word."""

    node: int
    spelling: np.uint64


class WordEnd(NamedTuple):
    """A word that ends; as `reference_steps.WordEnd`.

    Attributes:
        pron: The pronunciation.
        word: The word id for boosts; 0 for what no boost knows.
        label: What the text grows by.
        cost: Of the word and its pronunciation; inf where there is no word.
        state: The next state of the language model.
        bonus: What is credited for the pronunciation.
    """

    pron: int
    word: int
    label: int
    cost: np.float32
    state: int
    bonus: np.float32


@inlined
def token_of(search, node):
    """The token that leads to a node; at the root the separator, or -1."""
    if search.beside and node >= search.first_added:
        return _token_beside(search, int64(node))
    return int64(search.space.node_token[node])


@inlined
def _token_beside(search, node):
    if node < search.first_open:
        return int64(search.added.trie.node_token[node - search.first_added])
    return open_token(search.first_open, node, search.space.num_tokens)


@inlined
def lookahead_of(search, scratch, state, node, parent):
    """The look-ahead in a state at a node; `parent` is the node before it.

    The same few are needed frame after frame: they are kept where they are found fast.
    """
    space = search.space
    if node == 0:
        return space.lookahead.state_cost[row_of_state(space.automaton, state)]
    if search.beside and node >= search.first_added:
        return _lookahead_beside(search, state, int64(node))
    key = (uint64(state) << uint64(32)) | uint64(node)
    cached = scratch.lookahead_cache[(key * _CACHE_FACTOR) >> _CACHE_SHIFT]
    if cached.key != key:
        above = _rows_of(scratch, state, int64(parent))
        cost, rows = potential_of(space.lookahead, space.automaton, state, node, above)
        cached.key, cached.row, cached.backoff_row = key, rows.own, rows.backoff
        if space.open.is_open and space.looks_ahead:
            length = int64(space.open.node_length[node])
            if length > 0:
                row = row_of_state(space.automaton, state)
                unk_cost = space.unk_lookahead[row]
                cost = min(cost, spelling_cost(space.open, unk_cost, length))
        cached.cost = cost
    return cached.cost


@inlined
def _rows_of(scratch, state, node):
    """The `Rows` of a node, if they are kept."""
    if node == 0:
        return Rows(AT_ROOT, AT_ROOT)
    key = (uint64(state) << uint64(32)) | uint64(node)
    cached = scratch.lookahead_cache[(key * _CACHE_FACTOR) >> _CACHE_SHIFT]
    if cached.key == key:
        return Rows(int64(cached.row), int64(cached.backoff_row))
    return Rows(ANYWHERE, ANYWHERE)


@inlined
def _lookahead_beside(search, state, node):
    space = search.space
    if not space.looks_ahead:
        return _NO_COST
    unk_cost = space.unk_lookahead[row_of_state(space.automaton, state)]
    if node < search.first_open:
        return added_lookahead(search.added, unk_cost, node - search.first_added)
    length = open_length(search.first_open, node, space.num_tokens)
    return spelling_cost(space.open, unk_cost, length)


@inlined
def advance_of(search, node):
    """Part of a bonus that was credited in advance at a node."""
    if search.beside and search.first_added <= node < search.first_open:
        at = int64(node) - search.first_added
        return float32(advance_credit(search.added, search.params.credit_cap, at))
    return _NO_COST


@inlined
def place_begun(search, token):
    """Where a token leads that begins a word of the lexicon, or an open one."""
    space = search.space
    child = int64(space.root_child[token])
    if child < 0 and space.open.is_open and space.open.begins[token]:
        return place_behind(search, int64(0), _EMPTY, token)
    return Place(child, _NO_SPELLING)


@inlined
def added_begun(search, token):
    """Where a token leads that begins an added word."""
    node = int64(-1)
    if search.added.num_nodes > 0:
        child = int64(search.added.root_child[token])
        if child >= 0:
            node = search.first_added + child
    return Place(node, _NO_SPELLING)


@inlined
def place_behind(search, length, text, token):
    """Where an open word of so many tokens goes on."""
    if length >= MAX_OPEN_TOKENS:
        return Place(int64(-1), _NO_SPELLING)
    spelling = extended(search.space.open.texts, text, token)
    num_tokens = search.space.num_tokens
    node = open_node(search.first_open, length + 1, token, num_tokens)
    return Place(node, spelling)


@inlined
def open_beginning(search, entry):
    """Tokens and text of the open word that an entry may be in; 0 for none."""
    opened, node = search.space.open, int64(entry.node)
    if node < search.first_added:
        return int64(opened.node_length[node]), opened.node_text[node]
    if node < search.first_open:
        return int64(0), _NO_SPELLING
    length = open_length(search.first_open, node, search.space.num_tokens)
    return length, uint64(entry.spelling)


@inlined
def num_word_ends(search, node):
    """How many words may end at a node that is not the root."""
    splits = search.space.trie.node_pron_splits
    if search.beside and node >= search.first_added:
        return _num_beside(search, int64(node))
    count = int64(splits[node + 1]) - int64(splits[node])
    if search.beside and count == 0 and search.space.open.is_open:
        count = int64(search.space.open.node_length[node] > 0)
    return count


@inlined
def _num_beside(search, node):
    if node >= search.first_open:
        return int64(1)
    splits, at = search.added.trie.node_pron_splits, node - search.first_added
    return int64(splits[at + 1]) - int64(splits[at])


@part
def _kept_step(automaton, scratch, state, word):
    """Take a step of the model, as it was kept if it was.

    A word ends for as many frames as its last token is heard.
    """
    key = _TAKEN | (uint64(state) << uint64(32)) | uint64(word)
    cached = scratch.step_cache[(key * _CACHE_FACTOR) >> _STEP_SHIFT]
    if cached.key != key:
        cached.key = key
        cached.cost, cached.nextstate = step(automaton, 0, state, word)
    return cached.cost, cached.nextstate


@inlined
def _step_kept(automaton, scratch, state, word):
    """Take a step of a model whose states are the same for all utterances."""
    if scratch is None:
        return step(automaton, 0, state, word)
    return _kept_step(automaton, scratch, state, word)


@inlined
def _step_asked(table, scratch, state, word):
    """Take a step of a user's model, whose states are those of one table."""
    return step(table, 0, state, word)


_step_word = by_class({Automaton: _step_kept, LazyTable: _step_asked})


@inlined
def word_end(search, scratch, entry, number):
    """Find a word that ends at the node of an entry; `scratch` may be None."""
    trie, node = search.space.trie, int64(entry.node)
    if search.beside:
        first = int64(0)
        if node < search.first_added:
            first = int64(trie.node_pron_splits[node])
        if node >= search.first_added or first == trie.node_pron_splits[node + 1]:
            return _end_beside(search, scratch, entry, number)
    pron = int64(trie.node_pron_splits[node]) + number
    word = int64(trie.pron_word[pron])
    cost, state = _step_word(search.space.automaton, scratch, entry.state, word)
    cost = float32(cost + trie.pron_cost[pron])
    return WordEnd(pron, word, word, cost, state, _NO_COST)


@inlined
def _end_beside(search, scratch, entry, number):
    """An added word ends, or an open one."""
    space, added, node = search.space, search.added, int64(entry.node)
    automaton = space.automaton
    if search.first_added <= node < search.first_open:
        at = int64(added.trie.node_pron_splits[node - search.first_added]) + number
        label = int64(added.trie.pron_word[at])
        pron = len(space.trie.pron_word) + int64(added.pron[at])
        cost, state = _step_word(automaton, scratch, entry.state, label)
        word = label if label < search.params.num_labels else int64(0)
        return WordEnd(pron, word, label, cost, state, added.bonus[at])
    pron, bonus = int64(OPEN_PRON), _NO_COST
    length, text = open_beginning(search, entry)
    word = find_text(space.open.words, text)
    if word >= 0:
        cost, state = _step_word(automaton, scratch, entry.state, word)
        return WordEnd(pron, word, word, cost, state, bonus)
    label, unknown = int64(label_of(text)), unknown_label(automaton)
    unk_cost, state = _step_word(automaton, scratch, entry.state, unknown)
    cost = spelling_cost(space.open, unk_cost, length)
    if text == _EMPTY or find_text(added.texts, text) >= 0:
        cost = _INF
    return WordEnd(pron, int64(0), label, cost, int32(state), bonus)


@inlined
def olabel_of(end):
    """The label of a word that ends in a lattice, `labels.OPEN` if it has no id."""
    if end.pron == OPEN_PRON and end.word == 0:
        return int64(OPEN)
    return int64(end.label)


@inlined
def credit_word(search, boost, word):
    """The credit of a word, and the next state of the phrases."""
    phrases, bonus = search.phrases, _NO_COST
    if search.params.has_words:
        bonus = word_bonus(search.words, uint32(word))
    return credit(phrases, phrases.of_words, state_of(boost), uint32(word), bonus)


@inlined
def credit_token(phrases, boost, token):
    """The credit of a token, and the next state of the phrases."""
    return credit(phrases, phrases.of_tokens, state_of(boost), uint32(token), _NO_COST)


@inlined
def pay_step(search, boost, worth, state):
    """The cost of a step, and the next boost state, int32.

    Args:
        search: `Search`.
        boost: The boost state before it.
        worth: What the step is credited.
        state: The state of the phrases after it.
    """
    paid, boost = pay(boost, state, worth, search.params.instalment)
    return float32(_NO_COST - paid), int32(boost)


@inlined
def step_token(search, boost, token, bonus):
    """The cost of a token that begins where no word ends, and the next boost state.

    The bonus is what else is credited.
    """
    worth, state = credit_token(search.phrases, boost, token)
    return pay_step(search, boost, float32(worth + bonus), state)


@inlined
def boosts_at_end(search, boost):
    """The cost of boosts at the end; see `boost.kernels.cost_at_end`."""
    return cost_at_end(search.phrases.final_cost, boost, search.params.instalment)
