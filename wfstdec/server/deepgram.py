"""`WS /v1/listen`, as Deepgram's clients speak it: query, messages, boosts, replies.

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
import re
import time
import uuid
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
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
from wfstdec.server.limits import LISTEN, Limits, RequestError, read_value, wrong_value
from wfstdec.server.service import Service
from wfstdec.server.stream import (
    BoostsChanged,
    Event,
    Finished,
    Outbox,
    SpeechStarted,
    StreamSettings,
    UtteranceEnd,
    Words,
)
from wfstdec.server.uvicorn_server import GIVE_UP

Json = dict[str, Any]
_Result = TypeVar("_Result")
_wrong = functools.partial(wrong_value, code="invalid_value")

_log = logging.getLogger(__name__)


# ------------------------------------------------------------------- the query
_ENCODINGS = {
    "linear16": "linear16",
    "mulaw": "mulaw",
    "alaw": "alaw",
    "flac": None,
    "ogg-opus": None,
}
"""Encodings as clients name them; None for what tells itself what it is."""
_RATES = {None: 16000, "linear16": 16000, "mulaw": 8000, "alaw": 8000}
_KNOWN = (
    *("encoding", "sample_rate", "channels", "interim_results", "endpointing"),
    *("utterance_end_ms", "vad_events", "language", "model"),
)
FLAGS = {"true": True, "false": False}
_UTTERANCE_END_MS = 1000, 60_000
_MAX_IGNORED, _NAME_CHARS = 50, 60
"""How many ignored names are reported, and how much of each."""


@dataclass(frozen=True)
class Query:
    """Parameters of a handshake."""

    settings: StreamSettings
    keyterms: tuple[str, ...] = ()  # as they came; `Configure` replaces them
    keywords: tuple[str, ...] = ()
    ignored: tuple[str, ...] = ()  # names that mean nothing here
    warnings: tuple[str, ...] = ()


def read_query(
    items: Iterable[tuple[str, str]], limits: Limits, language: str
) -> Query:
    """Read the query of a handshake, names and values in order."""
    lists: dict[str, list[str]] = {"keyterm": [], "keywords": []}
    given: dict[str, str] = {}
    ignored: dict[str, None] = {}
    for name, value in items:
        if name in lists:
            lists[name].append(value)
        # Ignored rather than refused: clients of other servers send more than we know.
        elif name not in _KNOWN:
            ignored[name[:_NAME_CHARS]] = None
        elif given.setdefault(name, value) != value:
            raise _wrong(name, f"{value!r} beside {given[name]!r}", "one value")
    return Query(
        _settings(given, lists, limits),
        tuple(lists["keyterm"]),
        tuple(lists["keywords"]),
        ignored=tuple(ignored)[:_MAX_IGNORED],
        warnings=tuple(_warnings(given, language)),
    )


def _settings(
    given: dict[str, str], lists: dict[str, list[str]], limits: Limits
) -> StreamSettings:
    def one(name: str, default: Any, read: Callable[[str], Any], expected: str) -> Any:
        text = given.get(name)
        if text is None:
            return default
        return read_value(name, text, read, expected, "invalid_value")

    def flag(name: str) -> bool:
        return one(name, False, lambda x: FLAGS[x.lower()], "true or false")

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
        return StreamSettings(
            encoding=encoding,
            sample_rate=one("sample_rate", _RATES[encoding], _whole, "a whole number"),
            channels=one("channels", 1, _whole, "a whole number"),
            boosts=requested_boosts(
                keyterms=lists["keyterm"], keywords=lists["keywords"], limits=limits
            ),
            interims=interims,
            endpoint_silence_s=one("endpointing", None, _silence, expected),
            utterance_end_s=utterance_end_ms and utterance_end_ms / 1000,
            speech_started=flag("vad_events"),
        )
    except (BoostError, OptionError) as error:
        # The error knows no parameters of queries: its text tells which it is of.
        about = [name for name in ("sample_rate", "channels") if name in str(error)]
        about = about or [name for name in lists if lists[name]]
        param = about[0] if len(about) == 1 else None
        raise RequestError(400, str(error), param, code="invalid_value") from None


def _whole(text: str, least: int = 0, most: int = 10**9 - 1) -> int:
    if re.fullmatch("[0-9]{1,9}", text) and least <= int(text) <= most:
        return int(text)
    raise ValueError(text)


def _silence(text: str) -> float | None:
    if text.lower() in FLAGS:
        return None if FLAGS[text.lower()] else math.inf
    return (_whole(text, most=_UTTERANCE_END_MS[1]) or math.inf) / 1000


def _warnings(given: dict[str, str], language: str) -> Iterable[str]:
    def base(name: str) -> str:
        return name.replace("_", "-").partition("-")[0].lower()

    asked = given.get("language", "")[:_NAME_CHARS]
    if asked and base(asked) != base(language):
        yield f"language {asked!r}, the server hears {language!r}"
    if "sample_rate" in given and _ENCODINGS.get(given.get("encoding", "")) is None:
        yield (
            "sample_rate without encoding=linear16, mulaw or alaw: the audio is taken "
            "as a file that says its own"
        )


# ------------------------------------------------------------------- messages
_PLAIN = ("KeepAlive", "Finalize", "CloseStream")
_LISTS = ("keyterms", "keywords", "boosts")
_SHOWN, _MAX_SHOWN = 200, 20
"""How much of a wrong message its sender sees again, and of how many names."""


class MessageError(ValueError):
    """A client's message cannot be understood; the text tells what was expected."""

    def __init__(self, found: str, expected: str) -> None:
        self.found = found[:_SHOWN]
        super().__init__(f"found {self.found!r}, expected {expected}")


