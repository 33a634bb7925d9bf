"""`WS /v1/listen`, Deepgram's protocol for streams: query, messages, boosts, replies.

Keyterms, keywords and boosts are replaced separately; together they are the list.
"""

from __future__ import annotations

import asyncio
import dataclasses
import datetime
import functools
import json
import logging
import math
import re
import string
import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np
from starlette.routing import WebSocketRoute
from starlette.websockets import WebSocket

import wfstdec
from wfstdec.boost.lists import BoostsLike
from wfstdec.errors import BoostError, OptionError
from wfstdec.readable import DisplayWord
from wfstdec.search.hypothesis import Hypothesis, Word
from wfstdec.server.boosts import requested_boosts
from wfstdec.server.connection import (
    CLIENTS_FAULTS,
    SERVERS_FAULT,
    STOPS,
    Ending,
    Json,
    WebSocketConnection,
    apart,
    error_ending,
    serve_websocket,
)
from wfstdec.server.limits import LISTEN, Limits, RequestError, read_value, wrong_value
from wfstdec.server.readable import ShownWords
from wfstdec.server.service import Service
from wfstdec.server.stream import (
    BoostsChanged,
    Event,
    Finished,
    SpeechStarted,
    StreamSettings,
    UtteranceEnd,
    Words,
)
from wfstdec.text.display import join_words

_wrong = functools.partial(wrong_value, code="invalid_value")

_log = logging.getLogger(__name__)


_ENCODINGS = {
    "linear16": "linear16",
    "mulaw": "mulaw",
    "alaw": "alaw",
    "flac": None,
    "ogg-opus": None,
}
"""Encodings as clients name them; None for self-describing formats."""
_RATES = {None: 16000, "linear16": 16000, "mulaw": 8000, "alaw": 8000}
_KNOWN = (
    *("encoding", "sample_rate", "channels", "interim_results", "endpointing"),
    *("utterance_end_ms", "vad_events", "language", "model", "multichannel"),
    *("alternatives", "smart_format", "punctuate", "numerals"),
)
_FLAGS = {"true": True, "false": False}
_UTTERANCE_END_MS = 1000, 60_000
_MAX_IGNORED, _NAME_CHARS = 50, 60
"""Ignored names that are reported, and characters of each, at most."""


@dataclass(frozen=True)
class Query:
    """Parameters of a handshake."""

    settings: StreamSettings
    multichannel: bool = False
    alternatives: int | None = None  # at most, of an utterance
    numbers: bool | None = None  # in digits; None for the server's default
    punctuation: bool | None = None
    keyterms: tuple[str, ...] = ()  # as they came; `Configure` replaces them
    keywords: tuple[str, ...] = ()
    ignored: tuple[str, ...] = ()  # names without effect here
    warnings: tuple[str, ...] = ()


def read_query(
    items: Iterable[tuple[str, str]], limits: Limits, language: str
) -> Query:
    """Parse the query of a handshake, names and values in order."""
    lists: dict[str, list[str]] = {"keyterm": [], "keywords": [], "vocabulary": []}
    given: dict[str, str] = {}
    ignored: dict[str, None] = {}
    for name, value in items:
        if name in lists:
            lists[name].append(value)
        # Ignored rather than refused: clients of other servers send more than we know.
        elif name not in _KNOWN:
            ignored[name[:_NAME_CHARS]] = None
        elif given.setdefault(name, value) != value:
            raise _wrong(name, f"{given[name]!r} and {value!r}", "one value")
    reading = Reading(given)
    return Query(
        _settings(reading, lists, limits),
        reading.flag("multichannel"),
        reading.one("alternatives", None, _alternatives_number, "1 to 100"),
        reading.any_of("smart_format", "numerals"),
        reading.any_of("smart_format", "punctuate"),
        tuple(lists["keyterm"]),
        tuple(lists["keywords"]),
        ignored=tuple(ignored)[:_MAX_IGNORED],
        warnings=tuple(_warnings(given, language)),
    )


class Reading(NamedTuple):
    """Reader of parameters by name."""

    given: Mapping[str, str]

    def one(
        self, name: str, default: Any, read: Callable[[str], Any], expected: str
    ) -> Any:
        """Return the parsed value of a parameter, or a default."""
        text = self.given.get(name)
        if text is None:
            return default
        return read_value(name, text, read, expected, "invalid_value")

    def flag(self, name: str) -> bool:
        """Return a boolean parameter."""
        return self.one(name, False, lambda x: _FLAGS[x.lower()], "true or false")

    def any_of(self, *names: str) -> bool | None:
        """Return whether one of these flags is true; None without any of them."""
        given = [self.flag(name) for name in names if name in self.given]
        return any(given) if given else None


