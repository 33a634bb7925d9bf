"""Boosted words as the CPU kernels take them: bonuses, and where they may be said.

    places = WordPlaces(words, splits, num_words)     # once per graph or trie
    listed = list_words(boosts, places)               # once per list
    if is_hot(listed, row): ...                       # at every entry of every frame
    hot_window(listed, first) >> i & 1                # the places of a row that is

A row is a state of a graph, its places are the arcs; or a node of a trie, with the
words that end there. A place is hot if its word is boosted, or begins a phrase of
words; elsewhere a search goes on as if nothing was boosted.
"""

from __future__ import annotations

import functools
from typing import Any, NamedTuple

import numpy as np
from numpy import uint64

from wfstdec.boost.boosts import CompiledBoosts
from wfstdec.boost.words import compile_word_boosts
from wfstdec.jit import inlined, jit, read_only
from wfstdec.text.symbols import EPSILON

MIN_BITS = 1 << 12
BITS_PER_PLACE = 32
"""So many bits for each hot place, up to one for each row or place of all."""
_LOW = uint64(63)
_ONE = uint64(1)
_WORD_OF_BITS = uint64(6)
_ZERO = uint64(0)


class ListedWords(NamedTuple):
    """The boosted words of an utterance, and what is hot.

    Where there are fewer bits than places, some share one: a place that is taken for
    hot costs time and changes nothing.
    """

    keys: np.ndarray  # uint32 [H], as `WordBoosts`
    bonuses: np.ndarray  # float32 [H]
    top_bonus: np.float32
    hot_rows: np.ndarray  # uint64 [2 ** n]: a bit for each row, modulo their number
    row_mask: np.uint64  # the number of bits, less 1
    hot: np.ndarray  # uint64 [2 ** n]: the same of places
    hot_mask: np.uint64


class WordPlaces:
    """The places of each word.

    Args:
        words: int [P], the words of all rows one after the other; 0 is none.
        splits: int [R + 1], where the places of each row stand.
        num_words: W; word ids are below it.
    """

    def __init__(self, words: np.ndarray, splits: np.ndarray, num_words: int) -> None:
        self._sizes = len(splits) - 1, len(words)
        self._splits, self._rows, self._places = _by_word(words, splits, num_words)

    def bits(self, words: np.ndarray) -> tuple[Any, Any, Any, Any]:
        """What `ListedWords` has of rows and places, of some words.

        Args:
            words: int64 [N], word ids.
        """
        words = words[words < len(self._splits) - 1]
        found = int((self._splits[words + 1] - self._splits[words]).sum())
        rows, places = (_room(found, size) for size in self._sizes)
        _set_bits(*rows, words, self._splits, self._rows)
        _set_bits(*places, words, self._splits, self._places)
        return read_only(rows[0]), rows[1], read_only(places[0]), places[1]


def _room(found: int, most: int) -> tuple[np.ndarray, np.uint64]:
    """Bits for so many hot ones of all, and their number less 1."""
    wanted = min(max(BITS_PER_PLACE * found, MIN_BITS), most)
    num_bits = 1 << max(6, (wanted - 1).bit_length())
    return np.zeros(num_bits // 64, np.uint64), np.uint64(num_bits - 1)


@functools.cache
def no_words() -> ListedWords:
    """No boosted words and no hot places."""
    nothing, _ = compile_word_boosts(None, {})
    bits = read_only(np.zeros(1, np.uint64))
    return ListedWords(*nothing, bits, _LOW, bits, _LOW)


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
def is_hot(words, row):
    """Whether a boosted word, or a phrase of words, may be at a place of a row."""
    at = uint64(row) & words.row_mask
    return words.hot_rows[at >> _WORD_OF_BITS] >> (at & _LOW) & _ONE != _ZERO


@inlined
def hot_window(words, first):
    """Which of 64 places in a row are hot, from a first one on: a bit for each."""
    at = uint64(first) & words.hot_mask
    shift, word = at & _LOW, at >> _WORD_OF_BITS
    window = words.hot[word] >> shift
    if shift != _ZERO:
        following = (word + _ONE) & (words.hot_mask >> _WORD_OF_BITS)
        window |= words.hot[following] << (uint64(64) - shift)
    return window


@jit
def _by_word(words, splits, num_words):
    """Rows and places by word: splits int64 [W + 1], uint32 [words that are not 0]."""
    word_splits = np.zeros(num_words + 1, np.int64)
    for word in words:
        if word != EPSILON:
            word_splits[np.int64(word) + 1] += 1
    for word in range(num_words):
        word_splits[word + 1] += word_splits[word]
    at = word_splits[:-1].copy()
    rows = np.empty(word_splits[-1], np.uint32)
    places = np.empty(word_splits[-1], np.uint32)
    for row in range(len(splits) - 1):
        for place in range(splits[row], splits[row + 1]):
            word = np.int64(words[place])
            if word != EPSILON:
                rows[at[word]], places[at[word]] = row, place
                at[word] += 1
    return word_splits, rows, places


@jit
def _set_bits(bits, mask, words, splits, places):
    """Set the bit of each place of some words."""
    for word in words:
        for i in range(splits[word], splits[word + 1]):
            bit = uint64(places[i]) & mask
            bits[bit >> _WORD_OF_BITS] |= _ONE << (bit & _LOW)