class Configure(NamedTuple):
    """Lists that replace those before, not checked yet, and names that are ignored."""

    lists: Json
    ignored: tuple[str, ...] = ()


def read_message(text: str) -> str | Configure:
    """Read a text message: `Configure`, or the type of one without content."""
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        raise MessageError(text, "an object of JSON") from None
    kind = found.get("type") if isinstance(found, dict) else None
    if kind == "Configure":
        # A null is as good as nothing, as in many generated clients.
        more = {name: value for name, value in found.items() if value is not None}
        del more["type"]
        lists = {name: more.pop(name) for name in _LISTS if name in more}
        return Configure(lists, tuple(name[:_SHOWN] for name in more)[:_MAX_SHOWN])
    if isinstance(kind, str) and kind in _PLAIN:
        return kind
    expected = ", ".join(map(repr, (*_PLAIN, "Configure")))
    raise MessageError(text, f"an object of JSON with a 'type' of {expected}")


class StreamBoosts:
    """Boosts of a stream, and the change to them that is under way: one at a time."""

    def __init__(self, query: Query, limits: Limits) -> None:
        self._limits = limits
        self._lists: Json = {"keyterms": query.keyterms, "keywords": query.keywords}
        self._pending = self._lists, Configure({})

    def request(self, message: Configure) -> BoostsLike:
        """Make the list of a message; `settled` comes when the engine has it."""
        lists = {**self._lists, **message.lists}
        boosts = requested_boosts(**lists, limits=self._limits)
        self._pending = lists, message
        return boosts

    def settled(self, event: BoostsChanged, replies: Replies) -> Json:
        """Keep the list, if the engine has taken it; the reply to the client."""
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


# ------------------------------------------------------------------- replies
_SPACE = uuid.UUID("0d7d4a4e-6b0f-5f5c-9f7c-7a4d3c1f2b68")
"""A name space of our own: the same model has the same id on every server."""


def _now() -> str:
    time = datetime.datetime.now(datetime.UTC).isoformat(timespec="milliseconds")
    return time.replace("+00:00", "Z")


