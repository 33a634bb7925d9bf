"""Requests for a transcription: fields of a form to what is asked, checked.

OpenAI's fields that change nothing here are accepted; so are others, which warnings
name, since a misspelt one would be ignored without a word.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from wfstdec.errors import InputError
from wfstdec.server.boosts import requested_boosts
from wfstdec.server.limits import Limits
from wfstdec.server.problems import Problem

_Value = TypeVar("_Value")

FORMATS = ("json", "text", "srt", "verbose_json", "vtt")
_STREAMED = ("json", "text", "verbose_json")
_MOST_HYPOTHESES = 100
_LISTS = (
    "keywords",
    "timestamp_granularities",
    "include",
    "languages",
    "known_speaker_names",
    "known_speaker_references",
)
"""Fields that may come several times, each an item."""
_ACCEPTED = ("model", "prompt", "chunking_strategy", *_LISTS)
"""Fields of OpenAI's that are not looked into, or only where they are used."""


@dataclass(frozen=True)
class TranscriptionRequest:
    """Request of a client on what to make of its file.

    Attributes:
        format: One of `FORMATS`.
        stream: Whether words are to come while the file is decoded.
        language: What the client says the language is; None where it does not.
        nbest: How many hypotheses.
        confidence: Whether words need confidences.
        channel: The channel to take; None mixes all.
        allow_cut: Whether to take what is there of a file that was cut short.
        keywords: Words and phrases to favour.
        boosts: The boost list, still as JSON.
        unknown: Names of fields that mean nothing here.
    """

    format: str = "json"
    stream: bool = False
    language: str | None = None
    nbest: int = 1
    confidence: bool = False
    channel: int | None = None
    allow_cut: bool = False
    keywords: Sequence[str] = ()
    boosts: str | None = None
    unknown: Sequence[str] = ()

    def boost_list(self, limits: Limits) -> Any:
        """Read the boosts, which takes a while if they are many."""
        parsed = None
        if self.boosts is not None:
            try:
                parsed = json.loads(self.boosts, object_pairs_hook=_unlike)
            except (ValueError, RecursionError) as error:
                raise Problem(
                    400,
                    f"boosts are no JSON ({error}), expected "
                    '{"word": bonus} or ["word", ...]',
                    "boosts",
                ) from None
        try:
            return requested_boosts(
                keyterms=self.keywords, boosts=parsed, limits=limits
            )
        except InputError as error:
            param = "keywords" if parsed is None else "boosts"
            raise Problem(400, str(error), param) from error


def read_request(
    fields: Sequence[tuple[str, str]], *, confidence: bool = False
) -> TranscriptionRequest:
    """Check the fields of a form.

    `fields`: names and values; lists have `[]` behind the name, or not.
    """
    given: dict[str, list[str]] = {}
    for name, value in fields:
        # Clients write `name[]`, `name[0]` or the bare name for lists.
        given.setdefault(name.partition("[")[0], []).append(value)
    known = _Fields(given)
    known.choices("timestamp_granularities", ("word", "segment"))
    known.number("temperature", float, "0 to 1", lambda x: 0 <= x <= 1)
    format = known.choice("response_format", FORMATS, "json")
    stream = known.flag("stream")
    if stream and format not in _STREAMED:
        raise _problem("response_format", format, _STREAMED, " with stream=true")
    include = known.items("include")
    return TranscriptionRequest(
        format=format,
        stream=stream,
        language=known.one("language"),
        nbest=known.number(
            "nbest",
            int,
            f"1 to {_MOST_HYPOTHESES}",
            lambda x: 1 <= x <= _MOST_HYPOTHESES,
        )
        or 1,
        confidence=known.flag("confidence", confidence or "logprobs" in include),
        channel=known.number("channel", int, "0 or more", lambda x: x >= 0),
        allow_cut=known.flag("allow_cut"),
        keywords=tuple(known.items("keywords")),
        boosts=known.one("boosts"),
        unknown=tuple(sorted(given.keys() - known.asked - {*_ACCEPTED})),
    )


class _Fields:
    """Values by field; remembers which were asked for."""

    def __init__(self, given: Mapping[str, list[str]]) -> None:
        self._given = given
        self.asked: set[str] = set()

    def items(self, name: str) -> list[str]:
        """Values of a list."""
        self.asked.add(name)
        return self._given.get(name, [])

    def one(self, name: str) -> str | None:
        """The value of a field that may come once; an empty one is none."""
        values = self.items(name)
        if len(values) > 1:
            raise Problem(400, f"{name} {len(values)} times, expected it once", name)
        return values[0] if values and values[0] else None

    def choice(self, name: str, choices: Sequence[str], default: str) -> str:
        """Check that a value is one of some names."""
        value = self.one(name)
        if value is not None and value not in choices:
            raise _problem(name, value, choices)
        return value or default

    def choices(self, name: str, choices: Sequence[str]) -> None:
        """Check a list of such names."""
        for value in self.items(name):
            if value not in choices:
                raise _problem(name, value, choices)

    def flag(self, name: str, default: bool = False) -> bool:
        """A truth value, as clients of several languages write it."""
        value = self.one(name)
        if value is None:
            return default
        known = {"true": True, "1": True, "false": False, "0": False}
        if value.lower() not in known:
            raise _problem(name, value, ("true", "false"))
        return known[value.lower()]

    def number(
        self,
        name: str,
        kind: Callable[[str], _Value],
        expected: str,
        good: Callable[[_Value], bool],
    ) -> _Value | None:
        """A number in a range; None where there is none."""
        value = self.one(name)
        if value is None:
            return None
        try:
            if good(number := kind(value)):
                return number
        except ValueError:
            pass
        raise Problem(400, f"{name} {_short(value)}, expected {expected}", name)


def _problem(name: str, value: str, choices: Sequence[str], more: str = "") -> Problem:
    known = ", ".join(map(repr, choices))
    return Problem(400, f"{name} {_short(value)}{more}, expected {known}", name)


def _short(value: str) -> str:
    return repr(value if len(value) <= 60 else value[:57] + "...")


def _unlike(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """An object of JSON, whose keys differ: `json` keeps the last of two in silence."""
    found: dict[str, Any] = {}
    for name, value in pairs:
        if name in found:
            twice = _short(name)
            raise Problem(400, f"boosts have {twice} twice, expected it once", "boosts")
        found[name] = value
    return found
