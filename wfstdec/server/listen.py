"""`WS /v1/listen`: streams of audio, as Deepgram's clients speak it.

    routes()        for the app

A stream has a reader, which gives messages to the engine and stops receiving while too
much waits there, and a writer, which sends what the engine found. Whichever ends first
ends both, and however that comes, the engine's stream is over then. Codes of closes:

    1000  done                          1009  message too large
    1001  the server is about to stop   1011  idle, or a fault
    1008  wrong audio, or a limit       1013  the client does not read
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import time
from collections.abc import Callable
from typing import NamedTuple, TypeVar

from starlette.routing import WebSocketRoute
from starlette.websockets import WebSocket, WebSocketDisconnect

import wfstdec
from wfstdec.errors import (
    AudioError,
    BackendError,
    BoostError,
    LimitError,
    OptionError,
    WfstdecError,
)
from wfstdec.server.events import (
    BoostsChanged,
    Event,
    Finished,
    Room,
    SpeechStarted,
    UtteranceEnd,
    Words,
)
from wfstdec.server.listen_boosts import StreamBoosts, refusal
from wfstdec.server.listen_messages import (
    Answers,
    Configure,
    Json,
    MessageError,
    Plain,
    read_message,
)
from wfstdec.server.listen_query import Query, read_query
from wfstdec.server.outbox import Outbox
from wfstdec.server.problems import Problem
from wfstdec.server.service import Service
from wfstdec.server.sockets import GIVE_UP

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
    answers = Answers(service.name, wfstdec.__version__)
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
    websocket: WebSocket, service: Service, problem: Problem, answers: Answers
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

    Args:
        websocket: Not accepted yet.
        service: What all share.
        query: What the client asked for.
        answers: Makes what it is sent.

    Attributes:
        stream: The engine's.

    Raises:
        Problem: There is no place for another stream, or no means for such a one.
    """

    def __init__(
        self, websocket: WebSocket, service: Service, query: Query, answers: Answers
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
        """Accept the client, once its boosts are compiled.

        Raises:
            Problem: They were refused, or the stream has failed already.
            _Gone: The client did not wait.
        """
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
        """Talk until one side is done; how to close, or None where nobody is there.

        Raises:
            Exception: Whatever fails unforeseen.
        """
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
        """Send a message.

        Raises:
            _Gone: The client has left.
            _Unread: It has not read for too long.
        """
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
