"""Texts as hashes that grow by what tokens add, and a table to find words by them.

    text = extended(spelling, EMPTY_TEXT, token)      # uint64, token by token
    word = find_text(table, text)                     # the id, -1 where there is none

However a text is cut into tokens, it has one hash: a polynomial of its characters,
modulo 2^64.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy import int64, uint64

from wfstdec.jit import inlined, jit, read_only

EMPTY_TEXT = 0x6A09E667F3BCC909
"""The hash of no text."""
_FACTOR = 0x5851F42D4C957F2D
_ALL = (1 << 64) - 1
_LOW_63 = uint64((1 << 63) - 1)
_ONE = uint64(1)


class TokenTexts(NamedTuple):
    """What each token does to a hash: `hash * factor + offset`.

    Attributes:
        factor: uint64 [V].
        offset: uint64 [V].
    """

    factor: np.ndarray
    offset: np.ndarray


class TextTable(NamedTuple):
    """Word ids by the hash of their text: open addressing, linear probing.

    Attributes:
        keys: uint64 [H], 0 where there is none; H is a power of two.
        ids: int32 [H].
    """

    keys: np.ndarray
    ids: np.ndarray


def token_texts(texts: Sequence[str]) -> TokenTexts:
    """What tokens that add these texts do."""
    factors = [pow(_FACTOR, len(text), 1 << 64) for text in texts]
    offsets = [_hash_from(0, text) for text in texts]
    return TokenTexts(_frozen(factors), _frozen(offsets))


def text_table(texts: Sequence[str], ids: Sequence[int]) -> TextTable:
    """The table of some words: texts, and the id of each."""
    size = 1 << max(1, (2 * len(texts)).bit_length())
    table = TextTable(np.zeros(size, np.uint64), np.full(size, -1, np.int32))
    hashes = np.array([_hash_from(EMPTY_TEXT, text) for text in texts], np.uint64)
    _fill(table, hashes, np.array(ids, np.int32))
    return TextTable(*map(read_only, table))


@inlined
def extended(texts, text, token):
    """The hash of a text with what a token adds, uint64."""
    return uint64(uint64(text) * texts.factor[token] + texts.offset[token])


@inlined
def find_text(table, text):
    """The word id of a text, -1 where the table has none."""
    mask = uint64(len(table.keys) - 1)
    slot = label_of(text) & mask
    while table.keys[slot] != uint64(0):
        if table.keys[slot] == text:
            return int64(table.ids[slot])
        slot = (slot + _ONE) & mask
    return int64(-1)


@inlined
def label_of(text):
    """A hash in the place of a word id: mixed, and of 63 bits."""
    mixed = uint64(text)
    mixed ^= mixed >> uint64(32)
    mixed *= uint64(0xD6E8FEB86659FD93)
    mixed ^= mixed >> uint64(32)
    return mixed & _LOW_63


@jit
def _fill(table, hashes, ids):
    mask = uint64(len(table.keys) - 1)
    for i in range(len(hashes)):
        slot = label_of(hashes[i]) & mask
        while table.keys[slot] != uint64(0) and table.keys[slot] != hashes[i]:
            slot = (slot + _ONE) & mask
        table.keys[slot], table.ids[slot] = hashes[i], ids[i]


def _hash_from(before: int, text: str) -> int:
    found = before
    for character in text:
        found = (found * _FACTOR + ord(character)) & _ALL
    return found


def _frozen(values: Sequence[int]) -> np.ndarray:
    return read_only(np.array(values, np.uint64))
