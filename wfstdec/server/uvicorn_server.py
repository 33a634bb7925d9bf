"""uvicorn with limits for slow and silent clients, long handshakes, and draining.

uvicorn closes a connection once its last bytes are sent. With a client that never
reads, neither the connection nor the server ends. The address of a stream, which
uvicorn logs, may contain key and words: a handler removes the query from the scope
before it accepts.
"""

import asyncio
import contextlib
import logging
import math
import os
import resource
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable, Coroutine, Iterator
from types import FrameType
from typing import Any

import h11
import uvicorn
import websockets.http11
from starlette.types import ASGIApp
from uvicorn.protocols.http.h11_impl import H11Protocol
from uvicorn.protocols.websockets.websockets_sansio_impl import (
    WebSocketsSansIOProtocol,
)

from wfstdec.errors import OptionError
from wfstdec.server import wyoming
from wfstdec.server.connection import GIVE_UP, STOPS
from wfstdec.server.limits import Limits, RequestError
from wfstdec.server.service import Service, in_thread
from wfstdec.server.shared import KINDS, Shared

_UNREAD = 1 << 16  # bytes of messages not yet received by the handler, at most about
_LAST_S = 5.0  # seconds to send the last bytes after the handler has ended


class _SocketProtocol(WebSocketsSansIOProtocol):
    """uvicorn's protocol; a connection ends even if its client never reads."""

    close_sent: bool
    read_paused: bool
    close_timer: asyncio.TimerHandle | None
    _cut_timer: asyncio.TimerHandle | None = None
    _is_given_up = False
    _unread = 0  # bytes of messages not yet received by the handler

    def handle_connect(self, event: Any) -> None:
        super().handle_connect(event)
        if getattr(self, "scope", None) is not None:  # the handler begins later
            scope: dict[str, Any] = self.scope
            scope[GIVE_UP] = self.give_up

    def give_up(self, code: int, reason: str) -> None:
        """Close without waiting for the client to read earlier messages."""
        # The client may still read for a while. Its further bytes are discarded:
        # unread, they would reset the connection, and the close would be lost.
        self._is_given_up = True
        if self.close_sent or self.transport.is_closing():
            self._linger()
        else:
            self.conn.send_close(code, reason)
            self._send_close()

    def data_received(self, data: bytes) -> None:
        if not self._is_given_up:
            super().data_received(data)

    def send_receive_event_to_app(self) -> None:
        """Pass a message on; invalid UTF-8 is the client's error and is not logged."""
        try:
            if self.curr_msg_data_type == "text":
                b"".join(self.frames).decode()
        except UnicodeDecodeError:
            self.conn.send_close(1007, "a text message that is no UTF-8")
            self.handle_parser_exception()
            return
        # Pausing and resuming for each message, as uvicorn does, takes the loop more
        # time than the message.
        self._unread += sum(map(len, self.frames))
        paused, self.read_paused = self.read_paused, True
        super().send_receive_event_to_app()
        self.read_paused = paused
        if not paused and self._unread > _UNREAD:
            self.read_paused = True
            self.transport.pause_reading()

    async def receive(self) -> Any:
        """Return a message; resume reading when the queue is empty."""
        message = await super().receive()
        if self.queue.empty():
            self._unread = 0
        return message

    async def send(self, message: Any) -> None:
        await super().send(message)
        # A refused handshake is complete too: uvicorn logs an error if not.
        if message["type"] == "websocket.http.response.body" and self.close_sent:
            self.handshake_complete = True

    def handle_parser_exception(self) -> None:
        """Report the error of a frame, such as its size, and read the rest."""
        # Closed with bytes unread, a connection is reset, and the client sees no
        # reason.
        if self.close_sent:
            return
        close = self.conn.close_sent
        assert close is not None
        gone = {"type": "websocket.disconnect", "code": close.code}
        self.queue.put_nowait({**gone, "reason": close.reason})
        self._send_close()

    def _send_close(self) -> None:
        self.transport.write(b"".join(self.conn.data_to_send()))
        self.close_sent = True
        self._linger()

    def _linger(self) -> None:
        """Leave time for the last bytes; discard input until then."""
        self.stop_keepalive()
        if self.read_paused:
            self.read_paused = False
            self.transport.resume_reading()
        if self.close_timer is None:
            self.close_timer = self.loop.call_later(_LAST_S, self.transport.close)
        self._cut_later(_LAST_S)

    async def run_asgi(self) -> None:
        """Run the handler, then leave time for its last bytes."""
        try:
            await super().run_asgi()
        finally:
            self._cut_later(self.close_timeout + _LAST_S)

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        if self._cut_timer is not None:
            self._cut_timer.cancel()

    def _cut_later(self, seconds: float) -> None:
        if self._cut_timer is None and not self.disconnected:
            self._cut_timer = self.loop.call_later(seconds, self.transport.abort)


