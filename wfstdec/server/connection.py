"""Connections: messages of a client to its streams, and their events back.

A protocol is a subclass with the five abstract methods. `run` reads and sends at the
same time, and holds the client to the limits: of pace, size, silence, and of messages
that it does not read.
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
"""Errors of what a client sent; others are the server's."""
GIVE_UP = "wfstdec.give_up"
"""Name in a WebSocket's scope of `give_up(code, reason)`."""
SERVERS_FAULT = "the server failed; its log says why"
_WAITING, _UNANSWERED = 100, 8
"""Messages that wait, and flushes without answer, at which a reader stops."""
_POLL_S = 0.02
_MESSAGES_PER_S, _BREATH = 2000, 32
"""Most messages of a client in a second, and how many of them in one go. That it has
gone is seen behind what it sent: some 30,000 of the smallest come with one read."""
_LONG = 1 << 15  # characters of a message that is read apart from the loop
_CLOSE_S = 1.0  # for a close to get into the connection's buffer
_REASON_BYTES = 123  # of a close, as WebSockets have it

_log = logging.getLogger(__name__)


class Ending(NamedTuple):
    """How a connection is closed, by a code of WebSockets."""

    code: int
    reason: str = ""
    kind: str = ""  # of an error, where a protocol has words for it


STOPS = Ending(1001, "the server is about to stop")


class Gone(Exception):
    """The client is no longer there."""


class Unread(Exception):
    """The client does not read what it is sent."""


class Connection(abc.ABC):
    """Connection with a client, and its streams in the engine."""

    waits_for = "audio"
    """What a client that sends nothing should send."""

    def __init__(self, service: Service) -> None:
        self.service, self.idle_s = service, service.limits.idle_s
        self.limits, self.metrics = service.limits, service.metrics
        # Events become messages only when they are sent.
        self.outbox = Outbox[Any]()
        self.streams: list[Stream] = []
        self.ending: Ending | None = None  # set where finals are still to come
        self._loop = asyncio.get_running_loop()
        self._unanswered = 0
        self._num_messages, self._paced_from = 0, time.monotonic()

    # ------------------------------------------------------------ of a protocol
    @abc.abstractmethod
    async def receive(self) -> tuple[Any, int]:
        """Wait for a message; with its size in bytes. Raises Gone."""

    @abc.abstractmethod
    async def obey(self, message: Any) -> bool:
        """Do what a message asks for; tell whether it had audio."""

    @abc.abstractmethod
    def take(self, event: Event, stream: int) -> None:
        """Take an event of a stream, by its place in `streams`."""

    @abc.abstractmethod
    async def transmit(self, message: Any) -> None:
        """Send a message of the outbox. Raises Gone."""

    @abc.abstractmethod
    async def finish(self) -> Ending:
        """Send what comes last, once the outbox is closed; how to close."""

    # ------------------------------------------------------------ streams
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
            code = self.service.unready or "full"  # or there is a place again by now
            raise RequestError(503, str(error), code=code, retry_after_s=1) from None
        except BackendError as error:
            raise RequestError(500, str(error), code="fault") from None
        self.streams.append(stream)
        return stream

    def _take(self, event: Event, stream: int) -> None:
        if isinstance(event, Words) and event.is_final:
            self._unanswered -= event.is_answer
            # A final has more than the interim that still waits.
            self.outbox.drop_interim(stream)
        self.take(event, stream)

    def flush(self) -> None:
        """Make final what was sent so far."""
        for stream in self.streams:
            self._unanswered += 1
            stream.flush()

    def end(self, ending: Ending) -> None:
        """Let streams come to their end: finals, then this close."""
        self.ending = ending
        for stream in self.streams:
            stream.finish()
        if not self.streams:
            self.outbox.close()

    def abort(self) -> None:
        """Give all streams up."""
        for stream in self.streams:
            stream.abort()
        self.streams.clear()
        self._unanswered = 0

    # ------------------------------------------------------------ both directions
    async def run(self) -> Ending:
        """Serve the client until one side is done; how to close."""
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
        """Give what the client sends to the engine, until it has gone."""
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
                continue  # what comes now comes too late
            if await self.obey(message):
                silent_at = time.monotonic() + limits.silent_s
            await self._hold_back()

    def _cut_off(self, kind: str, code: int, text: str, limit: str) -> Ending:
        """Count a stream that is beyond a limit; how it is closed."""
        self.metrics.errors.labels(kind).inc()
        return Ending(code, f"{text}; {self.limits.remedy(limit)}", kind)

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
            any(stream.is_full for stream in self.streams)
            or len(self.outbox) > _WAITING
            or self._unanswered > _UNANSWERED * max(1, len(self.streams))
        ):
            await asyncio.sleep(_POLL_S)

    async def _write(self) -> Ending:
        """Send events and replies, until the outbox is closed."""
        while (message := await self.outbox.next()) is not None:
            await self.send(message)
        return await self.finish()

    async def send(self, message: Any) -> None:
        """Send a message, but wait for no client that does not read."""
        try:
            async with asyncio.timeout(self.limits.unread_s):
                await self.transmit(message)
        except TimeoutError:
            raise Unread from None


class WebSocketConnection(Connection):
    """Connection by a WebSocket: messages are bytes or text, and JSON goes back."""

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
        """Wait for a message, as it came."""
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
            # RuntimeError: the server has closed it, and tells the reader so.
            raise Gone from gone


async def serve_websocket(
    websocket: WebSocket,
    request_id: str,
    connect: Callable[[], WebSocketConnection],
    open_connection: Callable[[Any], Any],
    refusal_headers: Callable[[str], dict[str, str]] = lambda text: {},
) -> None:
    """Serve a client, from its handshake to its close.

    `connect` makes the connection, `open_connection` awaits what comes before the
    handshake is accepted; both may raise RequestError, whose text, in ASCII, may also
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
        with contextlib.suppress(WebSocketDisconnect, RuntimeError):  # it has gone
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
    """Close, if the client is still there; without it where it does not read."""
    reason = ending.reason.encode()[:_REASON_BYTES].decode(errors="ignore")
    give_up = websocket.scope.get(GIVE_UP)
    if ending.code == 1013 and give_up is not None:
        give_up(ending.code, reason)
        return
    with contextlib.suppress(WebSocketDisconnect, RuntimeError, TimeoutError):
        async with asyncio.timeout(_CLOSE_S):
            await websocket.close(ending.code, reason)


def error_ending(error: Exception, request_id: str) -> tuple[str, Ending]:
    """The kind of an error, and how to close after it; the server's are logged."""
    kind, description = type(error).__name__, str(error)
    if not isinstance(error, WfstdecError):
        kind, description = "Fault", SERVERS_FAULT
    is_clients = isinstance(error, CLIENTS_FAULTS)
    if not is_clients:
        _log.error("stream %s failed", request_id, exc_info=error)
    return kind, Ending(1008 if is_clients else 1011, description)


async def apart(text: str, work: Callable[[], _Result]) -> _Result:
    """Do the work of a message; of a long one in a thread, so that nothing waits."""
    return work() if len(text) < _LONG else await asyncio.to_thread(work)
