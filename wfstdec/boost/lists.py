"""Boost lists as users give them: words and phrases, bonuses, pronunciations; checked.

read_entries({"bartley": 4.0, "new york": None})
read_entries(["new york", BoostEntry("fuchs", ["f j u k s"], 4.0)])
checked_weights(["new  york"])                 # {"new york": 1.0}
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from wfstdec.boost.words import check_bonus
from wfstdec.errors import BoostError

MAX_WEIGHT = 1e6
"""A weight may not be larger, either way: so that no sum of costs reaches infinity."""


def checked_weights(phrases: Mapping[str, float] | Iterable[str]) -> dict[str, float]:
    """Phrases with one space between their words, and their weights.

    Args:
        phrases: Phrase to weight, or phrases of weight 1.

    Raises:
        BoostError: A phrase is no string or empty, has two weights, or a weight is no
            number.
    """
    if isinstance(phrases, str):
        raise BoostError(f"phrases is the string {phrases!r}, expected a list of them")
    if not isinstance(phrases, Mapping):
        phrases = dict.fromkeys(phrases, 1.0)
    found: dict[str, float] = {}
    for phrase, weight in phrases.items():
        if not isinstance(phrase, str) or not phrase.strip():
            raise BoostError(f"boosted phrase {phrase!r}, expected a string of words")
        numeric = isinstance(weight, int | float | np.number)
        if not numeric or not math.isfinite(weight) or abs(weight) > MAX_WEIGHT:
            raise BoostError(
                f"weight {weight!r} of {phrase!r}, expected a number, "
                f"-{MAX_WEIGHT:g} to {MAX_WEIGHT:g}"
            )
        text = " ".join(phrase.split())
        if found.get(text, weight) != weight:
            raise BoostError(
                f"{text!r} has the weights {found[text]!r} and {weight!r}, expected one"
            )
        found[text] = float(weight)
    return found


Said = tuple[str, ...]
"""The names of the tokens of a pronunciation."""


@dataclass(frozen=True)
class BoostEntry:
    """A word of a list with what is known of it; a phrase has no pronunciations.

    Attributes:
        text: The word or phrase, as it is to come out.
        pronunciations: How the word is said, besides what the decoder knows: each the
            names of tokens with spaces between them, or a sequence of names; without
            separators. A word that the decoder does not have is added by them.
        bonus: Nats for each time it is said, above 0 favours; None follows from the
            list.

    Raises:
        BoostError: No text, a bonus that is no number in range, an empty
            pronunciation, or pronunciations of several words.
    """

    text: str
    pronunciations: Sequence[str | Sequence[str]] = ()
    bonus: float | None = None

    def __post_init__(self) -> None:
        text = _checked_text(self.text)
        if self.bonus is not None:
            check_bonus(text, self.bonus)
        said = self.pronunciations or ()
        if isinstance(said, str) or not isinstance(said, Sequence):
            raise BoostError(
                f"pronunciations of {text!r} are {said!r}, expected a list of them"
            )
        names = tuple(dict.fromkeys(_names_in(one, text) for one in said))
        if names and " " in text:
            raise BoostError(
                f"{text!r} has pronunciations and several words, expected an entry for "
                "each word, and one without pronunciations for the phrase"
            )
        object.__setattr__(self, "text", text)
        object.__setattr__(self, "pronunciations", names)

    def __hash__(self) -> int:
        return hash((self.text, self.pronunciations, self.bonus))


Numbers = dict[str, float | None]
"""Words and phrases, and their bonuses; None follows from the list."""
Listed = Mapping[str, float | None | BoostEntry] | Sequence[str | BoostEntry]
"""A list as users give it."""


class Entries(NamedTuple):
    """A checked list.

    Attributes:
        numbers: Texts with one space between their words, and their bonuses.
        said: The pronunciations given for some of these words.
    """

    numbers: Numbers
    said: dict[str, tuple[Said, ...]]


def read_entries(listed: Listed) -> Entries:
    """A list as users give it, checked.

    Raises:
        BoostError: What is no word, a bonus that is no number in range, or two bonuses
            for the same text.
    """
    numbers: Numbers = {}
    said: dict[str, tuple[Said, ...]] = {}
    for given, bonus in _pairs(listed):
        text, bonus, pronunciations = _parts(given, bonus)
        if numbers.get(text, bonus) != bonus:
            raise BoostError(
                f"{text!r} has the bonuses {numbers[text]!r} and {bonus!r}, expected "
                "one"
            )
        numbers[text] = bonus
        if pronunciations:
            known = said.get(text, ())
            said[text] = tuple(dict.fromkeys((*known, *pronunciations)))
    return Entries(numbers, said)


def _pairs(listed: Listed) -> Iterator[tuple[object, object]]:
    if isinstance(listed, Mapping):
        yield from listed.items()
    else:
        yield from ((one, None) for one in listed)


def _parts(given: object, bonus: object) -> tuple[str, float | None, tuple[Said, ...]]:
    """Text, bonus and pronunciations of what stands in a list."""
    entry = bonus if isinstance(bonus, BoostEntry) else given
    if isinstance(entry, BoostEntry):
        if entry is not given and _checked_text(given) != entry.text:
            raise BoostError(f"the entry of {given!r} is {entry!r}, expected its own")
        return entry.text, entry.bonus, entry.pronunciations  # type: ignore[return-value]
    text = _checked_text(given)
    if bonus is not None:
        check_bonus(text, bonus)
    return text, bonus, ()  # type: ignore[return-value]


def _checked_text(given: object) -> str:
    if not isinstance(given, str) or not given.strip():
        raise BoostError(f"boosted word {given!r}, expected a string of words")
    return " ".join(given.split())


def _names_in(said: object, text: str) -> Said:
    names = said.split() if isinstance(said, str) else said
    if not isinstance(names, Sequence) or not all(isinstance(n, str) for n in names):
        raise BoostError(
            f"a pronunciation of {text!r} is {said!r}, expected the names of tokens"
        )
    if not names:
        raise BoostError(f"a pronunciation of {text!r} is empty, expected tokens")
    return tuple(names)
