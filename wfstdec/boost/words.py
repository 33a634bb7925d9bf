"""Word boosting: a hash map from word ids to bonuses, as arrays.

This is the one-state acceptor B of "GPU-Accelerated WFST Beam Search Decoder for
CTC-based Speech Recognition" (arXiv 2311.04996): a bonus is credited on whichever arc
carries the word's label. Open addressing with linear probing, so that CPU and GPU
read the same arrays:

    slot = mix(word) & (len(keys) - 1)
    while keys[slot] not in (word, 0): slot = (slot + 1) & (len(keys) - 1)
    bonus = bonuses[slot]                       # 0.0 where keys[slot] == 0
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from wfstdec.jit import jit, kernel
from wfstdec.text.tokens import EPSILON


class WordBoosts(NamedTuple):
    """The compiled list of one utterance."""

    # uint32 [H], word ids; 0 is an empty slot. H is a power of two, at least twice the
    # number of words.
    keys: np.ndarray
    bonuses: np.ndarray  # float32 [H], nats; above 0 favours the word
    top_bonus: np.float32  # the largest bonus, at least 0: bounds the credit of any arc

    def bonus(self, word: int) -> float:
        """The bonus of a word id, 0 where it has none."""
        return float(find_bonus(self.keys, self.bonuses, np.uint32(word)))

    def total(self, words: Sequence[int]) -> float:
        """The bonuses of some word ids together, each as often as it is there."""
        ids = np.asarray(words, np.uint32)
        return float(_total(self.keys, self.bonuses, ids))

    def __bool__(self) -> bool:
        return bool(self.keys.any())


def compile_word_boosts(
    boosts: Mapping[str, float] | None, word_ids: Mapping[str, int]
) -> tuple[WordBoosts, list[str]]:
    """Compile words and bonuses, nats; also the words without an id."""
    given = boosts or {}
    known = {word_ids[w]: float(bonus) for w, bonus in given.items() if w in word_ids}
    size = 1 << max(1, (2 * len(known)).bit_length())
    keys, bonuses = np.zeros(size, np.uint32), np.zeros(size, np.float32)
    for word, bonus in sorted(known.items()):
        slot = int(mix(np.uint32(word))) & (size - 1)
        while keys[slot] != 0:
            slot = (slot + 1) & (size - 1)
        keys[slot], bonuses[slot] = word, bonus
    compiled = WordBoosts(keys, bonuses, max(np.float32(0), bonuses.max()))
    return compiled, sorted(word for word in given if word not in word_ids)


@jit
def _total(keys, bonuses, words):
    total = 0.0
    for word in words:
        total += np.float64(find_bonus(keys, bonuses, word))
    return total


@kernel
def mix(key):
    """A 32-bit integer hash (Wellons, hash-prospector "lowbias32"), uint32."""
    key = np.uint32(key)
    key ^= key >> np.uint32(16)
    key = np.uint32(key * np.uint32(0x7FEB352D))
    key ^= key >> np.uint32(15)
    key = np.uint32(key * np.uint32(0x846CA68B))
    return np.uint32(key ^ (key >> np.uint32(16)))


@kernel
def find_bonus(keys, bonuses, word):
    """The bonus of `word`, float32; 0 where the map does not have it."""
    mask = np.uint32(len(keys) - 1)
    slot = mix(word) & mask
    # Ends: at most half of the slots are taken.
    while keys[slot] != word and keys[slot] != np.uint32(EPSILON):
        slot = (slot + np.uint32(1)) & mask
    return bonuses[slot]