def _settings(
    reading: Reading, lists: dict[str, list[str]], limits: Limits
) -> StreamSettings:
    one, flag = reading.one, reading.flag
    *others, last = _ENCODINGS
    expected = f"{', '.join(others)} or {last}; a WAV, FLAC, Ogg, ... needs none"
    encoding = one("encoding", None, _ENCODINGS.__getitem__, expected)
    interims = flag("interim_results")
    least, most = _UTTERANCE_END_MS
    utterance_end_ms = one(
        *("utterance_end_ms", None),
        lambda text: _whole(text, least, most),
        f"milliseconds, {least} to {most}",
    )
    if utterance_end_ms is not None and not interims:
        raise _wrong("utterance_end_ms", "no", "interim_results=true with it")
    expected = f"milliseconds, 0 to {most}, or false"
    try:
        requested_boosts(keyterms=lists["vocabulary"], limits=limits)  # validates them
        return StreamSettings(
            encoding=encoding,
            sample_rate=one("sample_rate", _RATES[encoding], _whole, "a whole number"),
            channels=one("channels", 1, _whole, "a whole number"),
            boosts=requested_boosts(
                keyterms=lists["keyterm"], keywords=lists["keywords"], limits=limits
            ),
            vocabulary=tuple(lists["vocabulary"]),
            interims=interims,
            endpoint_silence_s=one("endpointing", None, _silence, expected),
            utterance_end_s=utterance_end_ms and utterance_end_ms / 1000,
            speech_started=flag("vad_events"),
        )
    except (BoostError, OptionError) as error:
        # The error has no names of parameters: its text shows which one it is.
        about = [name for name in ("sample_rate", "channels") if name in str(error)]
        about = about or [name for name in lists if lists[name]]
        param = about[0] if len(about) == 1 else None
        raise RequestError(400, str(error), param, code="invalid_value") from None


def _whole(text: str, least: int = 0, most: int = 10**9 - 1) -> int:
    if re.fullmatch("[0-9]{1,9}", text) and least <= int(text) <= most:
        return int(text)
    raise ValueError(text)


def _alternatives_number(text: str) -> int:
    return _whole(text, 1, 100)


def _silence(text: str) -> float | None:
    if text.lower() in _FLAGS:
        return None if _FLAGS[text.lower()] else math.inf
    return (_whole(text, most=_UTTERANCE_END_MS[1]) or math.inf) / 1000


def _warnings(given: dict[str, str], language: str) -> Iterable[str]:
    def base(name: str) -> str:
        return name.replace("_", "-").partition("-")[0].lower()

    asked = given.get("language", "")[:_NAME_CHARS]
    if asked and base(asked) != base(language):
        yield f"language {asked!r}, the server's model is for {language!r}"
    if "sample_rate" in given and _ENCODINGS.get(given.get("encoding", "")) is None:
        yield (
            "sample_rate without encoding=linear16, mulaw or alaw: the audio is taken "
            "as a file that says its own"
        )


_PLAIN = ("KeepAlive", "Finalize", "CloseStream")
_LISTS = ("keyterms", "keywords", "boosts")
_SHOWN, _MAX_SHOWN = 200, 20
"""Characters of a wrong message that the error repeats, and number of names."""


class MessageError(ValueError):
    """A client's message is malformed; the text has the expected form."""

    def __init__(self, found: str, expected: str) -> None:
        self.found = found[:_SHOWN]
        super().__init__(f"found {self.found!r}, expected {expected}")


class Configure(NamedTuple):
    """Replacements of lists, not validated yet, and ignored names."""

    lists: Json
    ignored: tuple[str, ...] = ()


def read_message(text: str) -> str | Configure:
    """Parse a text message: `Configure`, or the type of one without content."""
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        raise MessageError(text, "an object of JSON") from None
    kind = found.get("type") if isinstance(found, dict) else None
    if kind == "Configure":
        # null counts as absent, as in many generated clients.
        more = {name: value for name, value in found.items() if value is not None}
        del more["type"]
        lists = {name: more.pop(name) for name in _LISTS if name in more}
        return Configure(lists, tuple(name[:_SHOWN] for name in more)[:_MAX_SHOWN])
    if isinstance(kind, str) and kind in _PLAIN:
        return kind
    expected = ", ".join(map(repr, (*_PLAIN, "Configure")))
    raise MessageError(text, f"an object of JSON with a 'type' of {expected}")


