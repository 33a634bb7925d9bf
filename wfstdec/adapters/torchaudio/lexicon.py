"""Token lists, word lists and lexicons as flashlight-text reads them, and its trie.

    tokens = read_names("tokens.txt", "tokens")       # or a list of names
    tokens.index("|"), tokens.names[0], len(tokens)
    lexicon = read_spellings("lexicon.txt")           # word -> its spellings
    words = word_names(lexicon)                       # `<unk>` stands for all others
    trie, node_score = score_trie(spelt_entries(lexicon, words, tokens), first_scores)
    arc_kinds(trie), arc_gains(trie, word_gain, unk_gain)          # for the kernels

A line of a list is one entry; further names on it are other names of the same. A line
of a lexicon is a word and its tokens. ASCII white space alone separates.
"""

from __future__ import annotations

import math
import os
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from wfstdec.adapters.torchaudio.records import ENDS, GOES_ON
from wfstdec.errors import InputError, LexiconError, TokenTableError
from wfstdec.jit import jit
from wfstdec.text.files import read_lines
from wfstdec.trie.lexicon_trie import LexiconTrie, parents_of, trie_of

UNKNOWN = "<unk>"
"""Flashlight's name of the unknown word, whatever `unk_word` is."""
_SPACE = re.compile(r"[ \t\n\r\v\f]+")

Spellings = dict[str, list[list[str]]]
"""The spellings of each word; `<unk>` has none."""


@dataclass(frozen=True, eq=False)
class Names:
    """Names and their numbers.

    Attributes:
        names: The first name of each number.
        numbers: The number of each name.
        what: What the errors call the list.
        default: The number of names that are not there; None for an error.
    """

    names: tuple[str, ...]
    numbers: Mapping[str, int]
    what: str
    default: int | None = None

    def __len__(self) -> int:
        """Number of entries."""
        return len(self.names)

    def index(self, name: str, role: str = "", used_by: str = "") -> int:
        """The number of a name.

        Args:
            name: The name.
            role: What it is wanted for, such as an argument's name.
            used_by: The place of an error.

        Raises:
            TokenTableError: It is not there, and there is no default.
        """
        found = self.numbers.get(name, self.default)
        if found is None:
            place, role = f"{used_by}: " * bool(used_by), f"{role}=" * bool(role)
            raise TokenTableError(
                f"{place}{role}{name!r}, expected one of the {len(self)} {self.what}"
            )
        return found


def read_names(source: str | os.PathLike[str] | Sequence[str], what: str) -> Names:
    """Read a list of names, or take one.

    Args:
        source: A file, or the names.
        what: What the errors call the list.

    Raises:
        FormatError: The file cannot be read.
        TokenTableError: A name comes twice, or there is none.
    """
    if isinstance(source, str | os.PathLike):
        place = f"{os.fspath(source)}: "
        lines = [_fields(line) for line in read_lines(source)]
    else:
        place, lines = "", [[str(name)] for name in source]
    numbers: dict[str, int] = {}
    names: list[str] = []
    for line in filter(None, lines):
        for name in line:
            if name in numbers:
                raise TokenTableError(
                    f"{place}{name!r} comes twice, expected it once in the {what}"
                )
            numbers[name] = len(names)
        # Other names in a line stand for the same output, as in flashlight's files.
        names.append(line[0])
    if not names:
        raise TokenTableError(f"{place}no {what}, expected at least one")
    return Names(tuple(names), numbers, what)


def read_spellings(path: str | os.PathLike[str]) -> Spellings:
    """Read a lexicon; words in the order of the file, `<unk>` the last.

    Raises:
        FormatError: The file cannot be read.
        LexiconError: A line has a word and no tokens.
    """
    found: Spellings = {}
    for number, line in enumerate(read_lines(path), start=1):
        fields = _fields(line)
        if len(fields) == 1:
            raise LexiconError(
                f"{os.fspath(path)}:{number}: {fields[0]!r} has no tokens, expected a "
                "word and its tokens"
            )
        if fields:
            found.setdefault(fields[0], []).append(fields[1:])
    found.pop(UNKNOWN, None)
    found[UNKNOWN] = []
    return found


def word_names(lexicon: Iterable[str]) -> Names:
    """The words of a lexicon; `<unk>`, the last, stands for all others."""
    names = tuple(lexicon)
    numbers = {name: number for number, name in enumerate(names)}
    return Names(names, numbers, "words", numbers[UNKNOWN])


def spelt_entries(
    lexicon: Spellings, words: Names, tokens: Names
) -> list[tuple[tuple[int, ...], int, str]]:
    """All spellings as tokens, with word number and word; sorted.

    Raises:
        LexiconError: A word that is not among the words, or a token not in the table.
    """
    entries = []
    for word, spellings in filter(lambda item: item[1], lexicon.items()):
        try:
            number = words.index(word)
            for spelling in spellings:
                spelt = (tokens.index(token, used_by=repr(word)) for token in spelling)
                entries.append((tuple(spelt), number, word))
        except InputError as error:
            raise LexiconError(f"lexicon: {error.message}") from None
    return sorted(entries)


def _fields(line: str) -> list[str]:
    return [field for field in _SPACE.split(line) if field]


def score_trie(
    entries: Sequence[tuple[tuple[int, ...], int, str]],
    first_scores: Mapping[int, float],
) -> tuple[LexiconTrie, np.ndarray]:
    """Make the trie of spellings, "smeared" with the scores of words.

    Words that are spelt alike count together at their node, as natural logarithms
    (flashlight adds up log10 as if they were).

    Args:
        entries: Tokens, word and its name; sorted. One that comes twice counts twice.
        first_scores: The score of each word as the first one.

    Returns:
        The trie, and float32 [N], what may be hoped for below each node.
    """
    trie = trie_of([(spelt, word, 0.0) for spelt, word, _ in entries])
    scores = np.array([first_scores[word] for _, word, _ in entries], np.float32)
    node_score = _smear(trie.node_pron_splits, parents_of(trie), scores)
    return trie, node_score


def arc_gains(trie: LexiconTrie, word_gain: np.ndarray, unk_gain: float) -> np.ndarray:
    """The most that a word may add at the child of each arc, float64 [N - 1].

    Args:
        trie: The lexicon.
        word_gain: float64 [W], of each word.
        unk_gain: Of an unknown word, which may end where no other does.
    """
    prons = np.diff(trie.node_pron_splits)
    gains = np.where(prons > 0, -np.inf, unk_gain)
    nodes = np.repeat(np.arange(trie.num_nodes), prons)
    np.maximum.at(gains, nodes, word_gain[trie.pron_word])
    return gains[trie.child_node]


def arc_kinds(trie: LexiconTrie) -> np.ndarray:
    """Kinds of the child of each arc, `GOES_ON` and `ENDS`, uint8 [N - 1]."""
    goes_on = np.diff(trie.node_child_splits)[trie.child_node] > 0
    ends = np.diff(trie.node_pron_splits)[trie.child_node] > 0
    return (GOES_ON * goes_on + ENDS * ends).astype(np.uint8)


@jit
def _smear(pron_splits, parent, scores):
    """The scores of the words at each node, and of the best node below."""
    best = np.full(len(parent), -np.inf, np.float32)
    for node in range(len(parent)):
        for pron in range(pron_splits[node], pron_splits[node + 1]):
            low = float(min(best[node], scores[pron]))
            high = float(max(best[node], scores[pron]))
            if low > -np.inf:
                high += math.log1p(math.exp(low - high))
            best[node] = high
    for node in range(len(parent) - 1, 0, -1):
        best[parent[node]] = max(best[parent[node]], best[node])
    return best
