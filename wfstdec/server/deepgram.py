"""`WS /v1/listen`, as Deepgram's clients speak it: query, messages, boosts, replies.

    boosts = StreamBoosts(query, limits)
    stream.change_boosts(boosts.asked(message))     # Configure
    boosts.settled(event)                           # BoostsChanged: accepted or not

Keyterms, keywords and boosts are replaced separately; together they are the list.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import datetime
import functools
import json
import logging
import math
import time
import uuid
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple, TypeVar

from starlette.routing import WebSocketRoute
from starlette.websockets import WebSocket, WebSocketDisconnect

import wfstdec
from wfstdec.boost.lists import BoostsLike
from wfstdec.errors import (
    AudioError,
    BackendError,
    BoostError,
    LimitError,
    OptionError,
    WfstdecError,
)
from wfstdec.search.hypothesis import Hypothesis, Word
from wfstdec.server.boosts import requested_boosts
from wfstdec.server.limits import Limits
from wfstdec.server.problems import Problem
from wfstdec.server.service import Service
from wfstdec.server.stream import (
    BoostsChanged,
    Event,
    Finished,
    Outbox,
    Room,
    SpeechStarted,
    StreamSettings,
    UtteranceEnd,
    Words,
)
from wfstdec.server.uvicorn_server import GIVE_UP


@dataclass(frozen=True)
class _Lists:
    keyterms: Any = ()
    keywords: Any = ()
    boosts: Any = None

    def changed(self, message: Configure) -> _Lists:
        """Replace what the message has; None keeps what there is."""
        given = {name: getattr(message, name) for name in self.__dataclass_fields__}
        return replace(self, **{k: v for k, v in given.items() if v is not None})


class StreamBoosts:
    """Boosts of a stream, and the change to them that is under way: one at a time."""

    def __init__(self, query: Query, limits: Limits) -> None:
        self._limits = limits
        self._lists = _Lists(query.keyterms, query.keywords)
        self._asked: tuple[_Lists, Configure] | None = None

    def asked(self, message: Configure) -> BoostsLike:
        """Make the list that a message asks for; `settled` says what came of it."""
        lists = self._lists.changed(message)
        boosts = requested_boosts(
            keyterms=lists.keyterms,
            keywords=lists.keywords,
            boosts=lists.boosts,
            limits=self._limits,
        )
        self._asked = lists, message
        return boosts

    def settled(self, event: BoostsChanged, answers: Replies) -> Json:
        """Note what the engine made of what was asked for; what the client is told."""
        assert self._asked is not None
        (lists, message), self._asked = self._asked, None
        if event.error is not None:
            return refusal(event.error, answers)
        self._lists = lists
        ignored = [f"{name!r} is not changed here" for name in message.ignored]
        return answers.configured(
            None if message.keyterms is None else lists.keyterms,
            now=event.from_now,
            warnings=[*event.warnings, *ignored],
        )


def refusal(error: Exception, answers: Replies) -> Json:
    """Tell why a list is not taken, with Deepgram's code where there is one."""
    code = "CONFIGURE_INVALID"
    if isinstance(error, OptionError):
        code = "CONFIGURE_KEYTERM_LIMIT_EXCEEDED"
    elif not isinstance(error, ValueError):
        code = "CONFIGURE_INTERNAL_ERROR"
    return answers.not_configured(code, str(error))


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

    `items`: names and values, in order.
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


Json = dict[str, Any]

_PLAIN = ("KeepAlive", "Finalize", "CloseStream")
_CONFIGURED = ("keyterms", "keywords", "boosts")
_SHOWN, _NAMED = 200, 20
"""How much of a wrong message its sender sees again, and of how many names."""
_SPACE = uuid.UUID("0d7d4a4e-6b0f-5f5c-9f7c-7a4d3c1f2b68")
"""A name space of our own: the same model has the same id on every server."""


class MessageError(ValueError):
    """A client's message cannot be understood; the text says what was expected."""

    def __init__(self, found: Any, expected: str) -> None:
        text = found if isinstance(found, str) else repr(found)
        self.found = text[:_SHOWN]
        super().__init__(f"found {self.found!r}, expected {expected}")


@dataclass(frozen=True)
class Plain:
    """A message without content.

    Attributes:
        type: 'KeepAlive', 'Finalize' or 'CloseStream'.
    """

    type: str