class StreamBoosts:
    """Boosts of a stream and their pending change: one at a time."""

    def __init__(self, query: Query, limits: Limits) -> None:
        self._limits = limits
        self._lists: Json = {"keyterms": query.keyterms, "keywords": query.keywords}
        self._pending = self._lists, Configure({})

    def request(self, message: Configure) -> BoostsLike:
        """Return a message's merged list; `settled` follows when it is in force."""
        lists = {**self._lists, **message.lists}
        boosts = requested_boosts(**lists, limits=self._limits)
        self._pending = lists, message
        return boosts

    def settled(self, event: BoostsChanged, replies: Replies) -> Json:
        """Keep the list, if the engine accepted it; return the reply to the client."""
        if event.error is not None:
            return replies.not_configured(event.error)
        self._lists, message = self._pending
        known = message.lists.keys() & {"keyterms"}  # only where they were replaced
        ignored = (f"{name!r} is not changed here" for name in message.ignored)
        return replies.reply(
            "ConfigureSuccess",
            **{name: list(self._lists[name]) for name in known},
            effective="now" if event.from_now else "next_utterance",
            warnings=[*event.warnings, *ignored],
        )


_MARKS = string.punctuation + " –£€"
_SPACE = uuid.UUID("0d7d4a4e-6b0f-5f5c-9f7c-7a4d3c1f2b68")
"""Namespace of this project: the same model has the same id on every server."""


def _now() -> str:
    time = datetime.datetime.now(datetime.UTC).isoformat(timespec="milliseconds")
    return time.replace("+00:00", "Z")


@dataclass(frozen=True)
class Replies:
    """Messages to a stream's client."""

    model: str
    num_channels: int = 1  # that are decoded separately
    alternatives: int | None = None  # of an utterance, at most
    request_id: str = field(default_factory=lambda: str(uuid.uuid4()))
    created: str = field(default_factory=_now)

    @property
    def model_uuid(self) -> str:
        """UUID of the model."""
        return str(uuid.uuid5(_SPACE, self.model))

    @property
    def model_info(self) -> Json:
        """Name, version and kind of the model."""
        return {"name": self.model, "version": wfstdec.__version__, "arch": "ctc"}

    def of(self, event: Words | SpeechStarted | UtteranceEnd, channel: int = 0) -> Json:
        """Return the message of an event of a channel."""
        place = [channel, self.num_channels]
        if isinstance(event, SpeechStarted):
            return {"type": "SpeechStarted", "channel": place, "timestamp": event.at_s}
        if isinstance(event, UtteranceEnd):
            last = event.last_word_end_s
            return {"type": "UtteranceEnd", "channel": place, "last_word_end": last}
        message: Json = {
            "type": "Results",
            "channel_index": place,
            "start": event_start(event),
            "duration": max(event.end_s - event_start(event), 0.0),
            "is_final": event.is_final,
            "speech_final": event.is_endpoint,
            "channel": {"alternatives": _alternatives(event)[: self.alternatives]},
            "metadata": {
                "request_id": self.request_id,
                "model_info": self.model_info,
                "model_uuid": self.model_uuid,
            },
            "latency_ms": round(1000 * event.latency_s, 3),
        }
        if event.is_answer:
            message["from_finalize"] = True
        if event.rule is not None:
            rule = dataclasses.asdict(event.rule)
            # JSON has no infinity.
            message["rule"] = {n: None if x == math.inf else x for n, x in rule.items()}
        return message

    def metadata(
        self, audio_s: float, ignored: Sequence[str], warnings: Sequence[str]
    ) -> Json:
        """Return the `Metadata` message; without a digest of the audio."""
        return self.reply(
            "Metadata",
            transaction_key="deprecated",
            sha256="",
            created=self.created,
            duration=audio_s,
            channels=self.num_channels,
            ignored=list(ignored),
            warnings=list(warnings),
        )

    def not_configured(self, error: Exception) -> Json:
        """Return the error of a refused list, with Deepgram's code if there is one."""
        code = "INVALID" if isinstance(error, ValueError) else "INTERNAL_ERROR"
        if isinstance(error, OptionError):
            code = "KEYTERM_LIMIT_EXCEEDED"
        text = str(error)
        return self.reply(
            "ConfigureFailure", code=f"CONFIGURE_{code}", description=text
        )

    def error(self, variant: str, description: str, message: str = "") -> Json:
        """Return an error; `message` is the client's message that it refers to."""
        return self.reply(
            "Error", variant=variant, description=description, message=message
        )

    def reply(self, kind: str, **fields: Any) -> Json:
        """Return a message with the request's id."""
        return {"type": kind, "request_id": self.request_id, **fields}


