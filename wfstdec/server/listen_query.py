"""Query of `WS /v1/listen`: what a client asks of its stream, in Deepgram's words.

    read_query([("encoding", "mulaw"), ("keyterm", "new york")], limits, "en")

    encoding            linear16, mulaw, alaw; none, flac, ogg-opus: the first bytes say
    sample_rate         of an encoding: 16000, or 8000 for mulaw and alaw, if left out
    channels            interleaved; they are mixed
    interim_results     true or false
    endpointing         milliseconds of silence; false or 0 for no rule of silence
    utterance_end_ms    1000 or more; needs interim_results
    vad_events          true or false
    keyterm, keywords   words and phrases, `word:bonus`; as often as there are words
    model, language     any; another language than the server's is a warning

Others are accepted, and named: clients send what other servers know.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TypeVar

from wfstdec.errors import BoostError, OptionError
from wfstdec.server.boosts import requested_boosts
from wfstdec.server.limits import Limits
from wfstdec.server.problems import Problem
from wfstdec.server.stream import StreamSettings

_ENCODINGS = {
    "linear16": "linear16",
    "mulaw": "mulaw",
    "alaw": "alaw",
    "flac": None,
    "ogg-opus": None,
}
"""Encodings as clients name them; None for what says itself what it is."""
_RATES = {None: 16000, "linear16": 16000, "mulaw": 8000, "alaw": 8000}
_LISTS = ("keyterm", "keywords")
_KNOWN = (
    "encoding",
    "sample_rate",
    "channels",
    "interim_results",
    "endpointing",
    "utterance_end_ms",
    "vad_events",
    "language",
    "model",
)
_LEAST_UTTERANCE_END_MS = 1000
_MOST_MS = 60_000
_Default = TypeVar("_Default", int, None)
_NAMED, _NAME_CHARS = 50, 60
"""How many ignored names are told, and how much of each."""


@dataclass(frozen=True)
class Query:
    """Parameters that a client asked for.

    Attributes:
        settings: Of its stream.
        keyterms: As they came; `Configure` replaces them.
        keywords: The same.
        ignored: Names of parameters that mean nothing here.
        warnings: What may not be as the client thinks.
    """

    settings: StreamSettings
    keyterms: tuple[str, ...] = ()
    keywords: tuple[str, ...] = ()
    ignored: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()


def read_query(
    items: Iterable[tuple[str, str]], limits: Limits, language: str
) -> Query:
    """Read the query of a handshake.

    Args:
        items: Names and values, in order.
        limits: Of boosts.
        language: The server's, for a warning.

    Raises:
        Problem: 400, a value that cannot be; it says what was expected.
    """
    lists: dict[str, list[str]] = {name: [] for name in _LISTS}
    given: dict[str, str] = {}
    ignored: dict[str, None] = {}
    for name, value in items:
        if name in lists:
            lists[name].append(value)
        # Told as ignored rather than refused: clients of other servers send more than
        # we know.
        elif name not in _KNOWN:
            ignored[name[:_NAME_CHARS]] = None
        elif given.setdefault(name, value) != value:
            raise _wrong(name, f"{value!r} beside {given[name]!r}", "one value")
    return Query(
        settings=_settings(given, lists, limits),
        keyterms=tuple(lists["keyterm"]),
        keywords=tuple(lists["keywords"]),
        ignored=tuple(ignored)[:_NAMED],
        warnings=tuple(_warnings(given, language)),
    )


def _settings(
    given: dict[str, str], lists: dict[str, list[str]], limits: Limits
) -> StreamSettings:
    named = given.get("encoding")
    if named is not None and named not in _ENCODINGS:
        expected = f"{_choice(tuple(_ENCODINGS))}; a WAV, FLAC, Ogg, ... needs none"
        raise _wrong("encoding", repr(named), expected)
    encoding = None if named is None else _ENCODINGS[named]
    interims = _flag(given, "interim_results")
    utterance_end_ms = _milliseconds(given, "utterance_end_ms")
    if utterance_end_ms is not None:
        if utterance_end_ms < _LEAST_UTTERANCE_END_MS:
            found, least = given["utterance_end_ms"], _LEAST_UTTERANCE_END_MS
            raise _wrong("utterance_end_ms", repr(found), f"{least} to {_MOST_MS}")
        if not interims:
            raise _wrong("utterance_end_ms", "no", "interim_results=true with it")
    try:
        return StreamSettings(
            encoding=encoding,
            sample_rate=_whole(given, "sample_rate", _RATES[encoding]),
            channels=_whole(given, "channels", 1),
            boosts=requested_boosts(
                keyterms=lists["keyterm"], keywords=lists["keywords"], limits=limits
            ),
            interims=interims,
            endpoint_silence_s=_silence(given),
            utterance_end_s=utterance_end_ms and utterance_end_ms / 1000,
            speech_started=_flag(given, "vad_events"),
        )
    except (BoostError, OptionError) as error:
        # The error is of a class that knows no parameters of queries: its text tells
        # which it is of.
        about = [name for name in ("sample_rate", "channels") if name in str(error)]
        about = about or [name for name in _LISTS if lists[name]]
        param = about[0] if len(about) == 1 else None
        raise Problem(400, str(error), param, code="invalid_value") from None


def _warnings(given: dict[str, str], language: str) -> Iterable[str]:
    asked = given.get("language", "")[:_NAME_CHARS]
    if asked and _base(asked) != _base(language):
        yield f"language {asked!r}, the server hears {language!r}"
    if "sample_rate" in given and _ENCODINGS.get(given.get("encoding", "")) is None:
        yield (
            "sample_rate without encoding=linear16, mulaw or alaw: the audio is taken "
            "as a file that says its own"
        )


def _base(language: str) -> str:
    """A language without its region."""
    return language.replace("_", "-").partition("-")[0].lower()


def _silence(given: dict[str, str]) -> float | None:
    """Seconds of silence that end an utterance; `inf` for no rule of silence."""
    text = given.get("endpointing", "true").lower()
    if text == "true":
        return None
    if text == "false":
        return math.inf
    return (_milliseconds(given, "endpointing", ", or false") or math.inf) / 1000


def _milliseconds(given: dict[str, str], name: str, more: str = "") -> int | None:
    expected = f"milliseconds, 0 to {_MOST_MS}{more}"
    return _whole(given, name, None, _MOST_MS, expected)


def _whole(
    given: dict[str, str],
    name: str,
    default: _Default,
    most: int = 10**9 - 1,
    expected: str = "a whole number",
) -> int | _Default:
    """A whole number in plain digits, at most so large."""
    text = given.get(name)
    if text is None:
        return default
    plain = text.isascii() and text.isdecimal() and len(text) < 10
    if not plain or int(text) > most:
        raise _wrong(name, repr(text), expected)
    return int(text)


def _flag(given: dict[str, str], name: str) -> bool:
    text = given.get(name, "false").lower()
    if text not in ("true", "false"):
        raise _wrong(name, repr(given[name]), _choice(("true", "false")))
    return text == "true"


def _choice(names: Sequence[str]) -> str:
    return f"{', '.join(names[:-1])} or {names[-1]}"


def _wrong(name: str, found: str, expected: str) -> Problem:
    """Tell what a parameter was, and what it was to be."""
    found = found if len(found) <= 100 else found[:100] + "...'"
    message = f"{name}: found {found}, expected {expected}"
    return Problem(400, message, name, code="invalid_value")