@dataclass(frozen=True)
class Configure:
    """Other boosts from now on; None keeps what there is, an empty list clears.

    Attributes:
        keyterms, keywords: As in the query; not checked yet.
        boosts: JSON as in boost files; not checked yet.
        ignored: Names of what else was to be changed.
    """

    keyterms: Any = None
    keywords: Any = None
    boosts: Any = None
    ignored: tuple[str, ...] = ()


def read_message(text: str) -> Plain | Configure:
    """Read a text message of a client."""
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        raise MessageError(text, "an object of JSON") from None
    kind = found.get("type") if isinstance(found, dict) else None
    if kind == "Configure":
        # A null is as good as nothing, as in many generated clients.
        more = {name: value for name, value in found.items() if value is not None}
        del more["type"]
        known = {name: more.pop(name, None) for name in _CONFIGURED}
        return Configure(
            **known, ignored=tuple(name[:_SHOWN] for name in more)[:_NAMED]
        )
    if isinstance(kind, str) and kind in _PLAIN:
        return Plain(kind)
    expected = ", ".join(map(repr, (*_PLAIN, "Configure")))
    raise MessageError(text, f"an object of JSON with a 'type' of {expected}")


@dataclass(frozen=True)
class Replies:
    """Messages to a stream's client.

    Attributes:
        model: The name of the model.
        version: Of the program.
        request_id: Of the stream.
        created: When it was opened, in ISO form.
    """

    model: str
    version: str
    request_id: str = field(default_factory=lambda: str(uuid.uuid4()))
    created: str = field(
        default_factory=lambda: (
            datetime.datetime.now(datetime.UTC)
            .isoformat(timespec="milliseconds")
            .replace("+00:00", "Z")
        )
    )

    def of(self, event: Words | SpeechStarted | UtteranceEnd) -> Json:
        """Put what was heard into words."""
        if isinstance(event, SpeechStarted):
            return {"type": "SpeechStarted", "channel": [0], "timestamp": event.at_s}
        if isinstance(event, UtteranceEnd):
            last = event.last_word_end_s
            return {"type": "UtteranceEnd", "channel": [0, 1], "last_word_end": last}
        said = {
            "type": "Results",
            "channel_index": [0, 1],
            "start": event.start_s,
            "duration": max(event.end_s - event.start_s, 0.0),
            "is_final": event.is_final,
            "speech_final": event.is_final and event.ends_utterance,
            "channel": {"alternatives": _alternatives(event)},
            "metadata": self._metadata,
            "latency_ms": round(1000 * event.latency_s, 3),
        }
        if event.is_answer:
            said["from_finalize"] = True
        if event.rule is not None:
            rule = dataclasses.asdict(event.rule)
            # JSON has no infinity.
            said["rule"] = {n: None if x == math.inf else x for n, x in rule.items()}
        return said

    @functools.cached_property
    def _metadata(self) -> Json:
        info = {"name": self.model, "version": self.version, "arch": "ctc"}
        return {
            "request_id": self.request_id,
            "model_info": info,
            "model_uuid": str(uuid.uuid5(_SPACE, self.model)),
        }

    def metadata(
        self, heard_s: float, ignored: Sequence[str], warnings: Sequence[str]
    ) -> Json:
        """Tell what the stream is, or was.

        There is no digest of the audio: nobody reads it, and it would be made where
        all streams wait for it.
        """
        return {
            "type": "Metadata",
            "transaction_key": "deprecated",
            "request_id": self.request_id,
            "sha256": "",
            "created": self.created,
            "duration": heard_s,
            "channels": 1,
            "ignored": list(ignored),
            "warnings": list(warnings),
        }

    def configured(
        self, keyterms: Sequence[str] | None, *, now: bool, warnings: Sequence[str]
    ) -> Json:
        """Tell that boosts were changed; `keyterms` only where they were replaced."""
        said = self._said("ConfigureSuccess")
        if keyterms is not None:
            said["keyterms"] = list(keyterms)
        said["effective"] = "now" if now else "next_utterance"
        said["warnings"] = list(warnings)
        return said

    def not_configured(self, code: str, description: str) -> Json:
        """Tell that boosts were not changed, and why."""
        return self._said("ConfigureFailure", code=code, description=description)

    def error(self, variant: str, description: str, message: str = "") -> Json:
        """Tell what is wrong; `message` is the client's own that it is about."""
        what = {"variant": variant, "description": description, "message": message}
        return self._said("Error", **what)

    def _said(self, kind: str, **fields: str) -> Json:
        return {"type": kind, "request_id": self.request_id, **fields}