def event_start(event: Words) -> float:
    """Return the start of an event's words; display words may come later."""
    return min([event.start_s, *(word.start_s for word in event.words[:1])])


def _alternatives(event: Words) -> list[Json]:
    if not event.hypotheses:
        return [alternative(event.words, None)]
    best, *others = event.hypotheses
    found = [alternative(event.words, best)]
    # Words that were final before are left out of all of them.
    start_s = event_start(event) if len(event.words) < len(best.words) else -math.inf
    for one in others:
        words = [word for word in one.words if word.start_s >= start_s]
        found.append(alternative(words, one))
    return found


def _bare(word: Any) -> str:
    if isinstance(word, DisplayWord):
        return word.text.strip(_MARKS).lower()
    return word.text


def alternative(words: Sequence[Word], whole: Hypothesis | None) -> Json:
    """Return words and text of a hypothesis, `whole`, or of a part of it."""
    known = [word.confidence for word in words if word.confidence is not None]
    found: Json = {
        "transcript": join_words(word.text for word in words),
        # Mean of the words' confidences; 0 without any.
        "confidence": float(sum(known) / len(known)) if known else 0.0,
        "words": [
            {
                "word": _bare(word),
                "start": float(word.start_s),
                "end": float(word.end_s),
                "confidence": float(word.confidence or 0.0),
                "punctuated_word": word.text,
            }
            | _acoustic(word)
            for word in words
        ],
    }
    if whole is not None and math.isfinite(whole.total_cost):
        found["cost"] = float(whole.total_cost)
    return found


def _acoustic(word: Any) -> Json:
    value = word.acoustic_confidence
    return {} if value is None else {"acoustic_confidence": float(value)}


def routes() -> list[WebSocketRoute]:
    """Return the route for the app."""
    return [WebSocketRoute(LISTEN, _listen)]


async def _listen(websocket: WebSocket) -> None:
    service: Service = websocket.app.state.service
    request_id = str(uuid.uuid4())
    items = websocket.query_params.multi_items()
    websocket.scope["query_string"] = b""  # servers log it, and it contains names

    def connect() -> ListenConnection:
        query = read_query(items, service.limits, service.language)
        return ListenConnection(websocket, service, query, request_id)

    def refusal_headers(text: str) -> dict[str, str]:
        return {"dg-request-id": request_id, "dg-error": text}

    await serve_websocket(
        *(websocket, request_id, connect, ListenConnection.open, refusal_headers)
    )


