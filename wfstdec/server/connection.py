"""Connections: messages of a client to its streams, and their events back.

A protocol is a subclass with the five abstract methods. `run` reads and sends
concurrently, and enforces the limits: pace, size, silence, and unread messages.
"""

from __future__ import annotations

import abc
import asyncio
import contextlib
import json
import logging
import time
from collections.abc import Callable
from typing import Any, NamedTuple, TypeVar

from starlette.websockets import WebSocket, WebSocketDisconnect

from wfstdec.errors import (
    AudioError,
    BackendError,
    BoostError,
    LimitError,
    OptionError,
    WfstdecError,
)
from wfstdec.server.limits import RequestError
from wfstdec.server.service import Service
from wfstdec.server.stream import Event, Outbox, Stream, StreamSettings, Words

Json = dict[str, Any]
_Result = TypeVar("_Result")

CLIENTS_FAULTS = (AudioError, BoostError, OptionError)
"""Errors caused by the client; others are the server's."""
GIVE_UP = "wfstdec.give_up"  # Key in a WebSocket's scope of `give_up(code, reason)`
SERVERS_FAULT = "the server failed; its log says why"
_WAITING, _UNANSWERED = 100, 8
"""Queued messages, and unanswered flushes, at which a reader stops."""
_POLL_S = 0.02
_MESSAGES_PER_S, _BREATH = 2000, 32
"""Messages of a client in a second, and in one go, at most. A disconnect is noticed
only after the messages before it: some 30,000 of the smallest come with one read.
"""
_LONG = 1 << 15  # characters of a message that is parsed in a worker thread
_CLOSE_S = 1.0  # for a close to get into the connection's buffer
_REASON_BYTES = 123  # of a close reason (RFC 6455)

_log = logging.getLogger(__name__)


class Ending(NamedTuple):
    """Close code (of WebSockets), error kind and reason of a connection."""

    code: int
    reason: str = ""
    kind: str = ""  # of an error, where a protocol has a name for it


STOPS = Ending(1001, "the server is about to stop")


class Gone(Exception):
    """The client has disconnected."""


class Unread(Exception):
    """The client does not read its messages."""