def _alternatives(event: Words) -> list[Json]:
    """The words that are new; of an utterance that ends, the n-best list behind them.

    What was already sent of the utterance is left out of all of them.
    """
    best = event.hypotheses[0] if event.hypotheses else None
    found = [_alternative(event.words, best)]
    sent = len(best.words) - len(event.words) if best is not None else 0
    for one in event.hypotheses[1:]:
        words = one.words
        if sent:
            words = tuple(word for word in words if word.start_s >= event.start_s)
        found.append(_alternative(words, one))
    return found


def _alternative(words: Sequence[Word], whole: Hypothesis | None) -> Json:
    known = [word.confidence for word in words if word.confidence is not None]
    said = {
        "transcript": " ".join(word.text for word in words),
        # The mean of the words'; 0 where there are none.
        "confidence": float(sum(known) / len(known)) if known else 0.0,
        "words": [
            {
                "word": word.text,
                "start": float(word.start_s),
                "end": float(word.end_s),
                "confidence": float(word.confidence or 0.0),
                "punctuated_word": word.text,
            }
            for word in words
        ],
    }
    if whole is not None and math.isfinite(whole.total_cost):
        said["cost"] = float(whole.total_cost)
    return said


_CLIENTS_FAULTS = (AudioError, BoostError, OptionError)
"""Errors of what a client sent; others are the server's."""
_MOST_WAITING = 1000
"""Messages that wait for a client; its reader stops long before."""
_WAITING, _UNANSWERED = 100, 8
"""Messages that wait, and calls for finals without answer, at which a reader stops."""
_LOOK_S, _ROOM_S = 0.02, 0.25
_MESSAGES_PER_S, _BREATH = 2000, 32
"""Most messages of a client in a second, and how many of them in one go. That it has
gone is seen behind what it sent: some 30,000 of the smallest come with one read."""
_LONG = 1 << 15
"""Characters of a message that is read apart from the loop."""
_CLOSE_S = 1.0
"""For a close to get into the connection's buffer."""
_REASON = 123
"""Bytes that WebSockets have for the reason of a close."""

_log = logging.getLogger(__name__)
_Found = TypeVar("_Found")
_Sent = Words | SpeechStarted | UtteranceEnd | Json
"""What waits to be sent; events become messages only then."""


def routes() -> list[WebSocketRoute]:
    """Routes for the app."""
    return [WebSocketRoute("/v1/listen", _listen)]


class _Ending(NamedTuple):
    """How a connection is closed."""

    code: int
    reason: str = ""


class _Gone(Exception):
    """The client is no longer there."""


class _Unread(Exception):
    """The client does not read what it is sent."""


async def _listen(websocket: WebSocket) -> None:
    """Serve one stream, from its handshake to its close."""
    service: Service = websocket.app.state.service
    answers = Replies(service.name, wfstdec.__version__)
    items = websocket.query_params.multi_items()
    websocket.scope["query_string"] = b""  # servers log it, and names are in it
    try:
        query = read_query(items, service.limits, service.language)
        talk = _Talk(websocket, service, query, answers)
    except Problem as problem:
        await _refuse(websocket, service, problem, answers)
        return
    try:
        await talk.open()
        await _close(websocket, await talk.run())
    except Problem as problem:
        await _refuse(websocket, service, problem, answers)
    except _Gone:
        pass
    except Exception:
        _log.exception("stream %s failed", answers.request_id)
        service.measures.failed("handler")
        reason = f"the server failed; its log says why, at {answers.request_id}"
        await _close(websocket, _Ending(1011, reason))
    finally:
        talk.stream.abort()


async def _refuse(
    websocket: WebSocket, service: Service, problem: Problem, answers: Replies
) -> None:
    """Answer a handshake with an error of HTTP, told in both protocols' words."""
    if problem.status != 503:  # those are the engine's, which counts them
        service.measures.refused(problem.code or "invalid_value")
    text = " ".join(problem.message.split()).encode("ascii", "backslashreplace")
    problem.headers |= {
        "dg-request-id": answers.request_id,
        "dg-error": text.decode()[:1000],
    }
    with contextlib.suppress(WebSocketDisconnect, RuntimeError):  # it has gone
        await websocket.send_denial_response(problem.response())


async def _close(websocket: WebSocket, ending: _Ending | None) -> None:
    """Close, if the client is still there; without it where it does not read."""
    if ending is None:
        return
    reason = ending.reason.encode()[:_REASON].decode(errors="ignore")
    give_up = websocket.scope.get(GIVE_UP)
    if ending.code == 1013 and give_up is not None:
        give_up(ending.code, reason)
        return
    with contextlib.suppress(WebSocketDisconnect, RuntimeError, TimeoutError):
        async with asyncio.timeout(_CLOSE_S):
            await websocket.close(ending.code, reason)