class ListenConnection(WebSocketConnection):
    """Connection with a client, and its stream, or one for each channel."""

    waits_for = "audio or KeepAlive"

    def __init__(
        self, websocket: WebSocket, service: Service, query: Query, request_id: str
    ) -> None:
        super().__init__(websocket, service)
        settings, warnings, num = query.settings, list(query.warnings), 1
        if query.multichannel and settings.encoding is None:
            text = "multichannel without encoding=linear16, mulaw or alaw: channels "
            warnings.append(text + "are mixed")
        elif query.multichannel:
            num, settings = settings.channels, replace(settings, channels=1)
        asked = query.numbers, query.punctuation
        formatter = service.readable.formatter(*asked, query.keyterms)
        warnings += service.readable.missing(*asked)
        self._shown = [ShownWords(formatter) for _ in range(num)]
        num_best = service.nbest
        if query.alternatives is not None and query.alternatives > num_best:
            text = f"alternatives={query.alternatives}, the server returns {num_best}"
            warnings.append(text)
        self._settings, self._query, self._warnings = settings, query, warnings
        self._replies = Replies(service.name, num, query.alternatives, request_id)
        self._boosts = StreamBoosts(query, service.limits)
        self._opened: BoostsChanged | None = None
        self._changes: list[BoostsChanged] = []  # of the list, by some of the streams
        self._settled = asyncio.Event()  # no change of boosts is pending
        self._finished: list[Finished] = []
        width = 2 if settings.encoding == "linear16" else 1
        self._frame_bytes, self._rest = num * width, b""  # of an incomplete frame

    def take(self, event: Event, stream: int) -> None:
        """Handle an event, for the client or for the opening."""
        outbox, num = self.outbox, self._replies.num_channels
        if isinstance(event, BoostsChanged):
            self._changes.append(event)
            if len(self._changes) < num:
                return
            errors = [one for one in self._changes if one.error is not None]
            from_now = all(one.from_now for one in self._changes)
            event = errors[0] if errors else replace(event, from_now=from_now)
            self._changes = []
            if self._is_opening:
                self._opened = event
            else:
                outbox.send(self._boosts.settled(event, self._replies))
            self._settled.set()
        elif isinstance(event, Finished):
            self._finished.append(event)
            self._settled.set()
            if len(self._finished) == num:
                outbox.close()
            elif event.error is not None:  # the others end with it
                self.end(Ending(1011))
        else:
            is_interim = isinstance(event, Words) and not event.is_final
            if isinstance(event, Words):
                event = self._shown[stream].of(event)
            message = event, stream
            outbox.send(message, interim_of=stream if is_interim else None)

    @property
    def _is_opening(self) -> bool:
        boosts, vocabulary = self._settings.boosts, self._settings.vocabulary
        return self._opened is None and (boosts is not None or bool(vocabulary))

    async def open(self) -> None:
        """Accept the client after its boosts are compiled."""
        for _ in range(self._replies.num_channels):
            self.open_stream(self._settings)
        if self._is_opening:
            await self._settled.wait()
        ends = [self._opened, *self._finished]
        error = next((one.error for one in ends if one and one.error is not None), None)
        if isinstance(error, CLIENTS_FAULTS):
            param = "vocabulary" if self._settings.vocabulary else "keyterm"
            raise RequestError(400, str(error), param, code="invalid_value")
        request_id = self._replies.request_id
        if error is not None:
            _log.error("stream %s: no opening", request_id, exc_info=error)
            raise RequestError(500, SERVERS_FAULT, code="fault")
        self._settled.set()
        await self.accept({"dg-request-id": request_id})
        # At once: options without effect are reported before any result.
        first = self._metadata(0.0)
        if first["ignored"] or first["warnings"]:
            self.outbox.send(first)

    def _metadata(self, audio_s: float) -> Json:
        boosts = self._opened.warnings if self._opened is not None else ()
        warnings = (*self._warnings, *boosts)
        return self._replies.metadata(audio_s, self._query.ignored, warnings)

    async def obey(self, message: bytes | str) -> bool:
        """Pass audio on, or handle a text message."""
        if isinstance(message, bytes):
            for stream, data in zip(self.streams, self._channels(message), strict=True):
                stream.send(data)
            return bool(message)
        try:
            asked = await apart(message, lambda: read_message(message))
        except MessageError as error:
            wrong = self._replies.error("SchemaError", str(error), error.found)
            self.outbox.send(wrong)
            return False
        if isinstance(asked, Configure):
            await self._settled.wait()  # of the previous change
            try:
                boosts = await apart(message, lambda: self._boosts.request(asked))
            except (BoostError, OptionError) as error:
                self.outbox.send(self._replies.not_configured(error))
                return False
            self._settled.clear()
            for stream in self.streams:
                stream.change_boosts(boosts)
        elif asked == "Finalize":
            self.flush()
        elif asked == "CloseStream":
            self.end(Ending(1000))
        return False

    def _channels(self, data: bytes) -> list[bytes]:
        num = len(self.streams)
        if num == 1:
            return [data]
        data = self._rest + data
        whole = len(data) - len(data) % self._frame_bytes
        self._rest = data[whole:]
        samples = np.frombuffer(data[:whole], f"V{self._frame_bytes // num}")
        return [samples[channel::num].tobytes() for channel in range(num)]

    async def transmit(self, message: Any) -> None:
        """Send a message, or that of an event."""
        if not isinstance(message, dict):
            message = self._replies.of(*message)
        await super().transmit(message)

    async def finish(self) -> Ending:
        """Send the reason of the end, and the metadata."""
        ending = self.ending or STOPS
        errors = (one.error for one in self._finished)
        if (error := next(filter(None, errors), None)) is not None:
            kind, ending = error_ending(error, self._replies.request_id)
            await self.send(self._replies.error(kind, ending.reason))
        await self.send(self._metadata(max(one.audio_s for one in self._finished)))
        return ending
