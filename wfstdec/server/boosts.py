"""Boosts that a request asks for: read from its words, and held to the limits.

    requested_boosts(keyterms=["new york"], limits=limits)       {"new york": None}
    requested_boosts(keywords=["quilter:4"], limits=limits)      {"quilter": 4.0}
    requested_boosts(boosts={"quilter": 4}, limits=limits)       as in a line of a file
    requested_boosts(boosts=["quilter", {"text": "fuchs", ...}], limits=limits)

A word may come in more than one way, with one bonus. Nothing is compiled here: that a
word is unknown is found later, and is a warning.
"""

import math
import reprlib
from collections.abc import Callable, Iterator, Sequence
from itertools import chain
from typing import Any

from wfstdec.boost.lists import BoostEntry, BoostsLike
from wfstdec.boost.phrases import MAX_WEIGHT
from wfstdec.errors import BoostError, OptionError
from wfstdec.server.limits import Limits

Item = tuple[str, float | None | BoostEntry]
"""A text, and its bonus (None follows from the list) or all that is known of it."""

_REPR = reprlib.Repr()
_REPR.maxstring = _REPR.maxother = _REPR.maxlong = 60
_short = _REPR.repr  # a value of any size in a line


def requested_boosts(
    *,
    keyterms: Sequence[str] = (),
    keywords: Sequence[str] = (),
    boosts: Any = None,
    limits: Limits,
) -> BoostsLike:
    """Make the boost list of a request; `keywords` are `word` or `word:bonus`, nats."""
    found: dict[str, float | None | BoostEntry] = {}
    entries = 0
    for text, bonus in chain(
        _items(keyterms, "keyterm", lambda given: (_text(given, "keyterm"), None)),
        _items(keywords, "keyword", _keyword),
        _listed(boosts),
    ):
        prons = bonus.pronunciations if isinstance(bonus, BoostEntry) else ()
        entries += 1 + len(prons)
        if entries > limits.boosts:
            raise OptionError(
                f"more than {limits.boosts} boosts and pronunciations, expected "
                f"{limits.boosts} or fewer; {limits.remedy('boosts')}"
            )
        longest = max(len(text), *map(len, prons), 0)
        if longest > limits.boost_chars:
            raise OptionError(
                f"boost {_short(text)} has {longest} characters or tokens, expected at "
                f"most {limits.boost_chars}; {limits.remedy('boost_chars')}"
            )
        known = found.setdefault(text, bonus)
        if known != bonus:
            shown = " and ".join(
                "none" if one is None else reprlib.repr(one) for one in (known, bonus)
            )
            raise BoostError(f"{_short(text)} has the bonuses {shown}, expected one")
    return found or None


def _items(given: Any, name: str, read: Callable[[Any], Item]) -> Iterator[Item]:
    """Read a list of strings one by one."""
    if isinstance(given, str) or not isinstance(given, Sequence):
        raise BoostError(f"{name}s is {_short(given)}, expected a list of strings")
    return (read(one) for one in given)


def _keyword(given: Any) -> Item:
    """Split `word:bonus` at its last colon."""
    text = _text(given, "keyword")
    word, colon, number = text.rpartition(":")
    if not colon:
        return text, None
    try:
        bonus = float(number)
    except ValueError:
        bonus = math.nan
    if not word.strip() or math.isnan(bonus):
        raise BoostError(
            f"keyword {_short(given)}, expected 'word' or 'word:bonus' with a number "
            "of nats"
        )
    return word.strip(), _bonus(bonus, word.strip())


def _listed(given: Any) -> Iterator[Item]:
    """Read parsed JSON, as a line of a boost file has it."""
    if isinstance(given, dict) and given.keys() == {"boosts"}:
        within = given["boosts"]
        given = within if isinstance(within, dict | list) else given
    if isinstance(given, dict):
        for key, value in given.items():
            text = _text(key, "word")
            yield text, _bonus(value, text)
    elif isinstance(given, list | tuple):
        for one in given:
            yield _entry(one) if isinstance(one, dict) else (_text(one, "word"), None)
    elif given is not None:
        raise BoostError(
            f"boosts is {_short(given)}, expected {{word: bonus}}, or a list of words "
            "and {text, pronunciations, bonus}"
        )


def _entry(given: dict[str, Any]) -> Item:
    """Read a word with what is known of it."""
    if "text" not in given or not given.keys() <= {"text", "pronunciations", "bonus"}:
        raise BoostError(
            f"boost {_short(given)}, expected 'text', and 'pronunciations' or 'bonus'"
        )
    text = _text(given["text"], "word")
    bonus, prons = _bonus(given.get("bonus"), text), given.get("pronunciations")
    if prons is None:
        return text, bonus
    if not isinstance(prons, list):
        raise BoostError(
            f"pronunciations of {_short(text)} are {_short(prons)}, expected a list of "
            "strings of tokens"
        )
    for one in prons:
        names = one if isinstance(one, list) else [one]
        if not all(isinstance(name, str) and _is_text(name) for name in names):
            raise BoostError(
                f"a pronunciation of {_short(text)} is {_short(one)}, expected the "
                "names of tokens"
            )
    return text, BoostEntry(text, prons, bonus) if prons else bonus


def _text(given: Any, what: str) -> str:
    """Check a word or phrase; with one space between its words."""
    if not isinstance(given, str) or not given.strip():
        raise BoostError(f"{what} {_short(given)}, expected a string of words")
    if not _is_text(given):
        raise BoostError(
            f"{what} {_short(given)} has half a surrogate pair, expected Unicode text"
        )
    return " ".join(given.split())


def _is_text(given: str) -> bool:
    """Tell whether it can be written: JSON may hold halves of surrogate pairs."""
    return not any("\ud800" <= char <= "\udfff" for char in given)


def _bonus(given: Any, text: str) -> float | None:
    """Check a bonus; None follows from the list."""
    if given is None:
        return None
    number = isinstance(given, int | float) and not isinstance(given, bool)
    if not number or not abs(given) <= MAX_WEIGHT:
        raise BoostError(
            f"bonus {_short(given)} of {_short(text)}, expected a number of nats, "
            f"-{MAX_WEIGHT:g} to {MAX_WEIGHT:g}, or null"
        )
    return float(given)