class _Talk:
    """Talk with a client about its stream.

    Attributes:
        stream: The engine's.
    """

    def __init__(
        self, websocket: WebSocket, service: Service, query: Query, answers: Replies
    ) -> None:
        self._websocket, self._service, self._query = websocket, service, query
        self._answers, self._limits = answers, service.limits
        self._measures = service.measures
        self._outbox: Outbox[_Sent] = Outbox(_MOST_WAITING)
        self._boosts = StreamBoosts(query, self._limits)
        self._opened: BoostsChanged | None = None
        self._settled = asyncio.Event()  # no change of boosts is under way
        self._room = asyncio.Event()
        self._unanswered = 0
        self._finished: Finished | None = None
        self._ending: _Ending | None = None
        try:
            self.stream = service.engine.open(query.settings, context=self)
        except LimitError as error:
            code = service.unready or "full"  # or there is a place again by now
            raise Problem(503, str(error), code=code, retry_after_s=1) from None
        except BackendError as error:
            raise Problem(500, str(error), code="fault") from None

    def take(self, event: Event) -> None:
        """Take what the engine found; on the loop, waits for nothing."""
        outbox = self._outbox
        if isinstance(event, Words):
            if event.is_final:
                self._unanswered -= event.is_answer
                # A final says more than the interim that still waits.
                outbox.drop_interim()
                outbox.put(event)
            else:
                outbox.put_interim(event)
        elif isinstance(event, BoostsChanged):
            if self._is_opening:
                self._opened = event
            else:
                outbox.put(self._boosts.settled(event, self._answers))
            self._settled.set()
        elif isinstance(event, Finished):
            self._finished = event
            self._settled.set()
            outbox.close()
        elif isinstance(event, Room):
            self._room.set()
        else:
            outbox.put(event)

    @property
    def _is_opening(self) -> bool:
        """Tell whether the list that the stream was opened with is not in force yet."""
        return self._query.settings.boosts is not None and self._opened is None

    async def open(self) -> None:
        """Accept the client, once its boosts are compiled."""
        if self._is_opening:
            await self._settled.wait()
        error = self._opened.error if self._opened is not None else None
        if error is None and self._finished is not None:
            error = self._finished.error
        if isinstance(error, _CLIENTS_FAULTS):
            raise Problem(400, str(error), "keyterm", code="invalid_value")
        if error is not None:
            request = self._answers.request_id
            _log.error("stream %s: no opening", request, exc_info=error)
            raise Problem(500, "the server failed; its log says why", code="fault")
        self._settled.set()
        try:
            await self._websocket.accept(
                subprotocol=self._websocket.scope.get("wfstdec.subprotocol"),
                headers=[(b"dg-request-id", self._answers.request_id.encode())],
            )
        except (WebSocketDisconnect, RuntimeError) as gone:
            raise _Gone from gone
        # At once, where the client may not have what it thinks.
        if self._query.ignored or self._warnings:
            self._outbox.put(self._metadata(0.0))

    def _metadata(self, heard_s: float) -> Json:
        return self._answers.metadata(heard_s, self._query.ignored, self._warnings)

    @property
    def _warnings(self) -> tuple[str, ...]:
        boosts = self._opened.warnings if self._opened is not None else ()
        return (*self._query.warnings, *boosts)

    async def run(self) -> _Ending | None:
        """Talk until one side is done; how to close, or None where nobody is there."""
        reader = asyncio.create_task(self._read())
        writer = asyncio.create_task(self._write())
        both = (reader, writer)
        try:
            await asyncio.wait(both, return_when=asyncio.FIRST_COMPLETED)
            return (writer if writer.done() else reader).result()
        except _Gone:
            return None
        except _Unread:
            text = f"nothing was read for {self._limits.unread_s:g} s"
            return self._cut_off("unread", 1013, text, "unread_s")
        finally:
            for task in both:
                task.cancel()
            await asyncio.gather(*both, return_exceptions=True)

    async def _read(self) -> _Ending | None:
        """Give what the client sends to the engine, until it has gone."""
        pace, limits = _Pace(), self._limits
        while True:
            idle_s = limits.idle_s if self._ending is None else None
            try:
                async with asyncio.timeout(idle_s):
                    message = await self._websocket.receive()
            except TimeoutError:
                text = f"no message for {idle_s:g} s, expected audio or KeepAlive"
                self._end(self._cut_off("idle", 1011, text, "idle_s"))
                continue
            if message["type"] == "websocket.disconnect":
                if message.get("code") == 1009:
                    self._measures.failed("message_size")
                raise _Gone
            found = message.get("bytes") or message.get("text") or b""
            if len(found) > (most := limits.message_bytes):
                text = f"a message of {len(found)}, expected at most {most} bytes"
                return self._cut_off("message_size", 1009, text, "message_bytes")
            await pace.step()
            if self._ending is not None:
                continue  # what comes now comes too late
            if isinstance(found, str):
                await self._obey(found)
            elif found:
                self.stream.send(found)
            await self._hold_back()

    def _cut_off(self, kind: str, code: int, text: str, limit: str) -> _Ending:
        """Count a stream that is beyond a limit; how it is closed."""
        self._measures.failed(kind)
        return _Ending(code, f"{text}; {self._limits.remedy(limit)}")

    async def _hold_back(self) -> None:
        """Wait while so much waits that no more is received; TCP holds the client."""
        self._room.clear()
        while self.stream.is_full:
            # The engine says `Room`; what a container holds may grow without it.
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_ROOM_S):
                    await self._room.wait()
            self._room.clear()
        while len(self._outbox) > _WAITING or self._unanswered > _UNANSWERED:
            await asyncio.sleep(_LOOK_S)

    def _end(self, ending: _Ending) -> None:
        """Let the stream come to its end: finals, then this close."""
        self._ending = ending
        self.stream.finish()

    async def _obey(self, text: str) -> None:
        """Do what a text message says."""
        try:
            message = await _apart(text, lambda: read_message(text))
        except MessageError as error:
            wrong = self._answers.error("SchemaError", str(error), error.found)
            self._outbox.put(wrong)
            return
        match message:
            case Configure() as wanted:
                # After the change before is settled.
                await self._settled.wait()
                try:
                    boosts = await _apart(text, lambda: self._boosts.asked(wanted))
                except (BoostError, OptionError) as error:
                    self._outbox.put(refusal(error, self._answers))
                    return
                self._settled.clear()
                self.stream.change_boosts(boosts)
            case Plain("Finalize"):
                self._unanswered += 1
                self.stream.flush()
            case Plain("CloseStream"):
                self._end(_Ending(1000))

    async def _write(self) -> _Ending:
        """Send what the engine found, until it has ended the stream."""
        while (message := await self._outbox.next()) is not None:
            if not isinstance(message, dict):
                message = self._answers.of(message)
            await self._send(message)
        if self._outbox.overflowed:
            raise _Unread
        finished = self._finished
        assert finished is not None
        ending = self._ending or _Ending(1001, "the server is about to stop")
        if finished.error is not None:
            ending = await self._tell(finished.error)
        await self._send(self._metadata(finished.heard_s))
        return ending

    async def _tell(self, error: Exception) -> _Ending:
        """Send what has ended the stream."""
        kind, description = type(error).__name__, str(error)
        if not isinstance(error, WfstdecError):
            kind, description = "Fault", "the server failed; its log says why"
        if not isinstance(error, _CLIENTS_FAULTS):
            request = self._answers.request_id
            _log.error("stream %s failed", request, exc_info=error)
        await self._send(self._answers.error(kind, description))
        code = 1008 if isinstance(error, _CLIENTS_FAULTS) else 1011
        return _Ending(code, description)

    async def _send(self, message: Json) -> None:
        """Send a message."""
        text = json.dumps(message)
        try:
            async with asyncio.timeout(self._limits.unread_s):
                await self._websocket.send_text(text)
        except TimeoutError:
            raise _Unread from None
        except (WebSocketDisconnect, RuntimeError) as gone:
            # RuntimeError: the server has closed it, and says so to the reader.
            raise _Gone from gone


class _Pace:
    """Holds back a client of very many messages, and lets others run in between."""

    def __init__(self) -> None:
        self._count, self._began = 0, time.monotonic()

    async def step(self) -> None:
        """Count a message, and wait where there are too many."""
        self._count += 1
        if self._count % _BREATH:
            return
        passed = time.monotonic() - self._began
        await asyncio.sleep(max(0.0, self._count / _MESSAGES_PER_S - passed))
        if passed > 1:
            self._count, self._began = 0, time.monotonic()


async def _apart(text: str, work: Callable[[], _Found]) -> _Found:
    """Do the work of a message; of a long one in a thread, so that nobody waits."""
    return work() if len(text) < _LONG else await asyncio.to_thread(work)