_HEADERS = 64 << 10  # bytes of headers in addition to an address
_LONGEST_READ = 1 << 20
"""Bytes of a request that h11 passes on though it would refuse to gather them: those of
one read, a quarter of this.
"""
_BACKLOG, _ACCEPTS = 128, 8
"""Backlog of the kernel, and accepted connections in a turn of the loop: closing an
excess one takes four turns.
"""
_SPARE_FILES = 64  # reserve for short-lived files and closing connections
_LEAVING_S = 2  # for connections to close after all streams have ended
_POLL_S = 0.02
_AHEAD, _LEFT_S = 4, 0.01
"""Lead in connections over another process that makes this one pause accepting, and the
length of the pause.
"""
_SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)

_log = logging.getLogger(__name__)


def make_config(app: ASGIApp, limits: Limits, **more: Any) -> uvicorn.Config:
    """Return uvicorn's configuration; `more` are its own options, above all TLS."""
    _take_long_handshakes()
    own = {"idle_s": limits.idle_s, "idle": {}}
    http = type("_BoundedHttp", (_Http,), own)
    settings: dict[str, Any] = {
        "loop": "asyncio",  # uvloop does not call `_Listening` for connections
        "http": http,
        "ws": _SocketProtocol,
        "ws_max_size": limits.message_bytes,
        # Audio does not compress, and messages are short.
        "ws_per_message_deflate": False,
        # Pings keep network paths open. A late answer is no fault: it waits behind the
        # audio of a fast client, and the idle timer detects dead ones.
        "ws_ping_interval": 20.0,
        "ws_ping_timeout": None,
        "h11_max_incomplete_event_size": limits.url_bytes + _HEADERS,
        "timeout_graceful_shutdown": _LEAVING_S,
        "backlog": _ACCEPTS,
        "lifespan": "on",
        "log_config": None,  # its lines contain queries; `RequestLog` logs instead
        "access_log": False,
        "server_header": False,
    }
    logging.getLogger("uvicorn.error").setLevel(logging.WARNING)
    return uvicorn.Config(app, **{**settings, **more})


def open_socket(host: str, port: int) -> socket.socket:
    """Bind a socket to listen on, before a model is loaded in vain."""
    [(family, kind, protocol, _, address), *_] = socket.getaddrinfo(
        host or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
    )
    listening = socket.socket(family, kind, protocol)
    try:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind(address)
    except OSError as error:
        listening.close()
        raise OSError(error.errno, f"{error.strerror}: {host}:{port}") from None
    return listening


class _Open:
    def __init__(self, most: int, idle: dict[int, Any], shared: Shared) -> None:
        self.most, self.idle, self.shared = most, idle, shared
        self.num_open = self._num_accepted = 0

    def count(self, change: int) -> None:
        self.num_open += change
        self._num_accepted += change > 0
        self.shared.set("accepted", self._num_accepted)
        self.shared.set("connections", self.num_open)


class _Listening(socket.socket):
    """Listening socket with a limit of connections: `most` here, and one for all.

    Above it the connection that has waited longest for a request is closed, or the new
    one: probes are answered while silent connections fill the limit.
    """

    def __init__(self, given: socket.socket, bound: _Open) -> None:
        super().__init__(fileno=given.detach())
        self.bound = bound
        self._taken, self._left_from = -1, 0.0

    def listen(self, backlog: int = 0) -> None:
        """Listen; asyncio uses its backlog also as the number of accepts of a turn."""
        super().listen(_BACKLOG)

    def accept(self) -> tuple[socket.socket, Any]:
        if self._may_leave():
            raise BlockingIOError  # asyncio retries
        connection, address = super().accept()
        bound = self.bound
        counted = _Connection(connection.detach(), bound)
        total = bound.shared.total("connections")
        if bound.num_open > bound.most or total > bound.shared.limits.connections:
            oldest = bound.idle.pop(next(iter(bound.idle)))
            with contextlib.suppress(OSError):  # the client has closed it
                oldest.shutdown(socket.SHUT_RDWR)
        return counted, address

    def _may_leave(self) -> bool:
        """Return whether to leave a connection to another process for a while."""
        # All processes accept from one socket. Waiting connections outlive any process,
        # and none is lost, as happens with a socket for each (SO_REUSEPORT). But the
        # first to wake takes all: of 200 connections 145 of two processes, 131 of four.
        # With this rule 98 to 102, and 47 to 53 (two cores, 2026-11-28).
        shared, num_open = self.bound.shared, self.bound.num_open
        counts = shared.counts[shared.counts[:, KINDS.index("up")] > 0]
        least = counts[:, KINDS.index("connections")].min(initial=num_open)
        now, taken = time.monotonic(), shared.total("accepted")
        if taken != self._taken:  # another process has accepted one
            self._taken, self._left_from = taken, now
        return num_open > least + _AHEAD and now - self._left_from < _LEFT_S


