"""Words as a tree of characters in arrays: the known ones, and hotwords.

tree = build_tree(["ab", "abc"])
node = find_child(tree, 0, ord("a"))        # -1 where no word goes on so
tree.word[node], tree.least[node]           # -1 and 2: 'ab' is the shortest below

Hotwords count as pyctcdecode counts them, by word and by the beginning of one:

    tree = compile_hotwords(split_hotwords(["new york", "kensho"]))    # three words

    weight * words of a text that are hot
    + weight * len(part) / len(shortest so begun)
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np
from numpy import int64, uint64

from wfstdec.adapters.pyctcdecode.constants import DEFAULT_HOTWORD_WEIGHT
from wfstdec.errors import BoostError
from wfstdec.jit import inlined, jit, read_only
from wfstdec.jit.trees import grow_tree

_PARENT, _CHAR = uint64(0x9E3779B97F4A7C15), uint64(0xC2B2AE3D27D4EB4F)
_HALF = uint64(32)


SLOT = np.dtype([("parent", "<i4"), ("char", "<i4"), ("node", "<i4")])
"""A place of a hash table of nodes: it is empty where `node` is 0, the root."""


class WordTree(NamedTuple):
    """N nodes, the root first.

    Attributes:
        slots: SLOT [2 ** n > 2 N].
        word: int32 [N], the word that ends there, -1 if none.
        least: int32 [N], the length of the shortest listed word at or below the node;
            0 where there is none.
    """

    slots: np.ndarray
    word: np.ndarray
    least: np.ndarray


def build_tree(words: Sequence[str], listed: np.ndarray | None = None) -> WordTree:
    """Make the tree.

    Args:
        words: Sorted, different, none empty.
        listed: bool [W], the words that `least` counts; None for all.
    """
    text = "".join(words).encode("utf-32-le", "surrogatepass")
    splits = np.zeros(len(words) + 1, np.int64)
    np.cumsum([len(word) for word in words], out=splits[1:])
    parent, char, depth, word = grow_tree(np.frombuffer(text, np.int32), splits)
    if listed is None:
        listed = np.ones(len(words), np.bool_)
    slots = np.zeros(1 << (2 * len(parent)).bit_length(), SLOT)
    least = np.zeros(len(parent), np.int32)
    _fill(parent, char, depth, word, listed, slots, least)
    return WordTree(*map(read_only, (slots, word, least)))


@jit
def _fill(parent, char, depth, word, listed, slots, least):
    """Enter nodes into the table, and find the shortest listed words below them."""
    for node in range(len(parent) - 1, 0, -1):
        if word[node] >= 0 and listed[word[node]]:
            least[node] = depth[node]
        above = parent[node]
        if least[node] > 0 and (least[above] == 0 or least[node] < least[above]):
            least[above] = least[node]
        enter(slots, parent[node], char[node], node)


@inlined
def enter(slots, parent, char, node):
    """Put a node into a table that lacks it."""
    mask = len(slots) - 1
    at = first_slot(parent, char, mask)
    while slots[at].node > 0:
        at = (at + 1) & mask
    slots[at].parent, slots[at].char, slots[at].node = parent, char, node


@inlined
def first_slot(parent, char, mask):
    """First slot to look for a pair of integers in a table of mask + 1 slots."""
    key = uint64(int64(parent)) * _PARENT + uint64(int64(char)) * _CHAR
    return int64((key ^ (key >> _HALF)) & uint64(mask))


@inlined
def find_child(tree, node, char):
    """The node behind a character, or -1."""
    mask = len(tree.slots) - 1
    at = first_slot(node, char, mask)
    while True:
        slot = tree.slots[at]
        if slot.node == 0:
            return int64(-1)
        if slot.parent == node and slot.char == char:
            return int64(slot.node)
        at = (at + 1) & mask


NO_HOTWORDS = build_tree([])


def split_hotwords(hotwords: Iterable[str] | None) -> tuple[str, ...]:
    """The words of a list of hotwords, sorted, each once; empty ones are left out.

    Raises:
        BoostError: It is a string, or has something else than strings.
    """
    if hotwords is None:
        return ()
    if isinstance(hotwords, str):
        raise BoostError(
            f"hotwords {hotwords!r}, expected a list of words: [{hotwords!r}]"
        )
    words: set[str] = set()
    for one in hotwords:
        if not isinstance(one, str):
            raise BoostError(f"hotword {one!r}, expected a string")
        words.update(one.split())
    return tuple(sorted(words))


def compile_hotwords(words: tuple[str, ...]) -> WordTree:
    """The tree of what `split_hotwords` gave."""
    return build_tree(words) if words else NO_HOTWORDS


class HotwordScorer:
    """Scorer of hotwords in Python, for whoever asks outside of a search.

    Args:
        words: Hotwords; phrases count word by word.
        weight: Nats of each.
    """

    def __init__(self, words: Iterable[str], weight: float) -> None:
        self._words = frozenset(words)
        self._weight = weight
        self._shortest: dict[str, int] = {}
        for word in sorted(self._words, key=len, reverse=True):
            for end in range(len(word) + 1):
                self._shortest[word[:end]] = len(word)

    @property
    def words(self) -> list[str]:
        """The hotwords, sorted."""
        return sorted(self._words)

    @property
    def weight(self) -> float:
        """Nats of each."""
        return self._weight

    @classmethod
    def build_scorer(
        cls,
        hotwords: Iterable[str] | None = None,
        weight: float = DEFAULT_HOTWORD_WEIGHT,
    ) -> HotwordScorer:
        """The scorer of a list of hotwords.

        Raises:
            BoostError: It is a string, or has something else than strings.
        """
        return cls(split_hotwords(hotwords), weight)

    def __contains__(self, item: str) -> bool:
        """Tell whether a hotword begins so."""
        return item in self._shortest

    def score(self, text: str) -> float:
        """Score the hotwords of a text."""
        return self._weight * sum(word in self._words for word in text.split())

    def score_partial_token(self, token: str) -> float:
        """Score the beginning of a hotword."""
        if token not in self:
            return 0.0
        return self._weight * len(token) / self._shortest[token]
