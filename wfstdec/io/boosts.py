r"""Read boost lists: bonuses in nats for words, for all utterances or for some.

A file is of one of two forms; in the second, an own list replaces the common one:

    quilter<TAB>4.0                                            the same for all
    {"id": "1272-128104-0000", "boosts": {"quilter": 4.0}}     JSON lines, one each
    {"boosts": {"quilter": 4.0}}                               for those without one
"""

from __future__ import annotations

import json
import math
import os
from dataclasses import dataclass, field
from typing import Any

from wfstdec.errors import BoostError
from wfstdec.textfile import read_lines


@dataclass(frozen=True)
class BoostLists:
    """Boost lists of many utterances.

    Attributes:
        common: Word to bonus, for the utterances that have no list of their own.
        own: The lists of their own, by utterance.
    """

    common: dict[str, float] = field(default_factory=dict)
    own: dict[str, dict[str, float]] = field(default_factory=dict)

    def of(self, utterance: str) -> dict[str, float] | None:
        """The list of an utterance, or None where it is empty."""
        return self.own.get(utterance, self.common) or None


def read_boosts(path: str | os.PathLike[str]) -> BoostLists:
    r"""Read `word<TAB>bonus` lines (spaces do as well), or JSON lines.

    Blank lines and lines that begin with `# ` are left out.

    Raises:
        BoostError: A malformed line, a bonus that is no finite number, or a word or
            an utterance twice.
        FormatError: The file cannot be read.
    """
    lines = [
        (f"{path}:{number}", line)
        for number, line in enumerate(read_lines(path), 1)
        if line.strip() and not line.startswith("# ")
    ]
    if lines and lines[0][1].lstrip().startswith("{"):
        return _read_json(lines)
    common: dict[str, float] = {}
    for place, line in lines:
        word, *bonus = line.split()
        if len(bonus) != 1:
            raise BoostError(f"{place}: found {line!r}, expected 'word<TAB>bonus'")
        if word in common:
            raise BoostError(f"{place}: {word!r} a second time, expected once")
        common[word] = _bonus(word, bonus[0], place)
    return BoostLists(common)


def _read_json(lines: list[tuple[str, str]]) -> BoostLists:
    lists: dict[str | None, dict[str, float]] = {}
    for place, line in lines:
        utterance, boosts = _parse_object(line, place)
        if utterance in lists:
            what = "the common list" if utterance is None else f"id {utterance!r}"
            raise BoostError(f"{place}: {what} a second time, expected once")
        lists[utterance] = {
            word: _bonus(word, bonus, place) for word, bonus in boosts.items()
        }
    common = lists.pop(None, {})
    return BoostLists(common, {str(key): value for key, value in lists.items()})


def _parse_object(line: str, place: str) -> tuple[str | None, dict[str, Any]]:
    """The `id` (None where left out) and the `boosts` of a JSON line."""
    expected = 'expected {"id": utterance, "boosts": {word: bonus}}'
    try:
        found = json.loads(line)
    except json.JSONDecodeError as error:
        raise BoostError(f"{place}: {error.msg}, {expected}") from error
    if not isinstance(found, dict) or not found.keys() <= {"id", "boosts"}:
        raise BoostError(f"{place}: found {line!r}, {expected}")
    utterance, boosts = found.get("id"), found.get("boosts")
    if not isinstance(utterance, str | None) or not isinstance(boosts, dict):
        raise BoostError(f"{place}: found {line!r}, {expected}")
    return utterance, boosts


def _bonus(word: str, text: Any, place: str) -> float:
    try:
        bonus = float(text)
    except (TypeError, ValueError):
        bonus = math.nan
    if not math.isfinite(bonus) or isinstance(text, bool):
        raise BoostError(
            f"{place}: the bonus of {word!r} is {text!r}, expected a number (nats)"
        )
    return bonus
