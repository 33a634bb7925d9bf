"""Boosts of a request: parsed, and checked against the limits.

    requested_boosts(keyterms=["new york"], limits=limits)       {"new york": None}
    requested_boosts(keywords=["quilter:4"], limits=limits)      {"quilter": 4.0}
    requested_boosts(boosts={"quilter": 4}, limits=limits)       as in a line of a file
    requested_boosts(boosts=["quilter", {"text": "fuchs", ...}], limits=limits)

A word may come from several parameters, with one bonus; words of a prompt have none.
Nothing is compiled here: unknown words are reported later, by a warning.
"""

import math
from collections.abc import Iterator, Sequence
from itertools import chain
from typing import Any

from wfstdec.boost.lists import BoostEntry, BoostsLike
from wfstdec.errors import BoostError, OptionError
from wfstdec.server.limits import Limits
from wfstdec.text.display import short


def requested_boosts(
    *,
    keyterms: Sequence[str] = (),
    keywords: Sequence[str] = (),
    boosts: Any = None,
    prompt: Sequence[str] = (),
    limits: Limits,
) -> BoostsLike:
    """Return a request's boost list; `keywords` are `word` or `word:bonus`, in nats."""
    found: dict[str, float | None | BoostEntry] = {}
    entries = 0
    for one in chain(
        map(BoostEntry, _strings(keyterms, "keyterms")),
        map(_keyword, _strings(keywords, "keywords")),
        _listed(boosts),
    ):
        text, prons = one.text, one.pronunciations
        entries += 1 + len(prons)
        if entries > limits.boosts:
            raise OptionError(
                f"more than {limits.boosts} boosts and pronunciations, expected "
                f"{limits.boosts} or fewer; {limits.remedy('boosts')}"
            )
        longest = max(len(text), *map(len, prons), 0)
        if longest > limits.boost_chars:
            raise OptionError(
                f"boost {short(text)} has {longest} characters or tokens, expected at "
                f"most {limits.boost_chars}; {limits.remedy('boost_chars')}"
            )
        # JSON may hold halves of surrogate pairs, which no reply can be encoded with.
        if any("\ud800" <= char <= "\udfff" for char in chain(text, *chain(*prons))):
            raise BoostError(
                f"boost {short(text)} has half a surrogate pair, expected Unicode text"
            )
        bonus = one if prons else one.bonus
        known = found.setdefault(text, bonus)
        if known != bonus:
            shown = " and ".join(
                "none" if one is None else short(one) for one in (known, bonus)
            )
            raise BoostError(f"{short(text)} has the bonuses {shown}, expected one")
    # An explicit entry keeps its own bonus.
    return {**dict.fromkeys(prompt), **found} or None


def _strings(given: Any, name: str) -> Sequence[str]:
    if isinstance(given, str) or not isinstance(given, Sequence):
        raise BoostError(f"{name} is {short(given)}, expected a list of strings")
    return given


def _keyword(given: Any) -> BoostEntry:
    entry = BoostEntry(given)
    word, colon, number = entry.text.rpartition(":")
    if not colon:
        return entry
    try:
        bonus = float(number)
    except ValueError:
        bonus = math.nan
    if not word.strip() or math.isnan(bonus):
        raise BoostError(
            f"keyword {short(given)}, expected 'word' or 'word:bonus' with a number "
            "of nats"
        )
    return BoostEntry(word, bonus=bonus)


def _listed(given: Any) -> Iterator[BoostEntry]:
    if isinstance(given, dict) and given.keys() == {"boosts"}:
        within = given["boosts"]
        given = within if isinstance(within, dict | list) else given
    if isinstance(given, dict):
        yield from (BoostEntry(word, bonus=one) for word, one in given.items())
    elif isinstance(given, list | tuple):
        for one in given:
            if not isinstance(one, dict):
                yield BoostEntry(one)
            elif "text" in one and one.keys() <= {"text", "pronunciations", "bonus"}:
                yield BoostEntry(**one)
            else:
                raise BoostError(
                    f"boost {short(one)}, expected 'text', and 'pronunciations' or "
                    "'bonus'"
                )
    elif given is not None:
        raise BoostError(
            f"boosts is {short(given)}, expected {{word: bonus}}, or a list of words "
            "and {text, pronunciations, bonus}"
        )