class Connection(abc.ABC):
    """Connection with a client, and its streams in the engine."""

    waits_for = "audio"
    """Expected message, for the error after a silence."""

    def __init__(self, service: Service) -> None:
        self.service, self.idle_s = service, service.limits.idle_s
        self.limits, self.metrics = service.limits, service.metrics
        # Events become messages only when they are sent.
        self.outbox = Outbox[Any]()
        self.streams: list[Stream] = []
        self.ending: Ending | None = None  # set while finals are pending
        self._loop = asyncio.get_running_loop()
        self._unanswered = 0
        self._num_messages, self._paced_from = 0, time.monotonic()

    @abc.abstractmethod
    async def receive(self) -> tuple[Any, int]:
        """Wait for a message, and return it with its size in bytes. Raises Gone."""

    @abc.abstractmethod
    async def obey(self, message: Any) -> bool:
        """Handle a message; return whether it had audio."""

    @abc.abstractmethod
    def take(self, event: Event, stream: int) -> None:
        """Handle an event of a stream, by its index in `streams`."""

    @abc.abstractmethod
    async def transmit(self, message: Any) -> None:
        """Send a message of the outbox. Raises Gone."""

    @abc.abstractmethod
    async def finish(self) -> Ending:
        """Send the last messages, after the outbox is closed; return how to close."""

    def open_stream(self, settings: StreamSettings) -> Stream:
        """Open a stream, or raise RequestError."""
        place = len(self.streams)

        def take_soon(event: Event) -> None:  # in the engine's thread
            with contextlib.suppress(RuntimeError):  # the loop is closed
                self._loop.call_soon_threadsafe(take, event)

        def take(event: Event) -> None:
            if not stream.is_aborted:
                self._take(event, place)

        try:
            stream = self.service.engine.open(settings, take_soon)
        except LimitError as error:
            code = self.service.unready or "full"  # or there is room again by now
            raise RequestError(503, str(error), code=code, retry_after_s=1) from None
        except BackendError as error:
            raise RequestError(500, str(error), code="fault") from None
        self.streams.append(stream)
        return stream

    def _take(self, event: Event, stream: int) -> None:
        if isinstance(event, Words) and event.is_final:
            self._unanswered -= event.is_answer
            # A final includes the words of the interim that still waits.
            self.outbox.drop_interim(stream)
        self.take(event, stream)

    def flush(self) -> None:
        """Make all audio sent so far final."""
        for stream in self.streams:
            self._unanswered += 1
            stream.flush()

    def end(self, ending: Ending) -> None:
        """End the streams with their finals, then close with this ending."""
        self.ending = ending
        for stream in self.streams:
            stream.finish()
        if not self.streams:
            self.outbox.close()

    def abort(self) -> None:
        """Abort all streams."""
        for stream in self.streams:
            stream.abort()
        self.streams.clear()
        self._unanswered = 0

    async def run(self) -> Ending:
        """Serve the client until one side is done; return how to close."""
        both = asyncio.create_task(self._read()), asyncio.create_task(self._write())
        reader, writer = both
        self.service.connections.add(self)
        if self.service.draining:
            self.end(STOPS)
        try:
            await asyncio.wait(both, return_when=asyncio.FIRST_COMPLETED)
            return (writer if writer.done() else reader).result()
        except Unread:
            text = f"nothing was read for {self.limits.unread_s:g} s"
            return self._cut_off("unread", 1013, text, "unread_s")
        finally:
            self.service.connections.discard(self)
            for task in both:
                task.cancel()
            await asyncio.gather(*both, return_exceptions=True)

    async def _read(self) -> Ending:
        limits = self.limits
        silent_at = time.monotonic() + limits.silent_s
        while True:
            wait_s, left_s = None, silent_at - time.monotonic()
            if self.ending is None:
                wait_s = min(self.idle_s, left_s)
            try:
                if wait_s is not None and wait_s <= 0:  # messages keep coming
                    raise TimeoutError
                async with asyncio.timeout(wait_s):
                    message, size = await self.receive()
            except TimeoutError:
                kind, text = "idle", f"no message for {self.idle_s:g} s, "
                text += f"expected {self.waits_for}"
                if left_s < self.idle_s:
                    kind, text = "silent", f"no audio for {limits.silent_s:g} s"
                self.end(self._cut_off(kind, 1011, text, f"{kind}_s"))
                continue
            if size > (most := limits.message_bytes):
                text = f"a message of {size}, expected at most {most} bytes"
                return self._cut_off("message_size", 1009, text, "message_bytes")
            await self._keep_pace()
            if self.ending is not None:
                continue
            if await self.obey(message):
                silent_at = time.monotonic() + limits.silent_s
            await self._hold_back()

    def _cut_off(self, kind: str, code: int, text: str, limit: str) -> Ending:
        self.metrics.errors.labels(kind).inc()
        return Ending(code, f"{text}; {self.limits.remedy(limit)}", kind)

    async def _keep_pace(self) -> None:
        self._num_messages += 1
        if self._num_messages % _BREATH:
            return
        passed = time.monotonic() - self._paced_from
        await asyncio.sleep(max(0.0, self._num_messages / _MESSAGES_PER_S - passed))
        if passed > 1:
            self._num_messages, self._paced_from = 0, time.monotonic()

    async def _hold_back(self) -> None:
        """Stop reading while too many messages wait; TCP throttles the client."""
        while (
            any(stream.is_full for stream in self.streams)
            or len(self.outbox) > _WAITING
            or self._unanswered > _UNANSWERED * max(1, len(self.streams))
        ):
            await asyncio.sleep(_POLL_S)

    async def _write(self) -> Ending:
        while (message := await self.outbox.next()) is not None:
            await self.send(message)
        return await self.finish()

    async def send(self, message: Any) -> None:
        """Send a message; give up on a client that does not read."""
        try:
            async with asyncio.timeout(self.limits.unread_s):
                await self.transmit(message)
        except TimeoutError:
            raise Unread from None


