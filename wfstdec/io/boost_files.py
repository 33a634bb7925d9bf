r"""Reader of boost files: words or phrases, for all utterances or for some.

A file has one of two formats; in the second, an utterance's list replaces the common
one:

    quilter<TAB>4.0                                            the same for all
    {"id": "1272-128104-0000", "boosts": {"quilter": 4.0}}     JSON lines, one each
    {"boosts": {"quilter": 4.0}}                               for those without one

Bonuses are nats; missing ones follow from the list. Only a tab separates a number from
a word: `route 66` is a phrase.

    quilter
    {"boosts": ["quilter"]}     or     {"boosts": {"quilter": null, "hatton": 4.0}}

An OOV word with pronunciations is a line of JSON, where only `text` is required; with
an `id` it belongs to the list of that utterance:

    {"text": "fuchs", "pronunciations": ["f j u k s"], "bonus": 4.0, "id": "1272-0"}
    {"boosts": ["quilter", {"text": "fuchs", "pronunciations": ["f j u k s"]}]}

Lists of phrases have optional weights; without them bonuses follow from the list.

    mister quilter<TAB>0.5
    mister quilter
    {"phrases": {"mister quilter": 0.5}}     or     {"phrases": ["mister quilter"]}
"""

import json
import math
import re
import warnings
from dataclasses import dataclass, field
from functools import partial
from itertools import chain
from typing import Any

from wfstdec.boost.lists import BoostEntry, Numbers, first_of
from wfstdec.errors import BoostError, BoostWarning, FormatError, levels_inside
from wfstdec.text.files import PathLike, read_lines, reading

_WORDS, _PHRASES = ("boosts", "bonus"), ("phrases", "weight")
"""Key of a list in JSON lines, and name of its numbers."""
_ENDS_IN_NUMBER = re.compile(r" [-+]?\d*\.?\d+$")
_FIELDS = ("text", "pronunciations", "bonus")


@dataclass(frozen=True)
class BoostFile:
    """Content of a boost file: the lists of many utterances."""

    # Word to bonus (None follows from the list) or `BoostEntry`, or phrase to weight,
    # for the utterances without their own list
    common: Numbers = field(default_factory=dict)
    own: dict[str, Numbers] = field(default_factory=dict)  # Lists by utterance

    def of(self, utterance: str) -> Numbers | None:
        """Return the list of an utterance, or None if it is empty."""
        return self.own.get(utterance, self.common) or None

    @property
    def favoured(self) -> set[str]:
        """Return the texts that have a number above 0, or none, in any list."""
        pairs = chain(*(found.items() for found in (self.common, *self.own.values())))
        return {text for text, number in pairs if _favours(number)}


def read_boosts(path: PathLike) -> BoostFile:
    r"""Read `word<TAB>bonus` lines, or JSON lines; see the module's text.

    Blank lines and lines that begin with `#` and a space are left out.

    Warns:
        BoostWarning: Lines that end in a number and have no tab: these are phrases.
    """
    with reading(path, "list"):
        return _read(path, *_WORDS)


def read_phrase_weights(path: PathLike) -> BoostFile:
    r"""Read `phrase<TAB>weight` lines (weight optional), or JSON lines.

    Errors and warnings as in `read_boosts`.
    """
    with reading(path, "list"):
        return _read(path, *_PHRASES)


def _read(path: PathLike, key: str, number: str) -> BoostFile:
    lines = _numbered_lines(path)
    if _are_json(lines):
        return _read_json(lines, key, number)
    common: dict[str, Any] = {}
    unclear: list[str] = []
    for place, line in lines:
        text, *cells = line.rstrip("\n").split("\t")
        text, cells = " ".join(text.split()), [one.strip() for one in cells]
        numbers = [one for one in cells if one]
        if len(numbers) > 1 or not text:
            what = "word" if key == "boosts" else "phrase"
            raise BoostError(f"{place}: found {line!r}, expected '{what}<TAB>{number}'")
        _add(common, text, numbers[0] if numbers else None, place, number)
        if not cells and _ENDS_IN_NUMBER.search(text):
            unclear.append(f"{text!r} ({place})")
    if unclear:
        text = (
            f"{len(unclear)} phrases end in a number and have no {number}: "
            f"{first_of(unclear, str)}; expected a tab before the number if it is the "
            f"{number}, after it if it is not"
        )
        warnings.warn(text, BoostWarning, stacklevel=levels_inside())
    return BoostFile(common)


def boosts_of(given: Any, place: str = "boosts") -> Numbers:
    """Validate the boosts of one utterance, the value of `"boosts"` in a JSON line."""
    if not isinstance(given, dict | list):
        expected = "expected words, or word to bonus (nats)"
        raise BoostError(f"{place}: found {given!r}, {expected}")
    known: dict[str, Any] = {}
    for word, value in _listed(given, place, _WORDS[0]):
        _add(known, word, value, place, _WORDS[1])
    return known


