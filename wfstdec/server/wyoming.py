"""Wyoming over TCP, the protocol of Home Assistant's voice services.

    server = Server(service, listening)
    await server.start(...)            # by DrainingServer, on its loop

An event is a line of JSON, `{"type", "data"?, "data_length"?, "payload_length"?}`, then
`data_length` bytes of JSON that are merged into `data`, then the payload. For each
utterance a client sends `transcribe`, `audio-start`, `audio-chunk`s and `audio-stop`;
it receives `transcript-start`, `transcript-chunk`s of final words, `transcript` and
`transcript-stop`.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import socket
import time
import uuid
from collections.abc import MutableMapping
from typing import Any, NamedTuple

import wfstdec
from wfstdec.boost.lists import BoostsLike
from wfstdec.errors import OptionError
from wfstdec.server.boosts import requested_boosts
from wfstdec.server.connection import (
    CLIENTS_FAULTS,
    SERVERS_FAULT,
    STOPS,
    Connection,
    Ending,
    Gone,
    Json,
    Unread,
    apart,
    error_ending,
)
from wfstdec.server.limits import RequestError
from wfstdec.server.readable import ShownWords
from wfstdec.server.service import Service
from wfstdec.server.stream import Event, Finished, StreamSettings, Words
from wfstdec.text.display import extend_text, join_words, short

_ECHO = 200  # characters of a text repeated in an error
_LINE = 1 << 16  # bytes of the first line of an event, at most
_LAST_S = 1.0  # to send the last event, and for the client to close
_ENCODINGS = {2: "linear16", 4: "linear32"}  # By bytes of a sample
_FORM = "rate", "width", "channels"

_log = logging.getLogger("wfstdec.server.requests")


class _Request(NamedTuple):
    kind: str
    data: Json
    payload: bytes = b""


class Server:
    """Connections of a bound socket."""

    def __init__(self, service: Service, listening: socket.socket) -> None:
        self._service, self.listening = service, listening

    async def start(
        self,
        listening: socket.socket,
        tasks: set[asyncio.Task[None]],  # has one for each open connection
        idle: MutableMapping[int, Any],  # sockets without an utterance, by number
    ) -> asyncio.Server:
        """Accept connections; `listening` replaces the socket."""
        self._tasks, self._idle = tasks, idle
        return await asyncio.start_server(self._serve, sock=listening, limit=_LINE)

    async def _serve(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        service, began, code = self._service, time.perf_counter(), 1000
        connection = _Connection(reader, writer, service, self._idle)
        task: Any = asyncio.current_task()
        self._tasks.add(task)
        try:
            ending = await connection.run()
            code = ending.code
            await connection.close(ending)
        except (Gone, asyncio.CancelledError):  # cancelled: cut off by a drain
            pass
        except Exception:
            code = 1011
            _log.exception("connection %s failed", connection.name)
            service.metrics.errors.labels("handler").inc()
            text = f"{SERVERS_FAULT}, at {connection.name}"
            await connection.close(Ending(code, text, "fault"))
        finally:
            connection.abort()
            connection.leave()
            writer.transport.abort()
            self._tasks.discard(task)
            seconds = time.perf_counter() - began
            service.metrics.requests.labels("wyoming", str(code)).observe(seconds)
            _log.info("%s wyoming %d %.3f s", connection.client, code, seconds)


class _Connection(Connection):
    """Connection with a client; `streams` has that of the open utterance."""

    waits_for = "an event"

    def __init__(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        service: Service,
        idle: MutableMapping[int, Any],
    ) -> None:
        super().__init__(service)
        self.name, self._idle = str(uuid.uuid4()), idle
        self._reader, self._writer = reader, writer
        self._socket = writer.get_extra_info("socket")
        self.client = (writer.get_extra_info("peername") or ("-",))[0]
        self._counted = contextlib.ExitStack()
        self._boosts: BoostsLike = None  # of the next utterance
        self._form: tuple[Any, ...] = ()  # of the open utterance
        self._text = ""
        self._is_refused = False  # of this utterance, whose remaining audio is ignored
        self._shown = ShownWords(service.readable.formatter())
        self._finished = asyncio.Event()

    async def receive(self) -> tuple[_Request | Exception, int]:
        """Wait for an event or a format error; return it with its size in bytes."""
        try:
            line = await self._reader.readline()
        except ValueError:
            return _unframed(f"a line of more than {_LINE} bytes"), 0
        except OSError as error:
            raise Gone from error
        if not line.endswith(b"\n"):
            raise Gone
        try:
            header = json.loads(line)
            kind, data = header["type"], header.get("data") or {}
            sizes = [header.get(f"{of}_length") or 0 for of in ("data", "payload")]
        except (ValueError, RecursionError, TypeError, KeyError, AttributeError):
            return _unframed(short(line)), 0
        if not all(type(size) is int and 0 <= size < 1 << 62 for size in sizes):
            return _unframed("lengths that are none"), 0
        size = len(line) + sum(sizes)
        if size > self.limits.message_bytes:
            return _unframed("too much"), size  # the base class closes
        try:
            more, payload = [await self._reader.readexactly(size) for size in sizes]
        except (asyncio.IncompleteReadError, OSError) as error:
            raise Gone from error
        try:
            text = more.decode()
            added = await apart(text, lambda: json.loads(text)) if text else {}
            return _Request(kind, {**data, **added}, payload), size
        except (ValueError, RecursionError, TypeError):
            wrong = f"{short(kind)}: data of {short(more or data)}, expected an object"
            return OptionError(wrong), size

    async def obey(self, message: _Request | Exception) -> bool:
        """Handle an event; others than these have no meaning here."""
        try:
            if isinstance(message, Exception):
                raise message
            kind, data, payload = message
            if kind == "describe":
                self.outbox.send(("info", {"asr": [_program(self.service)]}))
            elif kind == "ping":
                text = data.get("text")
                text = text[:_ECHO] if isinstance(text, str) else None
                self.outbox.send(("pong", {"text": text}))
            elif kind == "transcribe":
                self._boosts = None  # also if the list is refused
                self._boosts = await asyncio.to_thread(
                    requested_boosts,
                    keyterms=data.get("transcript_names") or (),
                    boosts=data.get("transcript_terms"),
                    limits=self.limits,
                )
            elif kind == "audio-start":
                self._begin(data)
            elif kind == "audio-chunk":
                return self._pass_on(data, payload)
            elif kind == "audio-stop":
                await self._stop()
        except CLIENTS_FAULTS as error:
            self.outbox.send(_error(str(error), type(error).__name__))
        except RequestError as error:
            if error.status != 503:  # those are the engine's, which counts them
                self.metrics.refused.labels(error.code or "").inc()
            self.end(Ending(1008, error.message, error.code or ""))
        return False

    def _begin(self, data: Json) -> None:
        if self.streams:
            raise OptionError("audio-start in an utterance, expected audio-stop first")
        self._is_refused = True
        form: tuple[Any, ...] = tuple(data.get(name) for name in _FORM)
        boosts = self._boosts
        self._boosts = None
        if not all(type(one) is int for one in form) or form[1] not in _ENCODINGS:
            shown = ", ".join(map(short, form))
            raise OptionError(
                f"audio-start with {', '.join(_FORM)} = {shown}, expected whole "
                "numbers, and 2 or 4 as the width"
            )
        rate, width, channels = form
        settings = StreamSettings(_ENCODINGS[width], rate, channels, boosts)
        if self.service.warming:
            self.metrics.refused.labels("warming").inc()
            raise RequestError(503, "the server is starting", code="warming")
        self._counted.enter_context(self.service.counting(self.client))
        self.open_stream(settings)
        self._idle.pop(self._socket.fileno(), None)
        self._form, self._text, self._is_refused = form, "", False
        self._shown = ShownWords(self.service.readable.formatter())
        self._finished.clear()
        self.outbox.send(("transcript-start", {"language": self.service.language}))

    def _pass_on(self, data: Json, payload: bytes) -> bool:
        if self.streams:
            form = tuple(data.get(name) for name in _FORM)
            if form != self._form:
                raise OptionError(
                    f"audio-chunk with {', '.join(_FORM)} = {short(form)}, expected "
                    f"{self._form} as in audio-start"
                )
            self.streams[0].send(payload)
        elif not self._is_refused:
            self._is_refused = True  # one error for all chunks of it
            raise OptionError("audio-chunk outside an utterance, expected audio-start")
        return bool(self.streams and payload)

    async def _stop(self) -> None:
        if self.streams:
            self.streams[0].finish()
            await self._finished.wait()
        elif not self._is_refused:
            raise OptionError("audio-stop outside an utterance, expected audio-start")
        self._is_refused = False

    def take(self, event: Event, stream: int) -> None:
        if isinstance(event, Words):
            words = self._shown.of(event).words
            if words:
                text = join_words(word.text for word in words)
                text = extend_text(self._text, text)
                self._text += text
                self.outbox.send(("transcript-chunk", {"text": text}))
        elif isinstance(event, Finished):
            self.leave()
            if event.error is not None:
                kind, ending = error_ending(event.error, self.name)
                self.end(ending._replace(kind=kind))
            else:
                text, language = self._text, self.service.language
                data = {"text": text, "language": language}
                self.outbox.send(("transcript", data))
                self.outbox.send(("transcript-stop", {}))
            if self.ending is not None:
                self.outbox.close()
            self._finished.set()

    def leave(self) -> None:
        self.streams.clear()
        self._counted.close()
        if (number := self._socket.fileno()) >= 0:
            self._idle[number] = self._socket

    async def transmit(self, message: tuple[str, Json]) -> None:
        kind, data = message
        body = json.dumps(data).encode()
        header = json.dumps({"type": kind, "data_length": len(body)}).encode()
        try:
            self._writer.write(header + b"\n" + body)
            await self._writer.drain()
        except OSError as error:
            raise Gone from error

    async def finish(self) -> Ending:
        """Return how to close; `close` sends the reason."""
        assert self.ending is not None
        return self.ending

    async def close(self, ending: Ending) -> None:
        """Send the reason of the close, if it is an error."""
        if ending.code == 1013 or ending == STOPS:  # a slow reader, or no error
            return
        with contextlib.suppress(Gone, Unread, OSError, TimeoutError):
            if ending.reason:
                await self.send(_error(ending.reason, ending.kind))
            self._writer.write_eof()
            async with asyncio.timeout(_LAST_S):
                # Closed with bytes unread, a connection is reset, and the event lost.
                while await self._reader.read(_LINE):
                    pass


def _unframed(found: str) -> RequestError:
    text = f"found {found}, expected a line of JSON with a type and lengths"
    return RequestError(400, text, code="framing")


def _error(text: str, code: str) -> tuple[str, Json]:
    return "error", {"text": text, "code": code}


def _program(service: Service) -> Json:
    ours = {
        "attribution": {"name": "wfstdec", "url": ""},
        "installed": True,
        "version": wfstdec.__version__,
    }
    model = {"name": service.name, "description": service.name, **ours}
    return {
        "name": "wfstdec",
        "description": "speech recognition with lexicon and language model",
        **ours,
        "models": [{**model, "languages": [service.language]}],
        "supports_transcript_streaming": True,
        "requires_external_vad": True,  # an utterance ends by audio-stop
    }
