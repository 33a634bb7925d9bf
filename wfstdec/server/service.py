"""Service: model, engine and jobs, shared by all request handlers.

    with service.jobs.receive() as job:    # or a RequestError: 503, when to retry
        file = job.keep(open(...))         # closed when nothing uses it any more
        job.take_place()                   # or 503, once all of the file is there
        job.start(work)                    # work(job) in a thread
        while (part := await job.next_part()) is not None:   # given to job.emit
            ...
        result = await job.result()

A job is a request with a file; a few threads run a bounded number of jobs. The event
loop neither waits nor computes for a job. A job takes a place after its file has
arrived, so that slow uploads block no other job. It frees its place when both request
and thread are done, so that reconnecting clients cannot pile up work.
"""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
import os
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractContextManager
from typing import Any, Self, TypeVar

from wfstdec.models import Encoder
from wfstdec.search.decoder import Decoder
from wfstdec.server.engine import Engine, Metrics
from wfstdec.server.limits import ENDPOINT_FLOOR_S, Limits, RequestError
from wfstdec.server.readable import Readable
from wfstdec.server.shared import Places, Shared

_Kept = TypeVar("_Kept", bound=AbstractContextManager)

_NICE = 10  # Niceness of the threads of jobs: streams have priority
_LONGEST_RETRY_S = 30.0


class JobCancelled(Exception):
    """The job was cancelled; raised in its thread."""


class Job:
    """Request with a file: its place, and its work in a thread."""

    def __init__(self, jobs: Jobs) -> None:
        self._jobs = jobs
        self._kept = contextlib.ExitStack()
        self._parts: asyncio.Queue[Any] = asyncio.Queue()
        self._is_cancelled = threading.Event()
        self._future: Future | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.cancel()
        if self._future is None:
            self._leave()
        else:
            self._future.add_done_callback(lambda _: self._leave())

    def _leave(self) -> None:
        try:
            self._kept.close()
        finally:
            self._jobs._uploads.discard(self)
            self._jobs._taken.discard(self)

    def take_place(self) -> None:
        """Take a place among the running and waiting jobs."""
        if self._jobs._is_over or not self._jobs._taken.take(self):
            raise self._jobs._full("requests")
        self._jobs._uploads.discard(self)

    def keep(self, resource: _Kept) -> _Kept:
        """Close a resource when the place is freed."""
        self._kept.push(resource)
        return resource

    def start(self, work: Callable[[Job], Any]) -> None:
        """Run work in a thread, as soon as one is free."""
        self._loop = asyncio.get_running_loop()
        try:
            self._future = self._jobs._pool.submit(self._run, work)
        except RuntimeError:  # the pool is shut down
            raise stopping() from None
        self._future.add_done_callback(lambda _: self.emit(None))

    def _run(self, work: Callable[[Job], Any]) -> Any:
        self.check()
        began, jobs = time.monotonic(), self._jobs
        result = work(self)
        # Running mean, from which clients learn when to retry.
        jobs._seconds += (time.monotonic() - began - jobs._seconds) / 8
        return result

    def check(self) -> None:
        """Raise JobCancelled, in the thread, if the request is over."""
        if self._is_cancelled.is_set():
            raise JobCancelled

    def emit(self, part: Any) -> None:
        """Pass a part of the response to the loop; None is the end."""
        with contextlib.suppress(RuntimeError):  # the loop is closed: no listener
            self._loop.call_soon_threadsafe(self._parts.put_nowait, part)

    async def next_part(self) -> Any:
        """Wait for the next part; None after the work has ended in any way."""
        return await self._parts.get()

    async def result(self) -> Any:
        """Wait for the result of the work, or raise its exception."""
        assert self._future is not None
        try:
            return await asyncio.wrap_future(self._future)
        except (JobCancelled, asyncio.CancelledError) as error:
            stopped = self._is_cancelled.is_set() and self._future.cancelled()
            if stopped or isinstance(error, JobCancelled):
                raise stopping() from None
            raise

    def cancel(self) -> None:
        """Cancel the work: it does not begin, or ends at its next `check`."""
        self._is_cancelled.set()
        if self._future is not None:
            self._future.cancel()


