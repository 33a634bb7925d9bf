"""Requests with files: a bounded number of them, worked on by a few threads.

    with jobs.place() as place:            # or a Problem: 503, when to ask again
        file = place.keep(open(...))       # closed when nobody uses it any more
        job = place.start(work)            # work(job) in a thread
        while (piece := await job.said()) is not None:     # what it gave to job.say
            ...
        found = await job.result()

Nothing of it waits or computes on the event loop. A place is free again when both its
request and its thread are done with it, so that clients who go away and come again
cannot pile up work.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractContextManager
from typing import Any, Generic, Self, TypeVar

from wfstdec.server.limits import Limits
from wfstdec.server.problems import Problem

_Result = TypeVar("_Result")
_Kept = TypeVar("_Kept", bound=AbstractContextManager)

_NICE = 10
"""How much threads of requests give way to those of streams, which people wait for."""
_LONGEST_RETRY_S = 30.0


class JobCancelled(Exception):
    """A job was given up; raised in its thread."""


class Job(Generic[_Result]):
    """Work of one request, done in a thread; made by `Place.start`."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._said: asyncio.Queue[Any] = asyncio.Queue()
        self._given_up = threading.Event()
        self._future: Future[_Result] | None = None

    # In the thread:
    def check(self) -> None:
        """Raise JobCancelled where nobody waits any more; call it now and then."""
        if self._given_up.is_set():
            raise JobCancelled

    def say(self, what: Any) -> None:
        """Hand something to the loop while the work goes on; not None."""
        with contextlib.suppress(RuntimeError):  # the loop is closed: nobody listens
            self._loop.call_soon_threadsafe(self._said.put_nowait, what)

    # On the loop:
    async def said(self) -> Any:
        """Wait for what the work says next; None at its end, whatever that is."""
        return await self._said.get()

    async def result(self) -> _Result:
        """Wait for what the work returns, or raises."""
        assert self._future is not None
        try:
            return await asyncio.wrap_future(self._future)
        except asyncio.CancelledError:
            if self._given_up.is_set() and self._future.cancelled():
                raise JobCancelled from None
            raise

    def cancel(self) -> None:
        """Give the work up: it does not begin, or ends at its next `check`."""
        self._given_up.set()
        if self._future is not None:
            self._future.cancel()


class Place:
    """A request's place among those that are worked on or wait."""

    def __init__(self, jobs: Jobs) -> None:
        self._jobs = jobs
        self._kept = contextlib.ExitStack()
        self._holders = 1  # the request, and its thread
        self._lock = threading.Lock()

    def __enter__(self) -> Self:
        """Nothing is left to do."""
        return self

    def __exit__(self, *error: object) -> None:
        """Leave the place; it is free when its job is over."""
        self._let_go()

    def keep(self, resource: _Kept) -> _Kept:
        """Close a resource when the place is free again."""
        self._kept.push(resource)
        return resource

    def start(self, work: Callable[[Job[_Result]], _Result]) -> Job[_Result]:
        """Do work in a thread, as soon as one is free."""
        job: Job[_Result] = Job()
        self._holders += 1
        self._jobs._submit(job, work, self._let_go)
        return job

    def _let_go(self) -> None:
        with self._lock:
            self._holders -= 1
            is_free = not self._holders
        if is_free:
            try:
                self._kept.close()
            finally:
                with self._jobs._lock:
                    self._jobs._taken -= 1


class Jobs:
    """Places and threads of requests with files.

    `threads`: requests that are worked on at once; None is one for each processor.
    """

    def __init__(self, limits: Limits, threads: int | None = None) -> None:
        self._limits = limits
        self._processors = len(os.sched_getaffinity(0))
        self._threads = threads or self._processors
        self._pool = ThreadPoolExecutor(self._threads, "wfstdec-request", _give_way)
        self._lock = threading.Lock()
        self._taken = 0
        self._seconds = 1.0  # of a job, on the average, newer ones counting more
        self._under_way: set[Job] = set()
        self._is_over = False

    def __len__(self) -> int:
        """Places that are taken."""
        return self._taken

    @property
    def workers(self) -> int:
        """Threads that a request should use: many where it is alone."""
        return max(1, self._processors // max(1, min(self._taken, self._threads)))

    def place(self) -> Place:
        """Take a place."""
        with self._lock:
            if self._taken >= self._limits.requests or self._is_over:
                # Until a place may be free, as things went so far.
                wait_s = self._seconds * max(1.0, self._taken / self._threads)
                raise Problem(
                    503,
                    f"{self._taken} requests with files are worked on or wait, "
                    f"expected less than {self._limits.requests}; ask again later, or "
                    f"raise the server's {self._limits.flag('requests')}",
                    code="too_many_requests",
                    retry_after_s=min(wait_s, _LONGEST_RETRY_S),
                )
            self._taken += 1
        return Place(self)

    def stop(self) -> None:
        """Give up all work, and wait until no thread is left."""
        with self._lock:
            self._is_over = True
            under_way = list(self._under_way)
        for job in under_way:
            job.cancel()
        self._pool.shutdown(cancel_futures=True)

    def _submit(
        self, job: Job, work: Callable[[Job], Any], done: Callable[[], None]
    ) -> None:
        """Have a thread do a job; `done` is called at its end, whatever that is."""

        def run() -> Any:
            job.check()
            began = time.monotonic()
            result = work(job)
            with self._lock:
                # A running mean, from which clients are told when to try again.
                self._seconds += (time.monotonic() - began - self._seconds) / 8
            return result

        def over(_: Future) -> None:
            with self._lock:
                self._under_way.discard(job)
            done()

        with self._lock:
            self._under_way.add(job)
        try:
            future = self._pool.submit(run)
        except RuntimeError:
            # The pool is shut down: it must not seem that a job is under way.
            over(Future())
            raise Problem(503, "the server stops", retry_after_s=5) from None
        job._future = future
        future.add_done_callback(lambda _: job.say(None))
        future.add_done_callback(over)


def _give_way() -> None:
    """Let other threads of the process go first; those it starts do the same."""
    with contextlib.suppress(OSError, AttributeError):
        os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), _NICE)
