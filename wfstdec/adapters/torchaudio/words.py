"""Token and word lists and lexicons as flashlight-text reads them.

    tokens = read_names("tokens.txt", "tokens")       # or a list of names
    tokens.index("|"), tokens.names[0], len(tokens)
    lexicon = read_spellings("lexicon.txt")           # word -> its spellings
    words = word_names(lexicon)                       # `<unk>` stands for all others

A line of a list is one entry; further names on it are other names of the same. A line
of a lexicon is a word and its tokens. ASCII white space alone separates.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from wfstdec.errors import InputError, LexiconError, TokenTableError
from wfstdec.text.files import read_lines

UNKNOWN = "<unk>"
"""What flashlight calls the unknown word, whatever `unk_word` is."""
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
        """How many numbers there are."""
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