class Jobs:
    """Running and waiting jobs, and their threads: one for each processor."""

    def __init__(self, limits: Limits, shared: Shared) -> None:
        self._limits = limits
        self._threads = max(1, len(os.sched_getaffinity(0)) // shared.processes)
        self._pool = ThreadPoolExecutor(self._threads, "wfstdec-request", _give_way)
        self._uploads, self._taken = (
            Places(shared, "uploads"),
            Places(shared, "requests"),
        )
        self._seconds = 1.0  # mean of a job, newer ones count more
        self._is_over = False

    def __len__(self) -> int:
        return len(self._taken)

    @property
    def workers(self) -> int:
        """Number of threads for a job: many if it is alone."""
        return max(1, self._threads // max(1, min(len(self._taken), self._threads)))

    def receive(self) -> Job:
        """Return a job for an incoming file; refuse it if all places are taken."""
        if self._taken.total >= self._limits.requests or self._is_over:
            raise self._full("requests")
        job = Job(self)
        if not self._uploads.take(job):
            raise self._full("uploads")
        return job

    def _full(self, limit: str) -> RequestError:
        num, what = self._taken.total, "are worked on or wait"
        if limit == "uploads":
            num, what = self._uploads.total, "are being received"
        # Estimated time until a place is free.
        wait_s = self._seconds * max(1.0, num / self._threads)
        return RequestError(
            503,
            f"{num} requests with files {what}, expected less than "
            f"{getattr(self._limits, limit)}; retry later, or raise the server's "
            f"{self._limits.flag(limit)}",
            code="too_many_requests",
            retry_after_s=min(wait_s, _LONGEST_RETRY_S),
        )

    def stop(self) -> None:
        """Cancel all jobs, and join the threads."""
        self._is_over = True
        for job in [*self._uploads, *self._taken]:
            job.cancel()
        self._pool.shutdown(cancel_futures=True)


def stopping() -> RequestError:
    """Return the error of open requests when the server stops."""
    return RequestError(503, "the server stops", retry_after_s=5)


def _give_way() -> None:
    """Lower the priority of this thread and of those it starts."""
    with contextlib.suppress(OSError, AttributeError):
        os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), _NICE)


class Service:
    """A model, a decoder, an engine, and the options of requests."""

    def __init__(
        self,
        model: Encoder,
        decoder: Decoder[Any, Any],
        limits: Limits | None = None,
        *,
        name: str = "wfstdec",
        key: str | None = None,  # required of clients
        origins: tuple[str, ...] = (),  # of other pages that may use the server
        hosts: tuple[str, ...] = ("*",),  # names by which clients may call it
        language: str = "en",
        confidence: bool = False,  # of words of files, if not requested
        nbest: int = 1,
        readable: Readable | None = None,
        prompt_boosts: bool = True,  # words of OpenAI's `prompt` become boosts
        workers: int | None = None,  # threads of the encoder
        endpoint_floor_s: float = ENDPOINT_FLOOR_S,
        engine: Engine | None = None,
        shared: Shared | None = None,  # with other processes
    ) -> None:
        self.name, self.model, self.decoder = name, model, decoder
        self.limits, self.metrics = limits or Limits(), Metrics()
        self.key, self.origins, self.hosts = key, origins, hosts
        self.language, self.confidence, self.nbest = language, confidence, nbest
        self.shared = shared = shared or Shared(self.limits)
        self.prompt_boosts = prompt_boosts
        if engine is None:
            engine = Engine(
                *(model, decoder, self.limits, self.metrics, shared),
                confidence=confidence,
                nbest=nbest,
                workers=workers,
                endpoint_floor_s=endpoint_floor_s,
            )
        self.engine, self.jobs = engine, Jobs(self.limits, shared)
        self.readable = readable or Readable()
        self.warming = self.draining = False
        self.connections: set[Any] = set()  # with streams, or between two of them

    def stop(self) -> None:
        """Abort all streams and files, and join the threads."""
        try:
            self.jobs.stop()
        finally:
            self.engine.stop()

    @contextlib.contextmanager
    def counting(self, address: str) -> Iterator[None]:
        """Count a stream or file of a client; RequestError above the limit."""
        client, most = client_of(address), self.limits.per_client
        if most is None:
            yield
            return
        place = self.shared.take_client(client, most)
        if place is None:
            raise RequestError(
                429,
                f"{most} streams and files of {client} are under way, expected fewer; "
                f"{self.limits.remedy('per_client')}",
                code="too_many_of_client",
                retry_after_s=1,
            )
        try:
            yield
        finally:
            self.shared.free_client(place)

    @property
    def unready(self) -> str | None:
        """Reason for refusing new streams: 'warming', 'draining', 'full'; else None."""
        if self.draining:
            return "draining"
        if self.warming:
            return "warming"
        return "full" if len(self.engine) >= self.limits.streams else None


def client_of(address: str) -> str:
    """Return the part of an address that identifies a client: 64 bits of IPv6."""
    try:
        ip = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:  # a name that a proxy has given
        return address
    if isinstance(ip, ipaddress.IPv4Address):
        return str(ip)
    if ip.ipv4_mapped is not None:  # of a socket that accepts both
        return str(ip.ipv4_mapped)
    return str(ipaddress.ip_network((ip, 64), strict=False))


async def in_thread(work: Callable[[], Any]) -> Any:
    """Run a function in a thread that does not delay the exit of the program."""
    future: Future[Any] = Future()
    future.set_running_or_notify_cancel()  # it continues after its caller is gone

    def run() -> None:
        try:
            future.set_result(work())
        except BaseException as error:
            future.set_exception(error)

    threading.Thread(target=run, daemon=True).start()
    return await asyncio.wrap_future(future)
