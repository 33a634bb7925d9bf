"""Where an entry of the trie search may go: part of the specification.

steps = Steps(space, options, boosts)
for successor in steps.successors(key, token): ...     # a token begins
for word_end in steps.word_ends(key): ...              # words that end at the node
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from wfstdec.boost.account import BoostAccount
from wfstdec.boost.boosts import CompiledBoosts
from wfstdec.lm import kernels
from wfstdec.trie.lexicon_trie import find_child
from wfstdec.trie.options import TrieOptions
from wfstdec.trie.space import NONE, SearchSpace

F = np.float32


class Key(NamedTuple):
    """What tells entries apart; `text` is a hash, 0 where texts are not kept apart."""

    state: int
    node: int
    boost: int
    text: int = 0


class Successor(NamedTuple):
    """Where a token leads.

    Attributes:
        state: The next state of the language model.
        node: The next node.
        pron: The pronunciation that ends before the token, -1 for none.
        cost: Of that pronunciation and its word; without a lexicon of the token.
    """

    state: int
    node: int
    pron: int
    cost: np.float32


class WordEnd(NamedTuple):
    """A pronunciation that ends at a node.

    Attributes:
        pron: The pronunciation.
        cost: Of its word, and its own.
        state: The state of the language model after the word.
    """

    pron: int
    cost: np.float32
    state: int


class Steps:
    """The steps of a space, with the options and boosts of an utterance."""

    def __init__(
        self, space: SearchSpace, options: TrieOptions, boosts: CompiledBoosts
    ) -> None:
        self._space = space
        self._account = BoostAccount(boosts, options.beam)

    def successors(self, key: Key, token: int) -> Iterator[Successor]:
        """Where a token that begins leads: inside a word, or after the end of one."""
        space = self._space
        if not space.has_lexicon:
            cost, state = kernels.step(space.automaton, 0, key.state, token)
            yield Successor(int(state), token, NONE, F(cost))
            return
        if token == space.separator:
            next_node = 0
            if key.node == 0:
                yield Successor(key.state, 0, NONE, F(0))
        else:
            child = int(find_child(space.trie, key.node, token))
            if child != NONE:
                yield Successor(key.state, child, NONE, F(0))
            if not space.separator_optional:
                return
            next_node = int(space.root_child[token])
        if key.node != 0 and next_node != NONE:
            for pron, cost, state in self.word_ends(key):
                yield Successor(state, next_node, pron, cost)

    def word_ends(self, key: Key) -> Iterator[WordEnd]:
        """The pronunciations that end at the node of an entry."""
        trie = self._space.trie
        first, last = trie.node_pron_splits[key.node : key.node + 2].tolist()
        for pron in range(first, last):
            word = trie.pron_word[pron]
            cost, state = kernels.step(self._space.automaton, 0, key.state, word)
            yield WordEnd(pron, F(F(cost) + trie.pron_cost[pron]), int(state))

    def step_boosts(self, boost: int, word: int, token: int) -> tuple[int, np.float32]:
        """The boost state after a word and a token, either may be -1; the cost."""
        said = [None if label == NONE else label for label in (word, token)]
        cost, boost = self._account.step(boost, *said)
        return boost, cost

    def rest(self, boost: int) -> np.float32:
        """What it costs to end in a boost state."""
        return self._account.rest(boost)


def text_with(text: int, label: int) -> int:
    """The hash of a text with one more word or token, 64 bits."""
    return (text * 6364136223846793005 + label + 1442695040888963407) % 2**64