def dump_boosts(boosts: Numbers) -> str:
    """Return boosts as JSON for `boosts_of`."""
    if not any(isinstance(one, BoostEntry) for one in boosts.values()):
        return json.dumps(dict(boosts), ensure_ascii=False)
    entries = (
        one if isinstance(one, BoostEntry) else BoostEntry(word, bonus=one)
        for word, one in boosts.items()
    )
    fields = ({name: getattr(one, name) for name in _FIELDS} for one in entries)
    known = [{k: v for k, v in one.items() if v not in (None, ())} for one in fields]
    return json.dumps(known, ensure_ascii=False)


def read_phrases(path: PathLike) -> list[str]:
    """Read phrases without their numbers, from any list of all utterances."""
    lines = _numbered_lines(path)
    if _are_json(lines):
        with reading(path, "list"):
            first = json.loads(lines[0][1])
            kind = _PHRASES if "phrases" in first else _WORDS
            lists = _read_json(lines, *kind)
        phrases = list(chain(lists.common, *lists.own.values()))
    else:
        phrases = [line.split("\t")[0] for _, line in lines]
    found = [" ".join(phrase.split()) for phrase in phrases if phrase.strip()]
    if not found:
        raise FormatError(f"{path}: no phrases, expected one a line")
    return list(dict.fromkeys(found))


def _numbered_lines(path: PathLike) -> list[tuple[str, str]]:
    return [
        (f"{path}:{number}", line)
        for number, line in enumerate(read_lines(path), 1)
        if line.strip() and not line.startswith("# ")
    ]


def _are_json(lines: list[tuple[str, str]]) -> bool:
    return bool(lines) and lines[0][1].lstrip().startswith("{")


def _read_json(lines: list[tuple[str, str]], key: str, number: str) -> BoostFile:
    lists: dict[str | None, dict[str, Any]] = {}
    whole: set[str | None] = set()
    for place, line in lines:
        found = _parse(line, place, key, number)
        utterance = found.get("id")
        known = lists.setdefault(utterance, {})
        if "text" in found:
            entry = _entry(found, place)
            _add(known, entry.text, entry, place, number)
            continue
        if utterance in whole:
            what = "the common list" if utterance is None else f"id {utterance!r}"
            raise BoostError(f"{place}: {what} a second time, expected once")
        whole.add(utterance)
        for word, value in _listed(found[key], place, key):
            _add(known, word, value, place, number)
    common = lists.pop(None, {})
    return BoostFile(common, {str(name): own for name, own in lists.items()})


def _parse(line: str, place: str, key: str, number: str) -> dict[str, Any]:
    """Return the object of a JSON line: a list, or an entry."""
    word = "word" if key == "boosts" else "phrase"
    expected = f'expected {{"id": utterance, "{key}": {{{word}: {number}}}}}'
    try:
        found = json.loads(line, object_pairs_hook=partial(unique_object, place))
    except json.JSONDecodeError as error:
        raise BoostError(f"{place}: {error.msg}, {expected}") from error
    if isinstance(found, dict) and isinstance(found.get("id"), str | None):
        is_entry = key == "boosts" and "text" in found
        known = {"id", *_FIELDS} if is_entry else {"id", key}
        of_list = is_entry or isinstance(found.get(key), dict | list)
        if of_list and found.keys() <= known:
            return found
    raise BoostError(f"{place}: found {line!r}, {expected}")


def unique_object(place: str, pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Return an object of JSON with distinct keys: `json` silently keeps the last."""
    found: dict[str, Any] = {}
    for key, value in pairs:
        if key in found:
            raise BoostError(f"{place}: {key!r} a second time, expected once")
        found[key] = value
    return found


def _listed(given: Any, place: str, key: str) -> list[tuple[str, Any]]:
    if isinstance(given, dict):
        return list(given.items())
    if key == "phrases":
        return [(one, None) for one in dict.fromkeys(map(str, given))]
    entries = [
        _entry(one, place) if isinstance(one, dict) else str(one) for one in given
    ]
    return [
        (one.text, one) if isinstance(one, BoostEntry) else (one, None)
        for one in dict.fromkeys(entries)
    ]


def _entry(found: dict[str, Any], place: str) -> BoostEntry:
    try:
        return BoostEntry(**{name: found[name] for name in _FIELDS if name in found})
    except (BoostError, TypeError) as error:
        raise BoostError(f"{place}: {error}") from None


def _favours(number: float | None | BoostEntry) -> bool:
    bonus = number.bonus if isinstance(number, BoostEntry) else number
    return bonus is None or bonus > 0


def _add(known: dict[str, Any], word: str, text: Any, place: str, name: str) -> None:
    if not word.split():
        raise BoostError(f"{place}: found {word!r} in the list, expected words")
    if word in known:
        raise BoostError(f"{place}: {word!r} a second time, expected once")
    if text is None or isinstance(text, BoostEntry):
        known[word] = text
        return
    try:
        value = float(text)
    except (TypeError, ValueError, OverflowError):
        value = math.nan
    # `float(True)` is 1.0, which is hardly intended.
    if not math.isfinite(value) or isinstance(text, bool):
        unit = " (nats)" if name == "bonus" else ""
        raise BoostError(
            f"{place}: the {name} of {word!r} is {text!r}, expected a number{unit}"
        )
    known[word] = value