class _Connection(socket.socket):
    """Connection that counts until it is closed, TLS handshakes included."""

    def __init__(self, number: int, bound: _Open) -> None:
        super().__init__(fileno=number)
        self._bound = bound
        bound.idle[number] = self
        bound.count(1)

    def close(self) -> None:
        """Close it; its file number may be reused."""
        if (number := self.fileno()) >= 0:
            self._bound.idle.pop(number, None)
            self._bound.count(-1)
        super().close()


def most_connections(limits: Limits) -> int:
    """Return the number of connections that the limit of open files allows."""
    files, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    spooled = min(limits.uploads + limits.requests, files // 8)  # files of bodies
    free: float = files - _SPARE_FILES - spooled - len(os.listdir("/dev/fd"))
    if files == resource.RLIM_INFINITY:
        free = math.inf
    most = int(max(1, min(limits.connections, free)))
    if most < (needed := limits.streams + limits.uploads + limits.requests):
        text = "%d connections are taken, %d may be needed: %s and `ulimit -n` limit it"
        _log.warning(text, most, needed, limits.flag("connections"))
    return most


class DrainingServer(uvicorn.Server):
    """Server that lets streams finish before it stops."""

    def __init__(
        self,
        config: uvicorn.Config,
        service: Service,
        on_ready: Callable[[], Any] = lambda: None,
        *,
        is_warm: bool = False,
        wyoming_server: wyoming.Server | None = None,
    ) -> None:
        super().__init__(config)
        self._wyoming = wyoming_server
        # Error of the warm-up, which stops the server.
        self.fault: BaseException | None = None
        self._service, self._on_ready, self._is_warm = service, on_ready, is_warm
        self._loop: asyncio.AbstractEventLoop | None = None
        # references that keep them from garbage collection
        self._tasks: list[asyncio.Future[None]] = []
        self._signals = 0
        # Time of the last log line of each kind of accept error, and errors since.
        self._unaccepted: dict[int | None, tuple[float, int]] = {}

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Listen; then warm up, unless it is warm, while probes are answered."""
        self._loop = asyncio.get_running_loop()
        self._service.warming = not self._is_warm
        self._loop.set_exception_handler(self._note_error)
        idle: dict[int, Any] = self.config.http_protocol_class.idle
        most = most_connections(self._service.limits)
        bound = _Open(most, idle, self._service.shared)
        bounded = [_Listening(one, bound) for one in sockets or ()]
        await super().startup(bounded or None)
        if (other := self._wyoming) is not None:
            listening = _Listening(other.listening, bound)
            tasks = self.server_state.tasks
            self.servers.append(await other.start(listening, tasks, idle))
        self._begin(self._warm_up())

    def _note_error(self, loop: asyncio.AbstractEventLoop, context: Any) -> None:
        error = context.get("exception")
        if not isinstance(error, OSError) or "accept" not in context["message"]:
            loop.default_exception_handler(context)
            return
        now, kind = time.monotonic(), error.errno
        since, num = self._unaccepted.get(kind, (-math.inf, 0))
        if now - since < 1:
            self._unaccepted[kind] = since, num + 1
            return
        self._unaccepted[kind] = now, 0
        text = "a connection is not accepted: %s; %d more since the last such line"
        _log.error(text, error.strerror, num)

    async def _warm_up(self) -> None:
        service = self._service
        try:
            if not self._is_warm:
                await in_thread(service.engine.warm)
        except Exception as error:
            if not service.draining:  # the engine accepts no more streams then
                self.fault, self.should_exit = error, True
            return
        service.warming = False
        service.shared.set("up", 1)
        if not service.draining:
            self._on_ready()

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Handle signals to stop while the server runs."""
        # Signals that were ignored at the start (background jobs, nohup) stay ignored.
        # Unlike uvicorn, no signal is raised again at the end: it is success.
        before: dict[signal.Signals, Any] = {}
        # only the main thread may
        if threading.current_thread() is threading.main_thread():
            for number in _SIGNALS:
                ignored = signal.getsignal(number) is signal.SIG_IGN
                if number == signal.SIGTERM or not ignored:
                    before[number] = signal.signal(number, self.handle_exit)
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """Drain at the first signal; end at once at the second."""
        self._signals += 1
        loop = self._loop
        if self._signals == 1 and loop is not None and not self.should_exit:
            loop.call_soon_threadsafe(lambda: self._begin(self._drain(sig, frame)))
        else:
            self.should_exit = self.force_exit = True

    def _begin(self, work: Coroutine[Any, Any, None]) -> None:
        self._tasks.append(asyncio.ensure_future(work))

    async def _drain(self, sig: int, frame: FrameType | None) -> None:
        service, limits = self._service, self._service.limits
        service.draining, num = True, len(service.engine)
        _log.info("draining %d streams; a second signal ends at once", num)
        deadline = time.monotonic() + limits.drain_s
        service.engine.drain()
        for connection in list(service.connections):
            connection.end(STOPS)
        state = self.server_state
        # A stream or request is open, or its end being read.
        while not self.should_exit and (
            state.tasks
            or any(isinstance(x, _SocketProtocol) for x in state.connections)
        ):
            if time.monotonic() > deadline:
                text = "%d streams and requests are cut off after %g s; %s gives more"
                flag = limits.flag("drain_s")
                _log.warning(text, len(state.tasks), limits.drain_s, flag)
                break
            await asyncio.sleep(_POLL_S)
        super().handle_exit(sig, frame)


def _take_long_handshakes() -> None:
    """Raise the line limit of `websockets` to that of h11."""
    # `websockets` leaves a longer line without a response. It reads the environment at
    # import, possibly long ago.
    for name in ("MAX_LINE_LENGTH", "MAX_NUM_HEADERS"):
        known = getattr(websockets.http11, name, None)
        if not isinstance(known, int):
            raise OptionError(
                f"websockets.http11 without {name}, expected websockets 15 to 17"
            )
        setattr(websockets.http11, name, max(known, _LONGEST_READ))


class _Http(H11Protocol):
    """HTTP/1.1 with errors for long requests, and a time limit for each request."""

    idle_s: float
    idle: dict[int, Any]  # sockets that wait for a request, by number, oldest first
    _waiting: asyncio.TimerHandle | None = None

    def connection_made(self, transport: Any) -> None:
        self.access_log = False  # its lines contain queries
        super().connection_made(transport)
        self._connection = transport.get_extra_info("socket")
        self._number = self._connection.fileno()
        self._expect()

    def data_received(self, data: bytes) -> None:
        """Receive bytes; they do not restart the time of a request."""
        super().data_received(data)
        self._expect()

    def on_response_complete(self) -> None:
        """Wait for the next request, or for the client to read the response."""
        super().on_response_complete()
        self._expect()

    def connection_lost(self, exc: Exception | None) -> None:
        self._expect_no_more()
        super().connection_lost(exc)

    def handle_websocket_upgrade(self, event: h11.Request) -> None:
        self._expect_no_more()
        super().handle_websocket_upgrade(event)

    def send_400_response(self, msg: str) -> None:
        error, status, text = sys.exception(), 400, msg
        if isinstance(error, h11.RemoteProtocolError):
            status = error.error_status_hint
            if status == 431:
                most = self.config.h11_max_incomplete_event_size
                text = f"an address and headers of more than {most} bytes; "
                text += Limits.remedy("url_bytes")
        answer = RequestError(status, text, headers={"connection": "close"}).response()
        with contextlib.suppress(h11.LocalProtocolError):  # an answer has begun
            for part in (
                h11.Response(status_code=status, headers=answer.raw_headers),
                h11.Data(data=bytes(answer.body)),
                h11.EndOfMessage(),
            ):
                self.transport.write(self.conn.send(part) or b"")
        self.transport.close()

    def _expect(self) -> None:
        """Start or stop the timer of the next request."""
        # Also while responding: the body was refused, or the response is not read.
        is_answered = self.conn.our_state in (h11.DONE, h11.MUST_CLOSE, h11.CLOSED)
        if self.conn.their_state is not h11.IDLE and not is_answered:
            self._expect_no_more()
        elif self._waiting is None:
            self._waiting = self.loop.call_later(self.idle_s, self.transport.close)
            self.idle[self._number] = self._connection

    def _expect_no_more(self) -> None:
        # With TLS this may follow the close, when the number is reused.
        if self.idle.get(self._number) is self._connection:
            del self.idle[self._number]
        if self._waiting is not None:
            self._waiting.cancel()
            self._waiting = None
