"""Boost lists: all public forms, and the validated one.

BoostList.of({"bartley": 4.0, "new york": None})
BoostList.weighted(["new  york"]).numbers     # {"new york": None}

Words of a list are matched to a word table by Unicode form, case and punctuation:

numbers, taken = WordMatcher(word_ids).match({"Bartley": 4.0})        # {"bartley": 4.0}
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, field
from functools import cached_property
from itertools import repeat
from operator import itemgetter
from typing import Any, TypeGuard
from unicodedata import category, normalize

import numpy as np

from wfstdec.boost.compiled import CompiledBoosts
from wfstdec.boost.g2p import names_of_tokens
from wfstdec.boost.phrases import MAX_WEIGHT, PhraseBoosts
from wfstdec.errors import BoostError, ShapeError
from wfstdec.text.display import short
from wfstdec.text.lexicon import show


@dataclass(frozen=True)
class BoostEntry:
    """Entry of a list: a word or phrase, its bonus, and a word's pronunciations.

    Attributes:
        text: The word or phrase, as it is output.
        pronunciations: In addition to the decoder's: each the names of tokens with
            spaces between them, or a sequence of names; without separators. They
            define an OOV word.
        bonus: Nats for each occurrence, above 0 favours; None follows from the list.

    Raises:
        BoostError: No text, a bonus that is not a number in range, an empty
            pronunciation, or pronunciations of several words.
    """

    text: str
    pronunciations: Sequence[str | Sequence[str]] = ()
    bonus: float | None = None

    def __post_init__(self) -> None:
        text = _checked_text(self.text, "word")
        if self.bonus is not None:
            _check_number(self.bonus, text, "bonus")
        given = () if self.pronunciations is None else self.pronunciations
        if isinstance(given, str) or not isinstance(given, Sequence):
            raise BoostError(
                f"pronunciations of {short(text)} are {short(given)}, expected a list "
                "of them"
            )
        names = tuple(dict.fromkeys(tuple(names_of_tokens(p, text)) for p in given))
        if () in names:
            raise BoostError(
                f"a pronunciation of {short(text)} is empty, expected tokens"
            )
        if names and " " in text:
            raise BoostError(
                f"{short(text)} has pronunciations and several words, expected an "
                "entry for each word, and one without pronunciations for the phrase"
            )
        object.__setattr__(self, "text", text)
        object.__setattr__(self, "pronunciations", names)


Numbers = Mapping[str, float | None | BoostEntry]
"""Words or phrases, and their bonuses or entries."""


@dataclass(frozen=True, eq=False)
class Boosts:
    """The boosts of an utterance.

    Attributes:
        words: Word or phrase to bonus, nats for each occurrence; above 0 favours. None,
            and all bonuses of a sequence, follow from the list (`boost.automatic`). A
            `BoostEntry` in either adds pronunciations of a word.
        phrases: From `PhraseCompiler.compile`; not with phrases among `words`.
    """

    words: Numbers | Sequence[str | BoostEntry] = field(default_factory=dict)
    phrases: PhraseBoosts | None = None


BoostsLike = Boosts | Numbers | Collection[Any] | PhraseBoosts | CompiledBoosts | None
"""Boosts of an utterance in any public form."""


_EXPECTED = (
    "expected a mapping from word to bonus, a sequence of words, compiled phrases, "
    "Boosts, or"
)


class BoostList:
    """Validated boost list: of bonuses, or of phrases and weights."""

    def __init__(
        self,
        listed: Any = (),
        phrases: PhraseBoosts | None = None,
        *,
        has_weights: bool = False,
    ) -> None:
        # Words and phrases, one space between words, and bonuses or weights; None
        # follows from the list.
        self.numbers: dict[str, Any] = {}
        # Names of tokens, for words with pronunciations
        self.pronunciations: dict[str, tuple[tuple[str, ...], ...]] = {}
        self.phrases = phrases  # not with phrases among `numbers`
        kind = ("phrase", "weight") if has_weights else ("word", "bonus")
        in_pairs = isinstance(listed, Mapping)
        for given, number in listed.items() if in_pairs else zip(listed, repeat(None)):
            self._add(given, number, *kind)
        several = [text for text in self.numbers if phrases and " " in text]
        if several:
            raise BoostError(
                f"boosts has compiled phrases and {min(several)!r}, expected either"
            )

    @classmethod
    def of(cls, given: BoostsLike) -> BoostList:
        """Check the list of an utterance in any form."""
        if given is None or isinstance(given, PhraseBoosts):
            return cls(phrases=given)
        if isinstance(given, Boosts):
            return cls(given.words, given.phrases)
        if isinstance(given, Mapping | Sequence | Set) and not isinstance(given, str):
            return cls(given)
        raise BoostError(f"boosts is a {type(given).__name__}, {_EXPECTED} None")

    @classmethod
    def weighted(cls, phrases: Mapping[str, float] | Iterable[str]) -> BoostList:
        """Check phrases and weights, None without one."""
        if isinstance(phrases, str):
            raise BoostError(
                f"phrases is the string {phrases!r}, expected a list of them"
            )
        return cls(phrases, has_weights=True)

    @property
    def content(self) -> tuple:
        """Content of the list, equal for equal lists in any order; hashable."""
        numbers = sorted(self.numbers.items(), key=itemgetter(0))
        given = sorted(self.pronunciations.items())
        return tuple(numbers), tuple(given), id(self.phrases)

    def _add(self, given: object, number: Any, what: str, name: str) -> None:
        more: Sequence = ()
        if _is_entry(given):
            if given.keys() - BoostEntry.__dataclass_fields__.keys():
                raise BoostError(
                    f"{short(given)}, expected text, pronunciations, bonus"
                )
            given = BoostEntry(**given)
        entry = number if isinstance(number, BoostEntry) else given
        if isinstance(entry, BoostEntry) and name == "bonus":
            if entry is not given and _checked_text(given, what) != entry.text:
                raise BoostError(
                    f"the entry of {given!r} is {entry!r}, expected its own"
                )
            text, number, more = entry.text, entry.bonus, entry.pronunciations
        else:
            text = _checked_text(given, what)
            if number is not None:
                _check_number(number, text, name)
        # A repeated entry with the same number counts once.
        known = self.numbers.setdefault(text, None if number is None else float(number))
        if known != number:
            raise BoostError(
                f"{text!r} has the {name}{'es' if name == 'bonus' else 's'} {known!r} "
                f"and {number!r}, expected one"
            )
        if more:
            prons = (*self.pronunciations.get(text, ()), *more)
            self.pronunciations[text] = tuple(dict.fromkeys(prons))


def is_one_list(boosts: BoostsLike | Sequence) -> bool:
    """Return whether boosts are one list for all utterances."""
    whole = Boosts | Mapping | Set | PhraseBoosts | CompiledBoosts
    if boosts is None or isinstance(boosts, whole):
        return True
    if isinstance(boosts, str) or not isinstance(boosts, Sequence):
        return False
    kinds = set(map(type, boosts))  # few, even for a long list
    is_entries = len(kinds) > 0 and all(issubclass(x, str | BoostEntry) for x in kinds)
    return is_entries or (dict in kinds and any(map(_is_entry, boosts)))


def _is_entry(given: Any) -> TypeGuard[dict[str, Any]]:
    return isinstance(given, dict) and isinstance(given.get("text"), str)


def of_each(boosts: BoostsLike | Sequence, n: int) -> Sequence[BoostsLike]:
    """Return boosts of N utterances, one list for each."""
    if not isinstance(boosts, Sequence) or isinstance(boosts, str):
        raise BoostError(
            f"boosts is a {type(boosts).__name__}, {_EXPECTED} a sequence of them"
        )
    if len(boosts) != n:
        raise ShapeError(f"{len(boosts)} boost lists, expected {n}, one per utterance")
    return boosts


def _checked_text(given: object, what: str) -> str:
    if not isinstance(given, str) or not given.strip():
        raise BoostError(f"boosted {what} {short(given)}, expected a string of words")
    return " ".join(given.split())


def _check_number(number: object, text: str, name: str) -> None:
    numeric = isinstance(number, int | float | np.number)
    is_bool = isinstance(number, bool)  # hardly meant as 1.0
    if is_bool or not (numeric and abs(number) <= MAX_WEIGHT):  # type: ignore[arg-type]
        unit = " of nats" if name == "bonus" else ""
        raise BoostError(
            f"{name} {short(number)} of {short(text)}, expected a number{unit}, "
            f"-{MAX_WEIGHT:g} to {MAX_WEIGHT:g}"
        )


_MAX_SHOWN = 10  # most words or phrases in a warning


class WordMatcher:
    """Matches words of a list with words of a table; none if `exact`."""

    def __init__(self, word_ids: Mapping[str, int], *, exact: bool = False) -> None:
        self._word_ids, self._exact = word_ids, exact

    def candidates(self, word: str) -> list[str]:
        """Return table words that differ in case, Unicode form or outer punctuation."""
        for text in (word, _stripped(word)):
            key = _folded(text)
            found = [key] if key in self._word_ids else []
            found += self._others.get(key, [])
            if found:
                same = [one for one in found if _nfc(one) == _nfc(text)]
                return sorted(same or found)
        return []

    def match(
        self, numbers: dict[str, Any], known: Collection[str] = ()
    ) -> tuple[dict[str, Any], dict[str, str]]:
        """Rewrite a list as in the table if one word matches; return also matches."""
        words = {word for text in numbers for word in text.split()}
        lacking = [w for w in words if w not in self._word_ids and w not in known]
        fits = {} if self._exact else {w: self.candidates(w) for w in lacking}
        taken = {word: found[0] for word, found in fits.items() if len(found) == 1}
        matched = dict(numbers) if taken else numbers
        for text in sorted(numbers) if taken else ():
            new = " ".join(taken.get(word, word) for word in text.split())
            if new != text:
                number = matched.pop(text)
                # The table's own form wins; otherwise the largest number.
                if new not in numbers and _rank(number) >= _rank(matched.get(new)):
                    matched[new] = number
        return matched, taken

    def shown(self, text: str) -> str:
        """Show a text without effect, with the words that it may match."""
        shown = []
        for word in text.split():
            if word not in self._word_ids:
                fits = ", ".join(map(repr, self.candidates(word))) or "no word"
                shown.append(("" if word == text else f"{word!r} ") + f"fits {fits}")
        return show(text) + (f" ({'; '.join(shown)})" if shown else "")

    @cached_property
    def _others(self) -> dict[str, list[str]]:
        """Words with a different normalised form, by that form."""
        others: dict[str, list[str]] = {}
        for word in self._word_ids:
            if (key := _folded(word)) != word:
                others.setdefault(key, []).append(word)
        return others


def taken_message(taken: Mapping[str, str]) -> str:
    """Name words that were matched with others."""

    def show_taken(word: str) -> str:
        is_form = _nfc(word) == _nfc(taken[word])
        return f"{word!r} as {taken[word]!r}" + " (Unicode form)" * is_form

    what = "boosted words are taken as the decoder's table writes them"
    return f"{len(taken)} {what}: {first_of(sorted(taken), show_taken)}"


def first_of(texts: Sequence[str], show: Callable[[str], str] = show) -> str:
    """Show the first few texts, and how many more there are."""
    over = len(texts) - _MAX_SHOWN
    more = f" and {over} more" if over > 0 else ""
    return ", ".join(map(show, texts[:_MAX_SHOWN])) + more


def _rank(number: float | None) -> float:
    return float("-inf") if number is None else number


def _nfc(text: str) -> str:
    return normalize("NFC", text)


def _folded(text: str) -> str:
    return text.lower() if text.isascii() else _nfc(_nfc(text).casefold())


def _stripped(text: str) -> str:
    kept = [i for i, char in enumerate(text) if category(char)[0] != "P"]
    return text[kept[0] : kept[-1] + 1] if kept else ""
