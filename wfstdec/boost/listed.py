"""Boosted words as the CPU kernels take them: bonuses, and where they may be said.

    places = WordPlaces(words, splits, num_words)     # once per graph or trie
    listed = list_words(boosts, places)               # once per list
    if is_hot(listed, place): ...                     # at every entry of every frame

A place is a state of a graph, with the words on its arcs, or a node of a trie, with the
words that end there. It is hot if one of these is boosted, or begins a phrase of words;
elsewhere a search goes on as if nothing was boosted.
"""

from __future__ import annotations

import functools
from typing import NamedTuple

import numpy as np
from numpy import uint64

from wfstdec.boost.boosts import CompiledBoosts
from wfstdec.boost.words import compile_word_boosts
from wfstdec.jit import inlined, jit, read_only
from wfstdec.text.symbols import EPSILON

MIN_BITS = 1 << 12
BITS_PER_PLACE = 32
"""So many bits for each hot place, up to one for each place of all."""
_LOW = uint64(63)
_ONE = uint64(1)
_WORD_OF_BITS = uint64(6)
_ZERO = uint64(0)


class ListedWords(NamedTuple):
    """The boosted words of an utterance, and the places that are hot.

    Where there are fewer bits than places, some share one: a place that is taken for
    hot costs time and changes nothing.
    """

    keys: np.ndarray  # uint32 [H], as `WordBoosts`
    bonuses: np.ndarray  # float32 [H]
    top_bonus: np.float32
    hot: np.ndarray  # uint64 [2 ** n]: a bit for each place, modulo their number
    hot_mask: np.uint64  # the number of bits, less 1


class WordPlaces:
    """The places of each word.

    Args:
        words: int [N], the words at all places one after the other; 0 is none.
        splits: int [P + 1], where the words of each place stand.
        num_words: W; word ids are below it.
    """

    def __init__(self, words: np.ndarray, splits: np.ndarray, num_words: int) -> None:
        self._num_places = len(splits) - 1
        self._splits, self._places = _by_word(words, splits, num_words)

    def bits(self, words: np.ndarray) -> tuple[np.ndarray, np.uint64]:
        """`ListedWords.hot` and `hot_mask` of the places of some words.

        Args:
            words: int64 [N], word ids.
        """
        words = words[words < len(self._splits) - 1]
        found = int((self._splits[words + 1] - self._splits[words]).sum())
        wanted = min(max(BITS_PER_PLACE * found, MIN_BITS), self._num_places)
        num_bits = 1 << max(6, (wanted - 1).bit_length())
        bits, mask = np.zeros(num_bits // 64, np.uint64), np.uint64(num_bits - 1)
        _set_bits(bits, mask, words, self._splits, self._places)
        return read_only(bits), mask


@functools.cache
def no_words() -> ListedWords:
    """No boosted words and no hot places."""
    nothing, _ = compile_word_boosts(None, {})
    return ListedWords(*nothing, read_only(np.zeros(1, np.uint64)), _LOW)


def list_words(boosts: CompiledBoosts, places: WordPlaces) -> ListedWords:
    """The boosted words of an utterance; phrases of words count by their first ones.

    Args:
        boosts: The boosts.
        places: Where words may be said.
    """
    keys, phrases = boosts.words.keys, boosts.phrases
    begin = keys[keys != EPSILON]
    if phrases is not None and phrases.unit == "word":
        automaton = phrases.automaton
        first = automaton.arc_label[: automaton.state_arc_splits[1]]
        begin = np.union1d(begin, first)
    return ListedWords(*boosts.words, *places.bits(begin.astype(np.int64)))


@inlined
def is_hot(words, place):
    """Whether a boosted word, or a phrase of words, may be at a place."""
    at = uint64(place) & words.hot_mask
    return words.hot[at >> _WORD_OF_BITS] >> (at & _LOW) & _ONE != _ZERO


@jit
def _by_word(words, splits, num_words):
    """The places by word: splits int64 [W + 1], uint32 [words that are not 0]."""
    word_splits = np.zeros(num_words + 1, np.int64)
    for word in words:
        if word != EPSILON:
            word_splits[np.int64(word) + 1] += 1
    for word in range(num_words):
        word_splits[word + 1] += word_splits[word]
    at = word_splits[:-1].copy()
    places = np.empty(word_splits[-1], np.uint32)
    for place in range(len(splits) - 1):
        for i in range(splits[place], splits[place + 1]):
            word = np.int64(words[i])
            if word != EPSILON:
                places[at[word]] = place
                at[word] += 1
    return word_splits, places


@jit
def _set_bits(bits, mask, words, splits, places):
    """Set the bit of each place of some words."""
    for word in words:
        for i in range(splits[word], splits[word + 1]):
            bit = uint64(places[i]) & mask
            bits[bit >> _WORD_OF_BITS] |= _ONE << (bit & _LOW)
