"""Requests with files: upload within the limits, transcription in threads.

    with counting(service), service.jobs.receive() as job:
        await receive_body(request, limits, write)        # write(chunk), in a thread
        job.take_place()
        async with Client(receive, send, limits.unread_s) as client:
            job.start(work)                               # with transcribe_file(...)
            result = await client.unless_gone(job.result())

The loop only moves bytes: a file is stored on disk, then a thread transcribes it. The
words are those of `Transcriber`, bit for bit. A disconnected client frees the thread at
the next piece of audio.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Awaitable, Callable, Iterator, Sequence
from typing import IO, Any, Self, TypeVar

from starlette.requests import ClientDisconnect, Request
from starlette.types import Receive, Send

from wfstdec.batch.decoding import LatticeReading
from wfstdec.boost.compile import collected_warnings
from wfstdec.boost.lists import BoostsLike
from wfstdec.errors import (
    AudioError,
    AudioFormError,
    AudioLengthError,
    BackendError,
    BoostError,
    DeviceError,
    InputError,
)
from wfstdec.search.hypothesis import Hypothesis
from wfstdec.server.limits import Limits, RequestError
from wfstdec.server.service import Job, JobCancelled, Service, stopping
from wfstdec.transcription import AudioOptions, Recording, Transcriber, Transcript

_Value = TypeVar("_Value")

_log = logging.getLogger(__name__)

FILE = "file"  # Name of the file in errors, and of its field in a form
IN_MEMORY = 1 << 20  # Size in bytes above which a file is stored on disk
_WARNED = ("silence", "cut", "streams")
"""Kinds of notes on audio that are warnings to a client."""


# The body is counted while it arrives, in bounded memory; an upload that stalls, or is
# too slow on average, is aborted.
_UPLOAD_S, _CREDIT_S = 60.0, 30.0
"""Seconds for a body in addition to those of the minimum rate, and the largest lead
over that rate that counts for a body of unknown length.
"""


async def receive_body(
    request: Request, limits: Limits, write: Callable[[bytes], object]
) -> None:
    """Receive the body of a request; `write` takes its parts, in a thread."""
    length = request.headers.get("content-length", "")
    if length.isdecimal() and int(length) > limits.body_bytes:
        raise _too_large(f"{int(length)} bytes", limits)
    body, size, rate = request.stream(), 0, limits.least_upload_rate
    close, began = {"Connection": "close"}, time.monotonic()
    deadline = began + _CREDIT_S
    if length.isdecimal():
        deadline = began + _UPLOAD_S + int(length) / rate
    while True:
        left_s = deadline - time.monotonic()
        try:
            if left_s <= 0:  # also if the next byte is always ready
                raise TimeoutError
            async with asyncio.timeout(min(limits.idle_s, left_s)):
                chunk = await anext(body, None)
        except TimeoutError:
            text = f"nothing came for {limits.idle_s:g} s, expected the rest of the "
            text += f"request; {limits.remedy('idle_s')}"
            if left_s < limits.idle_s:
                text = f"{size} bytes in {time.monotonic() - began:.0f} s, expected "
                text += f"more; the server's {limits.flag('least_upload_rate')} is "
                text += f"{rate} a second"
            raise RequestError(408, text, headers=close) from None
        if chunk is None:
            return
        size += len(chunk)
        if not length.isdecimal():
            deadline += len(chunk) / rate
            deadline = min(deadline, time.monotonic() + _CREDIT_S)
        if size > limits.body_bytes:  # of unknown length: the rest may have no end
            raise _too_large(f"more than {limits.body_bytes} bytes", limits, close)
        if chunk:
            try:
                await asyncio.to_thread(write, chunk)
            except OSError as error:
                text = f"no room for the file ({error.strerror})"
                raise RequestError(503, text, FILE, retry_after_s=10) from error


def _too_large(
    what: str, limits: Limits, headers: dict[str, str] | None = None
) -> RequestError:
    return RequestError(
        413,
        f"a request of {what}, expected at most {limits.body_bytes}; "
        f"{limits.remedy('body_bytes')}",
        FILE,
        code="file_too_large",
        headers=headers,
    )


def transcribe_file(
    service: Service,
    file: IO[bytes],
    boosts: BoostsLike,
    job: Job,
    *,
    channels: Sequence[int | None] = (None,),
    allow_cut: bool = False,
    reading: LatticeReading | None = None,
    on_piece: Callable[[int, list[Hypothesis]], Any] | None = None,
) -> tuple[list[Transcript], list[str]]:
    """Transcribe channels of a file, None mixes all; return also the warnings."""
    began, decoder = time.monotonic(), service.decoder
    with collected_warnings() as warnings:
        compiled = boosts and decoder.compile_boosts(boosts)
    # Compiling many boosts takes a while: a client may have left by now.
    job.check()
    transcripts = []
    for channel in channels:
        file.seek(0)
        transcriber = Transcriber(
            *(service.model, decoder),
            audio=AudioOptions(channel, service.limits.file_s, allow_cut),
            workers=service.jobs.workers,
            lattices=reading,
        )
        [transcript] = transcriber.run(
            [Recording(FILE, file, compiled)],
            on_audio=lambda _: job.check(),
            on_piece=on_piece,
        )
        if transcript.error is not None:
            raise transcript.error
        warnings += [note.text for note in transcript.notes if note.kind in _WARNED]
        service.metrics.file_audio.inc(transcript.audio_s)
        transcripts.append(transcript)
    service.metrics.file.observe(time.monotonic() - began)
    return transcripts, warnings


@contextlib.contextmanager
def file_errors(limits: Limits) -> Iterator[None]:
    """Convert exceptions of a file to RequestError."""
    try:
        yield
    except (RequestError, JobCancelled):
        raise
    except Exception as error:
        raise _error_of_file(error, limits) from error


def _error_of_file(error: Exception, limits: Limits) -> RequestError:
    if isinstance(error, AudioLengthError):
        return RequestError(
            413,
            f"audio longer than {limits.file_s:g} s, expected at most that; "
            f"{limits.remedy('file_s')}",
            FILE,
            code="audio_too_long",
        )
    is_form = isinstance(error, AudioFormError | BackendError)
    if is_form and not isinstance(error, DeviceError):
        return RequestError(415, str(error), FILE, code="unsupported_audio")
    if isinstance(error, AudioError):
        return RequestError(400, str(error), FILE, code="invalid_audio")
    if isinstance(error, BoostError):
        return RequestError(400, str(error), "boosts")
    _log.error("a request with a file failed", exc_info=error)
    if isinstance(error, InputError):
        return RequestError(500, f"the model or the search failed: {error}")
    return RequestError(500, "the server failed; its log says why")


@contextlib.contextmanager
def counting(service: Service) -> Iterator[None]:
    """Count refused and failed requests."""
    errors, refused = service.metrics.errors, service.metrics.refused
    try:
        yield
    except (ClientDisconnect, Gone):
        errors.labels("client_gone").inc()
    except RequestError as error:
        if error.status in (503, 413):
            refused.labels("requests" if error.status == 503 else "file").inc()
        else:
            errors.labels("file" if error.status < 500 else "fault").inc()
        raise


class Gone(Exception):
    """The client has disconnected, or does not read."""


class Client:
    """Client of a request whose body is read: whether it is connected, and reads."""

    def __init__(self, receive: Receive, send: Send, unread_s: float) -> None:
        self._receive, self._send, self._unread_s = receive, send, unread_s

    async def __aenter__(self) -> Self:
        self._gone = asyncio.ensure_future(self._wait_until_gone())
        return self

    async def __aexit__(self, *error: object) -> None:
        self._gone.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await self._gone

    async def send(self, message: Any) -> None:
        """Send a message of ASGI."""
        try:
            async with asyncio.timeout(self._unread_s):
                await self._send(message)
        except TimeoutError:
            raise Gone from None

    async def send_body(self, body: bytes, *, more: bool = False) -> None:
        """Send a part of a body."""
        message = {"type": "http.response.body", "body": body, "more_body": more}
        await self.send(message)

    async def unless_gone(
        self, work: Awaitable[_Value], timeout_s: float | None = None
    ) -> _Value:
        """Wait for work while the client is connected."""
        task = asyncio.ensure_future(work)
        try:
            done, _ = await asyncio.wait(
                (task, self._gone),
                timeout=timeout_s,
                return_when=asyncio.FIRST_COMPLETED,
            )
            if task in done:
                return task.result()
            raise Gone if done else TimeoutError
        except asyncio.CancelledError:
            raise stopping() from None
        finally:
            task.cancel()
            # Retrieve the exception, or asyncio logs it.
            task.add_done_callback(lambda one: one.cancelled() or one.exception())

    async def _wait_until_gone(self) -> None:
        while (await self._receive())["type"] != "http.disconnect":
            pass
