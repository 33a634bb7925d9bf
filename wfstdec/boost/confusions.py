"""Which words of a lexicon sound like a likelier one.

    found = likelier_sounds(lexicon, word_ids, word_cost)
    found[word] == HOMOPHONE        # a likelier word has the same pronunciation
    found[word] == NEIGHBOUR        # one less a token, with one more, or with another
    Sounds(lexicon, word_ids, word_cost).near([(3, 1, 4)], 8.0)   # those of new words

Two pronunciations are a token apart where one without its token `i` is the other, or
the other without its token `i`: so all of them are hashed with each token left out.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import chain

import numpy as np

from wfstdec.jit import jit
from wfstdec.text.lexicon import Lexicon

DISTINCT, NEIGHBOUR, HOMOPHONE = 0, 1, 2
"""What is known of a word's pronunciations; the greatest that holds of any."""
_FACTOR = np.uint64(0x9E3779B97F4A7C15)
_PLACE = np.uint64(0xC2B2AE3D27D4EB4F)


def likelier_sounds(
    lexicon: Lexicon, word_ids: Mapping[str, int], word_cost: np.ndarray
) -> np.ndarray:
    """How likelier words sound, for each word, uint8 [W].

    Args:
        lexicon: The pronunciations.
        word_ids: The ids of words, 0 to W - 1; others are left out.
        word_cost: float [W], unigram costs, nats.
    """
    found = np.zeros(len(word_cost), np.uint8)
    pairs = zip(lexicon.words, lexicon.pronunciations, strict=True)
    known = [(word_ids[word], said) for word, said in pairs if word in word_ids]
    if not known:
        return found
    word = np.array([one for one, _ in known], np.int64)
    lengths, whole, without, at_place = _hashes_of([said for _, said in known])
    own = np.asarray(word_cost, np.float64)[word]
    owner = np.repeat(np.arange(len(word)), lengths)
    homophone = _least_of(whole, own, whole) < own
    neighbour = _least_of(without, own[owner], whole) < own
    shorter = _least_of(whole, own, without) < own[owner]
    other = _least_of(at_place, own[owner], at_place) < own[owner]
    np.logical_or.at(neighbour, owner, shorter | other)
    np.maximum.at(found, word[neighbour], NEIGHBOUR)
    np.maximum.at(found, word[homophone], HOMOPHONE)
    return found


class Sounds:
    """The pronunciations of a lexicon, to be compared with others.

    Args:
        lexicon: The pronunciations.
        word_ids: The ids of words, 0 to W - 1; others are left out.
        word_cost: float [W], unigram costs, nats.
    """

    def __init__(
        self, lexicon: Lexicon, word_ids: Mapping[str, int], word_cost: np.ndarray
    ) -> None:
        pairs = zip(lexicon.words, lexicon.pronunciations, strict=True)
        known = [(word_ids[word], said) for word, said in pairs if word in word_ids]
        lengths, *hashes = _hashes_of([said for _, said in known])
        cost = np.asarray(word_cost, np.float64)[[word for word, _ in known]]
        costs = (cost, np.repeat(cost, lengths), np.repeat(cost, lengths))
        self._whole, self._without, self._at_place = (
            _least(*one) for one in zip(hashes, costs, strict=True)
        )

    def near(self, said: Sequence[Sequence[int]], cost: float) -> np.ndarray:
        """How words that cost less than this sound, for each pronunciation, uint8 [P].

        Args:
            said: Pronunciations, tokens.
            cost: Nats.
        """
        found = np.zeros(len(said), np.uint8)
        lengths, whole, without, at_place = _hashes_of(said)
        owner = np.repeat(np.arange(len(said)), lengths)
        near = _asked(self._without, whole) < cost
        shorter = _asked(self._whole, without) < cost
        other = _asked(self._at_place, at_place) < cost
        np.logical_or.at(near, owner, shorter | other)
        found[near] = NEIGHBOUR
        found[_asked(self._whole, whole) < cost] = HOMOPHONE
        return found


def _hashes_of(said: Sequence[Sequence[int]]) -> tuple[np.ndarray, ...]:
    """How long pronunciations are, int64 [P], and `_hashes` of them."""
    lengths = np.array([len(one) for one in said], np.int64)
    tokens = np.fromiter(chain.from_iterable(said), np.int64, int(lengths.sum()))
    return lengths, *_hashes(tokens, np.concatenate([[0], np.cumsum(lengths)]))


def _least_of(keys: np.ndarray, costs: np.ndarray, asked: np.ndarray) -> np.ndarray:
    """The least cost of each key that is asked for; infinite where there is none."""
    return _asked(_least(keys, costs), asked)


def _least(keys: np.ndarray, costs: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The different keys, sorted, and the least cost of each."""
    if not len(keys):
        return np.zeros(1, keys.dtype), np.full(1, np.inf)
    order = np.argsort(keys, kind="stable")
    different, first = np.unique(keys[order], return_index=True)
    return different, np.minimum.reduceat(costs[order], first)


def _asked(known: tuple[np.ndarray, np.ndarray], asked: np.ndarray) -> np.ndarray:
    different, least = known
    order = np.argsort(asked)  # in order they are found twice as fast
    at = np.empty(len(asked), np.int64)
    at[order] = np.searchsorted(different, asked[order])
    at = np.minimum(at, len(different) - 1)
    return np.where(different[at] == asked, least[at], np.inf)


@jit
def _hashes(tokens, splits):
    """Hashes of pronunciations, uint64.

    Returns:
        [P], of all tokens; [N], without each of the N tokens of all; [N], the same
        with the place of the missing one.
    """
    whole = np.zeros(len(splits) - 1, np.uint64)
    without = np.zeros(len(tokens), np.uint64)
    at_place = np.zeros(len(tokens), np.uint64)
    for p in range(len(splits) - 1):
        first, last = splits[p], splits[p + 1]
        for t in range(first, last):
            whole[p] = _longer(whole[p], tokens[t])
            for skipped in range(first, last):
                if skipped != t:
                    without[skipped] = _longer(without[skipped], tokens[t])
        for skipped in range(first, last):
            place = np.uint64(skipped - first + 1) * _PLACE
            at_place[skipped] = (without[skipped] ^ place) * _FACTOR
    return whole, without, at_place


@jit
def _longer(key, token):
    """The hash of a sequence with one more token."""
    key = (key ^ np.uint64(token + 1)) * _FACTOR
    return key ^ (key >> np.uint64(29))
