"""Match the words of boost lists to a word table: Unicode form, case, punctuation.

matcher = WordMatcher(word_ids)
matcher.candidates("Bartley,")                          # ["bartley"]
numbers, taken = matcher.match({"Bartley": 4.0})        # {"bartley": 4.0}
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from functools import cached_property
from typing import Any
from unicodedata import category, normalize

from wfstdec.text.lexicon import show

_MAX_SHOWN = 10
"""Words or phrases that a warning shows."""


class WordMatcher:
    """Finds the words of a table that words of a list may mean; none if `exact`."""

    def __init__(self, word_ids: Mapping[str, int], *, exact: bool = False) -> None:
        self._word_ids, self._exact = word_ids, exact

    def candidates(self, word: str) -> list[str]:
        """Words of the table that differ in case, Unicode form or outer punctuation."""
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
        """Write a list as the table does where one word fits; also the words taken."""
        words = {word for text in numbers for word in text.split()}
        lacking = [w for w in words if w not in self._word_ids and w not in known]
        fits = {} if self._exact else {w: self.candidates(w) for w in lacking}
        taken = {word: found[0] for word, found in fits.items() if len(found) == 1}
        matched = dict(numbers) if taken else numbers
        for text in sorted(numbers) if taken else ():
            new = " ".join(taken.get(word, word) for word in text.split())
            if new != text:
                number = matched.pop(text)
                # The entry as the table writes it wins; of others the largest number.
                if new not in numbers and _rank(number) >= _rank(matched.get(new)):
                    matched[new] = number
        return matched, taken

    def shown(self, text: str) -> str:
        """Show a text without effect, with the words that its words may mean."""
        shown = []
        for word in text.split():
            if word not in self._word_ids:
                fits = ", ".join(map(repr, self.candidates(word))) or "no word"
                shown.append(("" if word == text else f"{word!r} ") + f"fits {fits}")
        return show(text) + (f" ({'; '.join(shown)})" if shown else "")

    @cached_property
    def _others(self) -> dict[str, list[str]]:
        """Words that are not written as they are compared, by how they are."""
        others: dict[str, list[str]] = {}
        for word in self._word_ids:
            if (key := _folded(word)) != word:
                others.setdefault(key, []).append(word)
        return others


def taken_message(taken: Mapping[str, str]) -> str:
    """Name words that were taken for others."""

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
    """Leave out the punctuation around a word."""
    kept = [i for i, char in enumerate(text) if category(char)[0] != "P"]
    return text[kept[0] : kept[-1] + 1] if kept else ""