@dataclass(frozen=True)
class Replies:
    """Messages to a stream's client."""

    model: str
    request_id: str = field(default_factory=lambda: str(uuid.uuid4()))
    created: str = field(default_factory=_now)

    @property
    def model_uuid(self) -> str:
        """Number of the model."""
        return str(uuid.uuid5(_SPACE, self.model))

    @property
    def model_info(self) -> Json:
        """Name, version and kind of the model."""
        return {"name": self.model, "version": wfstdec.__version__, "arch": "ctc"}

    def of(self, event: Words | SpeechStarted | UtteranceEnd) -> Json:
        """Make the message of an event."""
        if isinstance(event, SpeechStarted):
            return {"type": "SpeechStarted", "channel": [0], "timestamp": event.at_s}
        if isinstance(event, UtteranceEnd):
            last = event.last_word_end_s
            return {"type": "UtteranceEnd", "channel": [0, 1], "last_word_end": last}
        message: Json = {
            "type": "Results",
            "channel_index": [0, 1],
            "start": event.start_s,
            "duration": max(event.end_s - event.start_s, 0.0),
            "is_final": event.is_final,
            "speech_final": event.is_endpoint,
            "channel": {"alternatives": _alternatives(event)},
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
        """Tell what the stream is, or was; without a digest of the audio."""
        return self.reply(
            "Metadata",
            transaction_key="deprecated",
            sha256="",
            created=self.created,
            duration=audio_s,
            channels=1,
            ignored=list(ignored),
            warnings=list(warnings),
        )

    def not_configured(self, error: Exception) -> Json:
        """Tell why a list is not taken, with Deepgram's code where there is one."""
        code = "INVALID" if isinstance(error, ValueError) else "INTERNAL_ERROR"
        if isinstance(error, OptionError):
            code = "KEYTERM_LIMIT_EXCEEDED"
        text = str(error)
        return self.reply(
            "ConfigureFailure", code=f"CONFIGURE_{code}", description=text
        )

    def error(self, variant: str, description: str, message: str = "") -> Json:
        """Tell what is wrong; `message` is the client's own that it is about."""
        return self.reply(
            "Error", variant=variant, description=description, message=message
        )

    def reply(self, kind: str, **fields: Any) -> Json:
        """Make a message with the number of the request."""
        return {"type": kind, "request_id": self.request_id, **fields}


def _alternatives(event: Words) -> list[Json]:
    """The words that are new; at the end of an utterance the n-best list too."""
    if not event.hypotheses:
        return [alternative(event.words, None)]
    best, *others = event.hypotheses
    found = [alternative(event.words, best)]
    # What was sent of the utterance before is left out of all of them.
    start_s = event.start_s if len(event.words) < len(best.words) else -math.inf
    for one in others:
        words = [word for word in one.words if word.start_s >= start_s]
        found.append(alternative(words, one))
    return found


def alternative(words: Sequence[Word], whole: Hypothesis | None) -> Json:
    """Make the words and the text of a hypothesis, `whole`, or of a part of it."""
    known = [word.confidence for word in words if word.confidence is not None]
    found: Json = {
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
        found["cost"] = float(whole.total_cost)
    return found


# ------------------------------------------------------------------- the connection
_CLIENTS_FAULTS = (AudioError, BoostError, OptionError)
"""Errors of what a client sent; others are the server's."""
_SERVERS_FAULT = "the server failed; its log says why"
_WAITING, _UNANSWERED = 100, 8
"""Messages that wait, and flushes without answer, at which a reader stops."""
_POLL_S = 0.02
_MESSAGES_PER_S, _BREATH = 2000, 32
"""Most messages of a client in a second, and how many of them in one go. That it has
gone is seen behind what it sent: some 30,000 of the smallest come with one read."""
_LONG = 1 << 15  # characters of a message that is read apart from the loop
_CLOSE_S = 1.0  # for a close to get into the connection's buffer
_REASON_BYTES = 123  # of a close, as WebSockets have it


def routes() -> list[WebSocketRoute]:
    """Routes for the app."""
    return [WebSocketRoute(LISTEN, _listen)]


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
    replies = Replies(service.name)
    items = websocket.query_params.multi_items()
    websocket.scope["query_string"] = b""  # servers log it, and names are in it
    connection = None
    try:
        query = read_query(items, service.limits, service.language)
        connection = ListenConnection(websocket, service, query, replies)
        await connection.open()
        await _close(websocket, await connection.run())
    except RequestError as error:
        if error.status != 503:  # those are the engine's, which counts them
            service.metrics.refused.labels(error.code or "invalid_value").inc()
        text = " ".join(error.message.split()).encode("ascii", "backslashreplace")
        error.headers["dg-request-id"] = replies.request_id
        error.headers["dg-error"] = text.decode()[:1000]
        with contextlib.suppress(WebSocketDisconnect, RuntimeError):  # it has gone
            await websocket.send_denial_response(error.response())
    except _Gone:
        pass
    except Exception:
        _log.exception("stream %s failed", replies.request_id)
        service.metrics.errors.labels("handler").inc()
        reason = f"{_SERVERS_FAULT}, at {replies.request_id}"
        await _close(websocket, _Ending(1011, reason))
    finally:
        if connection is not None:
            connection.stream.abort()


async def _close(websocket: WebSocket, ending: _Ending) -> None:
    """Close, if the client is still there; without it where it does not read."""
    reason = ending.reason.encode()[:_REASON_BYTES].decode(errors="ignore")
    give_up = websocket.scope.get(GIVE_UP)
    if ending.code == 1013 and give_up is not None:
        give_up(ending.code, reason)
        return
    with contextlib.suppress(WebSocketDisconnect, RuntimeError, TimeoutError):
        async with asyncio.timeout(_CLOSE_S):
            await websocket.close(ending.code, reason)


class ListenConnection:
    """Connection with a client, and its stream in the engine."""

    def __init__(
        self, websocket: WebSocket, service: Service, query: Query, replies: Replies
    ) -> None:
        self._websocket, self._query, self._replies = websocket, query, replies
        self._limits, self._metrics = service.limits, service.metrics
        # Events become messages only when they are sent.
        self._outbox = Outbox[Words | SpeechStarted | UtteranceEnd | Json]()
        self._boosts = StreamBoosts(query, service.limits)
        self._opened: BoostsChanged | None = None
        self._settled = asyncio.Event()  # no change of boosts is under way
        self._loop = asyncio.get_running_loop()
        self._unanswered = 0
        self._finished: Finished | None = None
        self._ending: _Ending | None = None
        self._num_messages, self._paced_from = 0, time.monotonic()
        try:
            self.stream = service.engine.open(query.settings, self._take_soon)
        except LimitError as error:
            code = service.unready or "full"  # or there is a place again by now
            raise RequestError(503, str(error), code=code, retry_after_s=1) from None
        except BackendError as error:
            raise RequestError(500, str(error), code="fault") from None

    def _take_soon(self, event: Event) -> None:
        """Hand an event of the engine's thread to the loop."""
        with contextlib.suppress(RuntimeError):  # the loop is closed
            self._loop.call_soon_threadsafe(self._take, event)

    def _take(self, event: Event) -> None:
        outbox = self._outbox
        if isinstance(event, Words):
            if event.is_final:
                self._unanswered -= event.is_answer
                # A final has more than the interim that still waits.
                outbox.drop_interim()
            outbox.send(event, is_interim=not event.is_final)
        elif isinstance(event, BoostsChanged):
            if self._is_opening:
                self._opened = event
            else:
                outbox.send(self._boosts.settled(event, self._replies))
            self._settled.set()
        elif isinstance(event, Finished):
            self._finished = event
            self._settled.set()
            outbox.close()
        else:
            outbox.send(event)

    @property
    def _is_opening(self) -> bool:
        """Tell whether the list that the stream was opened with is not in force yet."""
        return self._query.settings.boosts is not None and self._opened is None

    async def open(self) -> None:
        """Accept the client, once its boosts are compiled."""
        if self._is_opening:
            await self._settled.wait()
        ends = [one for one in (self._opened, self._finished) if one is not None]
        error = next((one.error for one in ends if one.error is not None), None)
        if isinstance(error, _CLIENTS_FAULTS):
            raise RequestError(400, str(error), "keyterm", code="invalid_value")
        request_id = self._replies.request_id
        if error is not None:
            _log.error("stream %s: no opening", request_id, exc_info=error)
            raise RequestError(500, _SERVERS_FAULT, code="fault")
        self._settled.set()
        try:
            await self._websocket.accept(
                subprotocol=self._websocket.scope.get("wfstdec.subprotocol"),
                headers=[(b"dg-request-id", request_id.encode())],
            )
        except (WebSocketDisconnect, RuntimeError) as gone:
            raise _Gone from gone
        # At once, where the client may not have what it thinks.
        first = self._metadata(0.0)
        if first["ignored"] or first["warnings"]:
            self._outbox.send(first)

    def _metadata(self, audio_s: float) -> Json:
        boosts = self._opened.warnings if self._opened is not None else ()
        warnings = (*self._query.warnings, *boosts)
        return self._replies.metadata(audio_s, self._query.ignored, warnings)

    async def run(self) -> _Ending:
        """Serve the client until one side is done; how to close."""
        both = asyncio.create_task(self._read()), asyncio.create_task(self._write())
        reader, writer = both
        try:
            await asyncio.wait(both, return_when=asyncio.FIRST_COMPLETED)
            return (writer if writer.done() else reader).result()
        except _Unread:
            text = f"nothing was read for {self._limits.unread_s:g} s"
            return self._cut_off("unread", 1013, text, "unread_s")
        finally:
            for task in both:
                task.cancel()
            await asyncio.gather(*both, return_exceptions=True)

    async def _read(self) -> _Ending:
        """Give what the client sends to the engine, until it has gone."""
        limits = self._limits
        silent_at = time.monotonic() + limits.silent_s
        while True:
            wait_s, left_s = None, silent_at - time.monotonic()
            if self._ending is None:
                wait_s = min(limits.idle_s, left_s)
            try:
                if wait_s is not None and wait_s <= 0:  # messages keep coming
                    raise TimeoutError
                async with asyncio.timeout(wait_s):
                    message = await self._websocket.receive()
            except TimeoutError:
                kind, text = "idle", f"no message for {limits.idle_s:g} s, "
                text += "expected audio or KeepAlive"
                if left_s < limits.idle_s:
                    kind, text = "silent", f"no audio for {limits.silent_s:g} s"
                self._end(self._cut_off(kind, 1011, text, f"{kind}_s"))
                continue
            if message["type"] == "websocket.disconnect":
                if message.get("code") == 1009:
                    self._metrics.errors.labels("message_size").inc()
                raise _Gone
            data = message.get("bytes") or message.get("text") or b""
            if len(data) > (most := limits.message_bytes):
                text = f"a message of {len(data)}, expected at most {most} bytes"
                return self._cut_off("message_size", 1009, text, "message_bytes")
            await self._keep_pace()
            if self._ending is not None:
                continue  # what comes now comes too late
            if isinstance(data, str):
                await self._obey(data)
            elif data:
                self.stream.send(data)
                silent_at = time.monotonic() + limits.silent_s
            await self._hold_back()

    def _cut_off(self, kind: str, code: int, text: str, limit: str) -> _Ending:
        """Count a stream that is beyond a limit; how it is closed."""
        self._metrics.errors.labels(kind).inc()
        return _Ending(code, f"{text}; {self._limits.remedy(limit)}")

    async def _keep_pace(self) -> None:
        """Hold back a client of very many messages, and let others run in between."""
        self._num_messages += 1
        if self._num_messages % _BREATH:
            return
        passed = time.monotonic() - self._paced_from
        await asyncio.sleep(max(0.0, self._num_messages / _MESSAGES_PER_S - passed))
        if passed > 1:
            self._num_messages, self._paced_from = 0, time.monotonic()

    async def _hold_back(self) -> None:
        """Wait while so much waits that no more is received; TCP holds the client."""
        while (
            self.stream.is_full
            or len(self._outbox) > _WAITING
            or self._unanswered > _UNANSWERED
        ):
            await asyncio.sleep(_POLL_S)

    def _end(self, ending: _Ending) -> None:
        """Let the stream come to its end: finals, then this close."""
        self._ending = ending
        self.stream.finish()

    async def _obey(self, text: str) -> None:
        """Do what a text message asks for."""
        try:
            message = await _apart(text, lambda: read_message(text))
        except MessageError as error:
            wrong = self._replies.error("SchemaError", str(error), error.found)
            self._outbox.send(wrong)
            return
        if isinstance(message, Configure):
            await self._settled.wait()  # the change before
            try:
                boosts = await _apart(text, lambda: self._boosts.request(message))
            except (BoostError, OptionError) as error:
                self._outbox.send(self._replies.not_configured(error))
                return
            self._settled.clear()
            self.stream.change_boosts(boosts)
        elif message == "Finalize":
            self._unanswered += 1
            self.stream.flush()
        elif message == "CloseStream":
            self._end(_Ending(1000))

    async def _write(self) -> _Ending:
        """Send events and replies, until the engine has ended the stream."""
        while (message := await self._outbox.next()) is not None:
            if not isinstance(message, dict):
                message = self._replies.of(message)
            await self._send(message)
        finished = self._finished
        assert finished is not None
        ending = self._ending or _Ending(1001, "the server is about to stop")
        if finished.error is not None:
            ending = await self._send_error(finished.error)
        await self._send(self._metadata(finished.audio_s))
        return ending

    async def _send_error(self, error: Exception) -> _Ending:
        """Send what has ended the stream; how it is closed."""
        kind, description = type(error).__name__, str(error)
        if not isinstance(error, WfstdecError):
            kind, description = "Fault", _SERVERS_FAULT
        is_clients = isinstance(error, _CLIENTS_FAULTS)
        if not is_clients:
            request_id = self._replies.request_id
            _log.error("stream %s failed", request_id, exc_info=error)
        await self._send(self._replies.error(kind, description))
        return _Ending(1008 if is_clients else 1011, description)

    async def _send(self, message: Json) -> None:
        text = json.dumps(message)
        try:
            async with asyncio.timeout(self._limits.unread_s):
                await self._websocket.send_text(text)
        except TimeoutError:
            raise _Unread from None
        except (WebSocketDisconnect, RuntimeError) as gone:
            # RuntimeError: the server has closed it, and tells the reader so.
            raise _Gone from gone


async def _apart(text: str, work: Callable[[], _Result]) -> _Result:
    """Do the work of a message; of a long one in a thread, so that nothing waits."""
    return work() if len(text) < _LONG else await asyncio.to_thread(work)
