"""Where an entry of the beam search may go: part of the specification."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from wfstdec.boost.boosts import CompiledBoosts
from wfstdec.lm import kernels
from wfstdec.trie.lexicon_trie import find_child
from wfstdec.trie.options import TrieOptions
from wfstdec.trie.space import NONE, SearchSpace

F = np.float32


class Key(NamedTuple):
    """What an entry is; `text` is 0 with "max"."""

    state: int
    node: int
    boost: int
    text: int = 0


class Steps:
    """The steps of a space, with the options and boosts of an utterance."""

    def __init__(
        self, space: SearchSpace, options: TrieOptions, boosts: CompiledBoosts
    ) -> None:
        self._network, self._options, self._boosts = space, options, boosts

    def ways(self, key: Key, token: int) -> Iterator[tuple[int, int, int, np.float32]]:
        """(model state, node, pronunciation that ends or -1, its cost) by a token."""
        space = self._network
        if not space.lexical:
            cost, state = kernels.step(space.automaton, space.model, key.state, token)
            yield int(state), token, NONE, F(cost)
            return
        if token == space.separator:
            next_node = 0
            if key.node == 0:
                yield key.state, 0, NONE, F(0)
        else:
            child = int(find_child(space.trie, key.node, token))
            if child != NONE:
                yield key.state, child, NONE, F(0)
            if not space.optional:
                return
            next_node = int(find_child(space.trie, 0, token))
        if key.node != 0 and next_node != NONE:
            for said, cost, state in self.said(key):
                yield state, next_node, said, cost

    def said(self, key: Key) -> Iterator[tuple[int, np.float32, int]]:
        """(pronunciation, cost of it and its word, next state) that end at a node."""
        space, trie = self._network, self._network.trie
        for said in range(trie.said_splits[key.node], trie.said_splits[key.node + 1]):
            word = trie.said_word[said]
            cost, state = kernels.step(space.automaton, space.model, key.state, word)
            yield said, F(F(cost) + trie.said_cost[said]), int(state)

    def word_insertion(self, word: int) -> np.float32:
        """What a word costs besides, its bonus taken off."""
        bonus = F(self._boosts.words.bonus(word))
        return F(F(self._options.word_insertion) - bonus)

    def step_phrases(self, boost: int, word: int, token: int) -> tuple[int, np.float32]:
        """The boost state after a word or token, and the cost; -1 is none of it."""
        phrases = self._boosts.phrases
        if phrases is None:
            return boost, F(0)
        label = word if phrases.unit == "word" else token
        if label == NONE:
            return boost, F(0)
        cost, state = kernels.step(phrases.automaton, 0, boost, label)
        return int(state), F(cost)


def extended(text: int, label: int) -> int:
    """The hash of a text with one more word or token, 64 bits."""
    return (text * 6364136223846793005 + label + 1442695040888963407) % 2**64
