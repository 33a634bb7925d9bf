"""`POST /v1/audio/transcriptions` and `GET /v1/models`, as OpenAI's clients speak them.

    curl localhost:8000/v1/audio/transcriptions -F model=any -F file=@talk.mp3

    client = OpenAI(base_url="http://localhost:8000/v1", api_key="...")
    client.audio.transcriptions.create(model="any", file=open("talk.mp3", "rb"))

The loop only moves bytes: a file goes to the disk, then a thread transcribes it. A
client that goes away frees the thread at the next piece of audio.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Awaitable, Iterator
from typing import Self, TypeVar

from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response
from starlette.routing import BaseRoute, Route
from starlette.types import Message, Receive, Scope, Send

from wfstdec.server.file_work import Answer, FileWork
from wfstdec.server.forms import read_form
from wfstdec.server.jobs import Job, JobCancelled
from wfstdec.server.problems import Problem
from wfstdec.server.service import Service
from wfstdec.server.transcription_answers import event
from wfstdec.server.transcription_request import read_request

_Found = TypeVar("_Found")

_STARTED = int(time.time())
_ALIVE_S = 10.0
"""How often a stream without words says that it is there: proxies close silent ones."""


def routes() -> list[BaseRoute]:
    """Make the routes of files and models."""
    return [
        Route("/v1/audio/transcriptions", Transcriptions(), methods=["POST"]),
        Route("/v1/models", _all_models),
        Route("/v1/models/{name:path}", _one_model),
    ]


class Transcriptions:
    """Endpoint that transcribes a file; an ASGI app."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        request = Request(scope, receive)
        service: Service = request.app.state.service
        with _counting(service), service.jobs.place() as place:
            form = await read_form(
                request.headers, request.stream(), place, service.limits
            )
            asked = read_request(form.fields, confidence=service.confidence)
            work = FileWork(service, form.file, asked)
            async with _Client(receive, send, service.limits.unread_s) as client:
                job = place.start(work)
                try:
                    if asked.stream:
                        await _stream(job, client)
                    else:
                        body, kind = await client.unless_gone(_result(job))
                        response = Response(body, media_type=kind)
                        await response(scope, receive, client.send)
                finally:
                    job.cancel()


@contextlib.contextmanager
def _counting(service: Service) -> Iterator[None]:
    """Count requests that are not answered as they would like."""
    try:
        yield
    except (ClientDisconnect, _Gone):
        service.measures.failed("client_gone")
    except Problem as problem:
        if problem.status == 503:
            service.measures.refused("requests")
        elif problem.status == 413:
            service.measures.refused("file")
        else:
            service.measures.failed("file" if problem.status < 500 else "fault")
        raise


async def _result(job: Job[Answer]) -> Answer:
    """Wait for the end of a job."""
    try:
        return await job.result()
    except JobCancelled:
        raise _stopping() from None


def _stopping() -> Problem:
    return Problem(503, "the server stops", retry_after_s=5)


async def _stream(job: Job[Answer], client: _Client) -> None:
    """Send what a job says as `text/event-stream`.

    The status waits for the first words, or for what is wrong with the file.
    """
    part = await client.unless_gone(job.said())
    end, kind = (b"", "text/event-stream") if part else await _result(job)
    headers = [
        (b"content-type", f"{kind}; charset=utf-8".encode()),
        (b"cache-control", b"no-cache"),
        (b"x-accel-buffering", b"no"),  # nginx would gather the parts
    ]
    start = {"type": "http.response.start", "status": 200, "headers": headers}
    await client.send(start)
    while part is not None:
        await client.send(_part(part))
        try:
            part = await client.unless_gone(job.said(), _ALIVE_S)
        except TimeoutError:
            part = b": the server works\n\n"
        except Problem as problem:
            part, end = None, event(problem.body)
    if not end:
        try:
            end, _ = await _result(job)
        except Problem as problem:  # too late for a status
            end = event(problem.body)
    await client.send(_part(end, more=False))


def _part(body: bytes, *, more: bool = True) -> Message:
    return {"type": "http.response.body", "body": body, "more_body": more}


class _Gone(Exception):
    """The client closed its connection, or does not read."""


class _Client:
    """The other side of a request that is read: whether it is there, and reads."""

    def __init__(self, receive: Receive, send: Send, unread_s: float) -> None:
        self._receive, self._send, self._unread_s = receive, send, unread_s

    async def __aenter__(self) -> Self:
        """Begin to watch."""
        self._gone = asyncio.ensure_future(self._wait_until_gone())
        return self

    async def __aexit__(self, *error: object) -> None:
        """Watch no more."""
        self._gone.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await self._gone

    async def send(self, message: Message) -> None:
        """Send to it."""
        try:
            async with asyncio.timeout(self._unread_s):
                await self._send(message)
        except TimeoutError:
            raise _Gone from None

    async def unless_gone(
        self, found: Awaitable[_Found], timeout_s: float | None = None
    ) -> _Found:
        """Wait for something while the client is there."""
        task = asyncio.ensure_future(found)
        try:
            done, _ = await asyncio.wait(
                (task, self._gone),
                timeout=timeout_s,
                return_when=asyncio.FIRST_COMPLETED,
            )
            if task in done:
                return task.result()
            raise _Gone if done else TimeoutError
        except asyncio.CancelledError:
            raise _stopping() from None
        finally:
            task.cancel()

    async def _wait_until_gone(self) -> None:
        while (await self._receive())["type"] != "http.disconnect":
            pass


def _model(request: Request) -> dict[str, str | int]:
    """The one model, as OpenAI's clients ask for it."""
    return {
        "id": request.app.state.service.name,
        "object": "model",
        "created": _STARTED,
        "owned_by": "wfstdec",
    }


async def _all_models(request: Request) -> Response:
    return JSONResponse({"object": "list", "data": [_model(request)]})


async def _one_model(request: Request) -> Response:
    model, asked = _model(request), request.path_params["name"]
    if asked != model["id"]:
        text = f"no model {asked!r}, expected {model['id']!r}"
        raise Problem(404, text, code="model_not_found")
    return JSONResponse(model)
