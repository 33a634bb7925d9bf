"""Where an entry of the trie search may go: part of the specification.

    steps = Steps(space, options, boosts)
    for successor in steps.successors(key, token): ...     # a token begins
    for word_end in steps.word_ends(key): ...              # words that end at the node

Nodes are those of the lexicon's trie, of the second trie (`search_space.py`),
then open words behind both (`lexicon_trie.py`).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from boost_reference import BoostAccount

from wfstdec.boost.compiled import CompiledBoosts
from wfstdec.lm.kernels import UNKNOWN
from wfstdec.lm.on_demand import LmArrays
from wfstdec.search.options import MAX_OPEN_TOKENS
from wfstdec.search.paths.tokens import OPEN_PRON
from wfstdec.text.tokens import EPSILON
from wfstdec.trie.lexicon_trie import (
    EMPTY_TEXT,
    extended,
    find_child,
    find_text,
    label_of,
    open_length,
    open_node,
    open_token,
    spelling_cost,
)
from wfstdec.trie.options import TrieOptions
from wfstdec.trie.search_space import (
    NONE,
    Node,
    OovTrie,
    SearchSpace,
    WordEnd,
    advance_credit,
    build_oov_trie,
    credit_cap,
    least_label_costs,
    lookahead_cost,
    no_oov,
    oov_lookahead,
    row_of,
)

F = np.float32
_ZERO = F(0)


class Key(NamedTuple):
    """Key that tells entries apart.

    Attributes:
        state: Of the language model.
        node: Of the tries, or of an open word behind them.
        boost: The boost state.
        spelling: The hash of an open word behind the tries, 0 elsewhere.
        text: The hash of the text, 0 where texts are not kept apart.
    """

    state: int
    node: int
    boost: int
    spelling: int = 0
    text: int = 0


class Steps:
    """The steps of a space, with the options and boosts of an utterance."""

    def __init__(
        self,
        space: SearchSpace,
        options: TrieOptions,
        boosts: CompiledBoosts,
        oov: OovTrie | None = None,
        arrays: LmArrays | None = None,
    ) -> None:
        self._space = space
        if arrays is None:
            new = boosts.oov.words if boosts.oov is not None else ()
            arrays = LmArrays(space.automaton, new).__enter__()
        self.lm = arrays
        self._account = BoostAccount(boosts, options.beam)
        if oov is None and boosts.oov is not None:
            costs = least_label_costs(space.automaton, boosts.oov.num_known)
            oov = build_oov_trie(boosts.oov, space, costs)
        self._added = oov or no_oov()
        self._cap = credit_cap(space, options.lm_scale)
        self._lm_scale = F(options.lm_scale)
        self._first_added = space.trie.num_nodes
        self._first_open = self._first_added + self._added.num_nodes

    def place_of(self, key: Key) -> tuple:
        """Order of an entry among those of equal cost."""
        return self.lm.orders(np.array([key.state]))[0], *key[1:]

    def token_of(self, node: int) -> int:
        """The token that leads to a node; at the root the separator, or -1."""
        space = self._space
        if not space.has_lexicon or node < self._first_added:
            return int(space.node_token[node])
        if node < self._first_open:
            return int(self._added.trie.node_token[node - self._first_added])
        return int(open_token(self._first_open, node, space.num_tokens))

    def lookahead_cost(self, state: int, node: int) -> np.float32:
        """The least cost of what may follow, float32."""
        space = self._space
        if not space.has_lexicon or node < self._first_added:
            return lookahead_cost(space, state, node)
        if not space.looks_ahead:
            return F(0)
        unk_cost = space.unk_lookahead[row_of(space, state)]
        if node < self._first_open:
            at = node - self._first_added
            return F(oov_lookahead(self._added, unk_cost, at))
        length = open_length(self._first_open, node, space.num_tokens)
        return F(spelling_cost(space.open, unk_cost, length))

    def advance_credit(self, node: int) -> np.float32:
        """Part of a bonus that was credited in advance at a node, float32."""
        if not self._first_added <= node < self._first_open:
            return F(0)
        return F(advance_credit(self._added, self._cap, node - self._first_added))

    def successors(self, key: Key, token: int) -> Iterator[tuple[Node, WordEnd]]:
        """Follow a token: each way with the word that ends before it, and its state."""
        space = self._space
        inside = WordEnd(NONE, NONE, F(0), key.state, NONE)
        if not space.has_lexicon:
            cost, state = self.lm.step(key.state, token)
            end = WordEnd(NONE, NONE, F(cost), int(state), token)
            yield Node(token), end
            return
        # A separator between words, or after the word that it ends; of one that may be
        # missing any token that begins a word does the same.
        if token == space.separator:
            following: list[Node] = [Node(0)]
            if key.node == 0:
                yield Node(0), inside
        else:
            for place in self._places_inside(key, token):
                yield place, inside
            if not space.separator_optional:
                return
            following = list(self._places_begun(token))
        if key.node != 0:
            for end in self.word_ends(key):
                for place in following:
                    yield place, end

    def word_ends(self, key: Key) -> Iterator[WordEnd]:
        """The words that end at the node of an entry."""
        trie, oov = self._space.trie, self._added
        if key.node < self._first_added:
            first, last = trie.node_pron_splits[key.node : key.node + 2].tolist()
            for pron in range(first, last):
                word = int(trie.pron_word[pron])
                yield self._word_end(key, pron, word, trie.pron_cost[pron])
            # No word of the lexicon is spelled like this: it may be an open one.
            if first == last:
                yield from self._open_end(key)
        elif key.node < self._first_open:
            at = key.node - self._first_added
            first, last = oov.trie.node_pron_splits[at : at + 2].tolist()
            for pron in range(first, last):
                word, number = int(oov.trie.pron_word[pron]), int(oov.pron[pron])
                # Pronunciations of OOV words are numbered on from those of the lexicon.
                number += len(trie.pron_word)
                yield self._word_end(key, number, word, bonus=oov.bonus[pron])
        else:
            yield from self._open_end(key)

    def ending_pron(self, key: Key) -> int:
        """The cheapest pronunciation that ends at the node of an entry, -1 for none."""
        if not self._space.has_lexicon or key.node == 0:
            return NONE
        ends = [(float(end.cost), end.pron) for end in self.word_ends(key)]
        return min(ends, key=lambda end: end[0])[1] if ends else NONE

    def _word_end(
        self,
        key: Key,
        pron: int,
        word: int,
        cost: np.float32 = _ZERO,
        *,
        bonus: np.float32 = _ZERO,
    ) -> WordEnd:
        lm_cost, state = self.lm.step(key.state, word)
        return WordEnd(pron, word, F(F(lm_cost) + cost), int(state), word, bonus)

    def _open_end(self, key: Key) -> Iterator[WordEnd]:
        """The open word that ends, if there is one."""
        opened = self._space.open
        if key.node < self._first_added:
            text, length = opened.node_text[key.node], int(opened.node_length[key.node])
        else:
            text = np.uint64(key.spelling)
            length = open_length(self._first_open, key.node, self._space.num_tokens)
        if not opened.is_open or length == 0 or text == EMPTY_TEXT:
            return
        word = int(find_text(opened.words, text))
        # Spelled like a word that the decoder has, it is that word, at that word's
        # cost.
        if word != NONE:
            yield self._word_end(key, OPEN_PRON, word)
        # Spelled like an OOV word of the list it is none: the list has its tokens.
        elif find_text(self._added.texts, text) == NONE:
            unk_cost, state = self.lm.step(key.state, UNKNOWN)
            cost = F(spelling_cost(opened, F(unk_cost), length))
            label = int(label_of(text))
            yield WordEnd(OPEN_PRON, EPSILON, cost, int(state), label)

    def _places_inside(self, key: Key, token: int) -> Iterator[Node]:
        """Where a token leads inside a word, or from the root into one."""
        opened, trie, node = self._space.open, self._space.trie, key.node
        if node == 0:
            yield from self._places_begun(token)
        elif node < self._first_added:
            child = int(find_child(trie, node, token))
            if child != NONE:
                yield Node(child)
            # What begins like a word of the lexicon and ends otherwise is an open word.
            elif opened.node_length[node] > 0 and opened.extends[token]:
                length, text = opened.node_length[node], opened.node_text[node]
                yield from self._place_behind(int(length), text, token)
        elif node < self._first_open:
            at = node - self._first_added
            child = int(find_child(self._added.trie, at, token))
            if child != NONE:
                yield Node(self._first_added + child)
        elif opened.extends[token]:
            length = int(open_length(self._first_open, node, self._space.num_tokens))
            yield from self._place_behind(length, np.uint64(key.spelling), token)

    def _places_begun(self, token: int) -> Iterator[Node]:
        """Where a token leads that begins a word."""
        space, oov = self._space, self._added
        child = int(space.root_child[token])
        if child != NONE:
            yield Node(child)
        elif space.open.is_open and space.open.begins[token]:
            yield from self._place_behind(0, np.uint64(EMPTY_TEXT), token)
        if oov.num_nodes and oov.root_child[token] != NONE:
            yield Node(self._first_added + int(oov.root_child[token]))

    def _place_behind(self, length: int, text: np.uint64, token: int) -> Iterator[Node]:
        """Continue an open word of this length behind the tries."""
        # The length is a part of the node's number, whose room is bounded.
        if length == MAX_OPEN_TOKENS:
            return
        spelling = int(extended(self._space.open.texts, text, token))
        num_tokens = self._space.num_tokens
        node = int(open_node(self._first_open, length + 1, token, num_tokens))
        yield Node(node, spelling)

    def step_boosts(
        self, key: Key, end: WordEnd, token: int, node: int
    ) -> tuple[int, np.float32]:
        """The boost state after a word and a token, either may be -1; the cost."""
        # What was credited on the way into an OOV word is part of the word's bonus:
        # each step credits the difference.
        bonus = F(end.bonus + self.advance_credit(node))
        bonus = F(bonus - self.advance_credit(key.node))
        labels = [None if label == NONE else label for label in (end.word, token)]
        cost, boost = self._account.step(key.boost, *labels, bonus=bonus)
        return boost, cost

    def cost(
        self,
        before: np.float32,
        graph: np.float32,
        insertion: np.float32,
        boost_cost: np.float32,
    ) -> np.float32:
        """The cost after a step but for its acoustics, each sum rounded to float32."""
        total = F(before + F(self._lm_scale * graph))
        return F(F(total + insertion) + boost_cost)

    def rest(self, boost: int, node: int = 0) -> np.float32:
        """Cost of ending in a boost state, and inside a word at a node."""
        return F(self._account.rest(boost) + self.advance_credit(node))


def text_with(text: int, label: int) -> int:
    """The hash of a text with one more word or token, 64 bits."""
    return (text * 6364136223846793005 + label + 1442695040888963407) % 2**64