class WebSocketConnection(Connection):
    """WebSocket connection: messages are bytes or text, replies are JSON."""

    def __init__(self, websocket: WebSocket, service: Service) -> None:
        super().__init__(service)
        self.websocket = websocket

    async def accept(self, headers: dict[str, str] | None = None) -> None:
        """Accept the handshake."""
        try:
            await self.websocket.accept(
                subprotocol=self.websocket.scope.get("wfstdec.subprotocol"),
                headers=[(k.encode(), v.encode()) for k, v in (headers or {}).items()],
            )
        except (WebSocketDisconnect, RuntimeError) as gone:
            raise Gone from gone

    async def receive(self) -> tuple[bytes | str, int]:
        """Wait for a message and return it unchanged."""
        message = await self.websocket.receive()
        if message["type"] == "websocket.disconnect":
            if message.get("code") == 1009:
                self.metrics.errors.labels("message_size").inc()
            raise Gone
        data = message.get("bytes") or message.get("text") or b""
        return data, len(data)

    async def transmit(self, message: Json) -> None:
        """Send JSON."""
        try:
            await self.websocket.send_text(json.dumps(message))
        except (WebSocketDisconnect, RuntimeError) as gone:
            # RuntimeError: the server has closed it, and `_read` reports it.
            raise Gone from gone


async def serve_websocket(
    websocket: WebSocket,
    request_id: str,
    connect: Callable[[], WebSocketConnection],
    open_connection: Callable[[Any], Any],
    refusal_headers: Callable[[str], dict[str, str]] = lambda text: {},
) -> None:
    """Serve a client, from its handshake to its close.

    `connect` returns the connection, `open_connection` awaits the steps before the
    handshake is accepted. Both may raise RequestError, whose text, in ASCII, may also
    be sent by headers.
    """
    service: Service = websocket.app.state.service
    connection = None
    try:
        connection = connect()
        await open_connection(connection)
        await _close(websocket, await connection.run())
    except RequestError as error:
        if error.status != 503:  # those are the engine's, which counts them
            service.metrics.refused.labels(error.code or "invalid_value").inc()
        text = " ".join(error.message.split()).encode("ascii", "backslashreplace")
        error.headers.update(refusal_headers(text.decode()[:1000]))
        # the client has disconnected
        with contextlib.suppress(WebSocketDisconnect, RuntimeError):
            await websocket.send_denial_response(error.response())
    except Gone:
        pass
    except Exception:
        _log.exception("stream %s failed", request_id)
        service.metrics.errors.labels("handler").inc()
        await _close(websocket, Ending(1011, f"{SERVERS_FAULT}, at {request_id}"))
    finally:
        if connection is not None:
            connection.abort()


async def _close(websocket: WebSocket, ending: Ending) -> None:
    """Close, if the client is still there; abort if it does not read."""
    reason = ending.reason.encode()[:_REASON_BYTES].decode(errors="ignore")
    give_up = websocket.scope.get(GIVE_UP)
    if ending.code == 1013 and give_up is not None:
        give_up(ending.code, reason)
        return
    with contextlib.suppress(WebSocketDisconnect, RuntimeError, TimeoutError):
        async with asyncio.timeout(_CLOSE_S):
            await websocket.close(ending.code, reason)


def error_ending(error: Exception, request_id: str) -> tuple[str, Ending]:
    """Return the kind of an error, and how to close; log errors of the server."""
    kind, description = type(error).__name__, str(error)
    if not isinstance(error, WfstdecError):
        kind, description = "Fault", SERVERS_FAULT
    is_clients = isinstance(error, CLIENTS_FAULTS)
    if not is_clients:
        _log.error("stream %s failed", request_id, exc_info=error)
    return kind, Ending(1008 if is_clients else 1011, description)


async def apart(text: str, work: Callable[[], _Result]) -> _Result:
    """Run the work of a message; of a long one in a worker thread."""
    return work() if len(text) < _LONG else await asyncio.to_thread(work)
