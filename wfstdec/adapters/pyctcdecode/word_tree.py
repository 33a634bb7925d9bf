"""Words as a tree of characters in arrays: the known ones, and hotwords.

tree = build_tree(["ab", "abc"])
node = find_child(tree, 0, ord("a"))        # -1 where no word goes on so
tree.word[node], tree.least[node]           # -1 and 2: 'ab' is the shortest below

Hotwords count as pyctcdecode counts them, by word and by the beginning of one:

    tree = build_tree(split_hotwords(["new york", "kensho"]))          # three words

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
from wfstdec.jit.records import record
from wfstdec.jit.trees import grow_tree

_PARENT, _CHAR = uint64(0x9E3779B97F4A7C15), uint64(0xC2B2AE3D27D4EB4F)
_HALF = uint64(32)


SLOT = record("i4 parent char node")
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
    splits, chars = code_points(words)
    parent, char, depth, word = grow_tree(chars, splits)
    if listed is None:
        listed = np.ones(len(words), np.bool_)
    slots = np.zeros(1 << (2 * len(parent)).bit_length(), SLOT)
    least = np.zeros(len(parent), np.int32)
    _fill(parent, char, depth, word, listed, slots, least)
    return WordTree(*map(read_only, (slots, word, least)))


def code_points(texts: Sequence[str]) -> tuple[np.ndarray, np.ndarray]:
    """Splits of texts, int64 [N + 1]; the code points of all, int32."""
    splits = np.zeros(len(texts) + 1, np.int64)
    np.cumsum([len(text) for text in texts], out=splits[1:])
    joined = "".join(texts).encode("utf-32-le", "surrogatepass")
    return splits, np.frombuffer(joined, np.int32)


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
    slot = slot_of(slots, parent, char)
    slot.parent, slot.char, slot.node = parent, char, node


@inlined
def slot_of(slots, parent, char):
    """The slot of the node behind a character, or the empty one where it belongs."""
    mask = len(slots) - 1
    key = uint64(int64(parent)) * _PARENT + uint64(int64(char)) * _CHAR
    at = int64((key ^ (key >> _HALF)) & uint64(mask))
    while slots[at].node != 0:
        if slots[at].parent == parent and slots[at].char == char:
            break
        at = (at + 1) & mask
    return slots[at]


@inlined
def find_child(tree, node, char):
    """The node behind a character, or -1."""
    child = int64(slot_of(tree.slots, node, char).node)
    return child if child != 0 else int64(-1)


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


class HotwordScorer:
    """Scorer of hotwords in Python, for whoever asks outside of a search.

    Args:
        words: Hotwords; phrases count word by word.
        weight: Nats of each.

    Attributes:
        words: The hotwords, sorted.
        weight: Nats of each.
    """

    def __init__(self, words: Iterable[str], weight: float) -> None:
        self._words = frozenset(words)
        self.words, self.weight = sorted(self._words), weight
        self._shortest: dict[str, int] = {}
        for word in sorted(self._words, key=len, reverse=True):
            for end in range(len(word) + 1):
                self._shortest[word[:end]] = len(word)

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
        return self.weight * sum(word in self._words for word in text.split())

    def score_partial_token(self, token: str) -> float:
        """Score the beginning of a hotword."""
        if token not in self:
            return 0.0
        return self.weight * len(token) / self._shortest[token]
