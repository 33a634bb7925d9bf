"""Texts that differ only in how they are written, made alike.

    Normalizer(ignore_case=True).words(["Mister", "Quilter"])   # ('mister', 'quilter')
    Normalizer(normalize=True).words(["“Well-known”,", "it’s", "3.5"])
                                             # ('well', 'known', "it's", '3.5')

To ignore case is `str.casefold` of each word, which leaves the number of words. To
normalize is, word by word:

1. ’ ‘ ʼ ` and ´ become the apostrophe '
2. Unicode's NFKC (full-width forms, ligatures, composed accents), and case is ignored
3. an apostrophe between letters, and . , : between digits stay; so do accents and all
   other marks of scripts
4. soft hyphens and other marks of format go, but for the joiners of scripts
5. all other punctuation and symbols become spaces, hyphens and dashes too: one word may
   become several, or none

Words that are marks, such as `<unk>` or `[noise]`, stay as they are. Numbers are not
spelled out and no language has rules of its own.
"""

from __future__ import annotations

import functools
import unicodedata
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from wfstdec.text.lexicon import is_mark

_APOSTROPHES = str.maketrans(dict.fromkeys("\u2019\u2018\u02bc\u0060\u00b4", "'"))
_JOINERS = "\u200c\u200d"
_INSIDE_NUMBERS = ".,:"


@dataclass(frozen=True)
class Normalizer:
    """Rules by which words are compared; without any they are left as they are.

    Attributes:
        ignore_case: Words that differ in case are the same.
        normalize: Words that differ in punctuation, or in how Unicode writes them, are
            the same too; case is ignored.
    """

    ignore_case: bool = False
    normalize: bool = False

    @property
    def flag(self) -> str:
        """The flag of the command line; empty for none."""
        if self.normalize:
            return "--normalize"
        return "--ignore-case" if self.ignore_case else ""

    @property
    def stronger(self) -> tuple[Normalizer, ...]:
        """Rules that go further than these, the mildest first."""
        if self.normalize:
            return ()
        return (NORMALIZE,) if self.ignore_case else (IGNORE_CASE, NORMALIZE)

    def word(self, word: str) -> tuple[str, ...]:
        """Normalise a word: one word, or with `normalize` any number."""
        if self.normalize:
            return _normalized(word)
        return (word.casefold(),) if self.ignore_case else (word,)

    def words(self, words: Iterable[str]) -> tuple[str, ...]:
        """Normalise the words of a text."""
        if not self.flag:
            return tuple(words)
        return tuple(part for word in words for part in self.word(word))

    def texts(
        self, transcripts: Mapping[str, Iterable[str]]
    ) -> dict[str, tuple[str, ...]]:
        """Normalise the texts of many utterances."""
        return {name: self.words(words) for name, words in transcripts.items()}


AS_IT_STANDS = Normalizer()
IGNORE_CASE = Normalizer(ignore_case=True)
NORMALIZE = Normalizer(normalize=True)


@functools.lru_cache(1 << 16)
def _normalized(word: str) -> tuple[str, ...]:
    if is_mark(word):
        return (word,)
    text = unicodedata.normalize("NFKC", word.translate(_APOSTROPHES)).casefold()
    text = unicodedata.normalize("NFKC", text)  # case folding may undo some of it
    return tuple("".join(_character(text, i) for i in range(len(text))).split())


def _character(text: str, i: int) -> str:
    """Map a character to itself, a space, or nothing."""
    category = unicodedata.category(text[i])
    if category == "Cf":
        return text[i] if text[i] in _JOINERS else ""
    if category[0] not in "PSZC":
        return text[i]
    before, after = text[max(i - 1, 0) : i], text[i + 1 : i + 2]
    if text[i] == "'":
        return text[i] if _is_of_word(before) and _is_of_word(after) else " "
    if text[i] in _INSIDE_NUMBERS and before.isdigit() and after.isdigit():
        return text[i]
    return " "


def _is_of_word(character: str) -> bool:
    """Tell whether it is a letter, a digit or a mark on one."""
    return bool(character) and unicodedata.category(character)[0] in "LNM"
