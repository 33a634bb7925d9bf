"""Boost lists: every form in which users give them, and the one that is checked.

BoostList.of({"bartley": 4.0, "new york": None})
BoostList.of(["new york", BoostEntry("fuchs", ["f j u k s"], 4.0)])
BoostList.of(compiler.compile(["new york"]))
BoostList.weighted(["new  york"]).numbers     # {"new york": 1.0}
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from operator import itemgetter
from typing import Any

import numpy as np

from wfstdec.boost.compiled import CompiledBoosts
from wfstdec.boost.g2p import names_of_tokens
from wfstdec.boost.phrases import MAX_WEIGHT, PhraseBoosts
from wfstdec.errors import BoostError, ShapeError


@dataclass(frozen=True)
class BoostEntry:
    """A word of a list with what is known of it; a phrase has no pronunciations.

    Attributes:
        text: The word or phrase, as it is to be output.
        pronunciations: In addition to what the decoder knows: each the names of tokens
            with spaces between them, or a sequence of names; without separators. A
            word that the decoder lacks is added by them.
        bonus: Nats for each occurrence, above 0 favours; None follows from the list.

    Raises:
        BoostError: No text, a bonus that is no number in range, an empty
            pronunciation, or pronunciations of several words.
    """

    text: str
    pronunciations: Sequence[str | Sequence[str]] = ()
    bonus: float | None = None

    def __post_init__(self) -> None:
        text = _checked_text(self.text, "word")
        if self.bonus is not None:
            _check_number(self.bonus, text, "bonus")
        given = self.pronunciations or ()
        if isinstance(given, str) or not isinstance(given, Sequence):
            raise BoostError(
                f"pronunciations of {text!r} are {given!r}, expected a list of them"
            )
        names = tuple(dict.fromkeys(tuple(names_of_tokens(p, text)) for p in given))
        if () in names:
            raise BoostError(f"a pronunciation of {text!r} is empty, expected tokens")
        if names and " " in text:
            raise BoostError(
                f"{text!r} has pronunciations and several words, expected an entry for "
                "each word, and one without pronunciations for the phrase"
            )
        object.__setattr__(self, "text", text)
        object.__setattr__(self, "pronunciations", names)


Numbers = Mapping[str, float | None | BoostEntry]
"""Words or phrases, and their bonuses or all that is known of them."""


@dataclass(frozen=True, eq=False)
class Boosts:
    """The boosts of an utterance.

    Attributes:
        words: Word or phrase to bonus, nats for each occurrence; above 0 favours. None,
            and all bonuses of a sequence, follow from the list (`boost.automatic`). In
            either, a `BoostEntry` has the pronunciations of a word.
        phrases: From `PhraseCompiler.compile`; not with phrases among `words`.
    """

    words: Numbers | Sequence[str | BoostEntry] = field(default_factory=dict)
    phrases: PhraseBoosts | None = None


BoostsLike = (
    Boosts | Numbers | Sequence[str | BoostEntry] | PhraseBoosts | CompiledBoosts | None
)
"""Boosts of an utterance in any of their public spellings."""


_EXPECTED = (
    "expected a mapping from word to bonus, a sequence of words, compiled phrases, "
    "Boosts, or"
)


class BoostList:
    """A boost list, checked."""

    def __init__(
        self,
        items: Iterable[tuple[object, object]],
        phrases: PhraseBoosts | None = None,
        kind: tuple[str, str] = ("word", "bonus"),
    ) -> None:
        # Words and phrases, one space between words, and bonuses or weights; None
        # follows from the list.
        self.numbers: dict[str, Any] = {}
        # Names of tokens, of words that have some
        self.pronunciations: dict[str, tuple[tuple[str, ...], ...]] = {}
        self.phrases = phrases  # not with phrases among `numbers`
        for given, number in items:
            self._add(given, number, *kind)
        several = [text for text in self.numbers if phrases and " " in text]
        if several:
            raise BoostError(
                f"boosts has compiled phrases and {min(several)!r} among its words, "
                "expected phrases in one place"
            )

    @classmethod
    def of(cls, given: BoostsLike) -> BoostList:
        """Check the list of an utterance, in whatever form it is given."""
        if given is None or isinstance(given, PhraseBoosts):
            return cls((), given)
        if isinstance(given, Boosts):
            return cls(_items(given.words, None), given.phrases)
        if isinstance(given, Mapping | Sequence) and not isinstance(given, str):
            return cls(_items(given, None))
        raise BoostError(f"boosts is a {type(given).__name__}, {_EXPECTED} None")

    @classmethod
    def weighted(cls, phrases: Mapping[str, float] | Iterable[str]) -> BoostList:
        """Check phrases and weights, 1 where none are given."""
        if isinstance(phrases, str):
            raise BoostError(
                f"phrases is the string {phrases!r}, expected a list of them"
            )
        return cls(_items(phrases, 1.0), kind=("phrase", "weight"))

    @property
    def content(self) -> tuple:
        """Content of the list, equal for equal lists in any order; hashable."""
        numbers = sorted(self.numbers.items(), key=itemgetter(0))
        given = sorted(self.pronunciations.items())
        return tuple(numbers), tuple(given), id(self.phrases)

    def _add(self, given: object, number: object, what: str, name: str) -> None:
        """Add an entry, or a text and its number."""
        more: Sequence = ()
        entry = number if isinstance(number, BoostEntry) else given
        if isinstance(entry, BoostEntry) and name == "bonus":
            if entry is not given and _checked_text(given, what) != entry.text:
                raise BoostError(
                    f"the entry of {given!r} is {entry!r}, expected its own"
                )
            text, number, more = entry.text, entry.bonus, entry.pronunciations
        else:
            text = _checked_text(given, what)
            if number is not None or name == "weight":
                _check_number(number, text, name)
        # An entry twice with one number is no contradiction, and counts once.
        known = self.numbers.setdefault(text, None if number is None else float(number))  # type: ignore[arg-type]
        if known != number:
            names = "bonuses" if name == "bonus" else "weights"
            raise BoostError(
                f"{text!r} has the {names} {known!r} and {number!r}, expected one"
            )
        if more:
            given = (*self.pronunciations.get(text, ()), *more)
            self.pronunciations[text] = tuple(dict.fromkeys(given))


def is_one_list(boosts: BoostsLike | Sequence) -> bool:
    """Tell whether boosts are one list for all utterances."""
    whole = Boosts | Mapping | PhraseBoosts | CompiledBoosts
    if boosts is None or isinstance(boosts, whole):
        return True
    if isinstance(boosts, str) or not isinstance(boosts, Sequence):
        return False
    return len(boosts) > 0 and all(isinstance(one, str | BoostEntry) for one in boosts)


def of_each(boosts: BoostsLike | Sequence, n: int) -> Sequence[BoostsLike]:
    """Boosts of N utterances, one list for each."""
    if not isinstance(boosts, Sequence) or isinstance(boosts, str):
        raise BoostError(
            f"boosts is a {type(boosts).__name__}, {_EXPECTED} a sequence of them"
        )
    if len(boosts) != n:
        raise ShapeError(f"{len(boosts)} boost lists, expected {n}, one per utterance")
    return boosts  # type: ignore[return-value]


def _items(listed: Any, number: float | None) -> Iterable[tuple[object, object]]:
    """Texts or entries and their numbers; in a sequence all have this one."""
    if isinstance(listed, Mapping):
        return listed.items()
    return ((one, number) for one in listed)


def _checked_text(given: object, what: str) -> str:
    if not isinstance(given, str) or not given.strip():
        raise BoostError(f"boosted {what} {given!r}, expected a string of words")
    return " ".join(given.split())


def _check_number(number: object, text: str, name: str) -> None:
    numeric = isinstance(number, int | float | np.number)
    if not (numeric and abs(number) <= MAX_WEIGHT):  # type: ignore[arg-type]
        unit = " of nats" if name == "bonus" else ""
        raise BoostError(
            f"{name} {number!r} of {text!r}, expected a number{unit}, "
            f"-{MAX_WEIGHT:g} to {MAX_WEIGHT:g}"
        )
