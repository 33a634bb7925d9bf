"""Worker processes of a server, forked from a parent with the decoder.

    in_child(lambda: load().spec)     # keeps its memory out of this process
    with_kernels(load)                # compiles kernels in another process
    Supervisor(2, run, shared, on_ready).run()

Workers share the parent's memory until they write to it: the graph, the language model
and the lexicon exist once. The parent must not have threads when it forks. Each worker
therefore loads the model, whose libraries start threads.
"""

import contextlib
import ctypes
import logging
import multiprocessing
import os
import pickle
import signal
import socket
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterator
from multiprocessing.connection import Connection, wait
from typing import Any, NamedTuple, TypeVar

from wfstdec.errors import BackendError, WfstdecError
from wfstdec.jit.cache import NotOnDisk, loading_only
from wfstdec.server.shared import Shared

_Result = TypeVar("_Result")
Run = Callable[[Callable[[], None]], None]
"""Work of a worker, which calls its argument when it is ready."""

MULTIPROCESS = "PROMETHEUS_MULTIPROC_DIR"
"""Variable with the folder of metrics; set before importing the client."""
_FORK = multiprocessing.get_context("fork")
_SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
_SIGNAL_OF_PARENTS_DEATH = 1  # `PR_SET_PDEATHSIG` of Linux's prctl
_LONGEST_DELAY_S = 30.0
_MOST_DEATHS, _DEATHS_S = 3, 60.0
_FORGOTTEN_S = 600.0  # older deaths delay no new worker

_log = logging.getLogger("wfstdec.server")


def in_child(work: Callable[[], _Result]) -> _Result:
    """Run work in a forked process; return its result, or raise its error."""
    reader, writer = _FORK.Pipe(duplex=False)

    def run() -> None:
        _end_with_parent(signal.SIGKILL)
        try:
            writer.send((work(), None))
        except Exception as error:
            writer.send((None, _sendable(error)))
        finally:
            os._exit(0)

    child = _FORK.Process(target=run)
    child.start()
    writer.close()
    try:
        result, error = reader.recv()
    except EOFError:
        result, error = None, BackendError("a process was killed, expected its result")
    finally:
        child.kill()
        child.join()
    if error is not None:
        raise error
    return result


def with_kernels(work: Callable[[], _Result]) -> _Result:
    """Run work; compile missing kernels in a child first."""
    # A process that has compiled keeps 1.6 GB instead of 0.4.
    try:
        with loading_only():
            return work()
    except NotOnDisk:
        with contextlib.suppress(Exception):  # it is raised again below

            def compile_all() -> None:
                work()

            in_child(compile_all)
    return work()


def _sendable(error: Exception) -> Exception:
    """Return an error if it can be pickled, else its text."""
    if not isinstance(error, WfstdecError | OSError):
        error.add_note(traceback.format_exc())
    try:
        pickle.loads(pickle.dumps(error))
    except Exception:
        return BackendError(f"{type(error).__name__}: {error}")
    return error


def _end_with_parent(number: int) -> None:
    """Request a signal for this process when its parent dies."""
    with contextlib.suppress(AttributeError, OSError):  # only Linux has it
        ctypes.CDLL(None).prctl(_SIGNAL_OF_PARENTS_DEATH, number)


class _Worker(NamedTuple):
    process: Any
    reader: Connection  # None when it is ready, or the error that it ends with


class Supervisor:
    """Supervisor that starts workers, forwards signals, and replaces dead workers."""

    def __init__(
        self, num: int, run: Run, shared: Shared, on_ready: Callable[[], None]
    ) -> None:
        self._run, self._shared, self._on_ready = run, shared, on_ready
        self._pid = os.getpid()
        self._workers: dict[int, _Worker] = {}
        self._due = dict.fromkeys(range(num), 0.0)  # when each starts
        self._starting = set(range(num))  # until all have been ready once
        self._deaths: list[float] = []
        self._is_stopping = False
        self._error: Exception | None = None

    def run(self) -> None:
        """Run workers until a signal stops them.

        Raises:
            BackendError: Too many workers have died.
            Exception: The error that kept a worker from starting.
        """
        assert threading.active_count() == 1, "a thread is not forked"
        with self._signals() as woken:
            try:
                while self._workers or not self._is_stopping:
                    self._start()
                    self._wait(woken)
            finally:
                for worker in self._workers.values():
                    worker.process.kill()
        if self._error is not None:
            raise self._error

    def _start(self) -> None:
        now = time.monotonic()
        for number in [n for n, due in self._due.items() if due <= now]:
            reader, writer = _FORK.Pipe(duplex=False)
            process = _FORK.Process(target=self._work, args=(number, writer))
            process.start()
            writer.close()
            self._workers[number] = _Worker(process, reader)
            self._due.pop(number, None)
            if self._is_stopping:  # a signal came meanwhile
                process.terminate()

    def _work(self, number: int, writer: Connection) -> None:
        code, self._shared.process = 1, number
        try:
            # Ctrl-C is sent to the whole group: only the parent forwards it.
            os.setpgid(0, 0)
            signal.set_wakeup_fd(-1)
            _end_with_parent(signal.SIGTERM)
            self._run(lambda: writer.send(None))
            code = 0
        except KeyboardInterrupt:
            code = 0
        except Exception as error:
            if number not in self._starting:  # the parent no longer reads
                _log.error("a worker process fails", exc_info=error)
            with contextlib.suppress(OSError):
                writer.send(_sendable(error))
        finally:
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(code)  # without waiting for threads and inherited state

    def _wait(self, woken: socket.socket) -> None:
        """Wait for a message or the end of a worker, a signal, or a start."""
        timeout = None
        if self._due:
            timeout = max(0.0, min(self._due.values()) - time.monotonic())
        readers = [
            one.reader for one in self._workers.values() if not one.reader.closed
        ]
        ends = [one.process.sentinel for one in self._workers.values()]
        if woken in wait([woken, *readers, *ends], timeout):
            woken.recv(64)
        for number, worker in list(self._workers.items()):
            if not worker.reader.closed and worker.reader.poll():
                with contextlib.suppress(EOFError), worker.reader:
                    self._receive(number, worker.reader.recv())
            if worker.process.exitcode is not None:
                self._replace(number, worker.process)

    def _receive(self, number: int, error: Exception | None) -> None:
        if error is None:
            was_starting = bool(self._starting)
            self._starting.discard(number)
            if was_starting and not self._starting and not self._is_stopping:
                self._on_ready()
        elif self._starting:
            self._stop(error)
        else:
            _log.error("a worker process does not start: %s", error)

    def _replace(self, number: int, process: Any) -> None:
        del self._workers[number]
        self._shared.clear(number)
        if self._is_stopping:
            return
        now = time.monotonic()
        self._deaths = [x for x in self._deaths if now - x < _FORGOTTEN_S] + [now]
        delay = min(2.0 ** (len(self._deaths) - 1), _LONGEST_DELAY_S)
        code = process.exitcode
        how = f"with exit code {code}"
        if code < 0:
            how = f"by signal {-code}"
            with contextlib.suppress(ValueError):  # real-time ones have no name
                how = f"by {signal.Signals(-code).name}"
        if sum(now - x < _DEATHS_S for x in self._deaths) >= _MOST_DEATHS:
            text = f"{_MOST_DEATHS} worker processes ended within {_DEATHS_S:g} s, the "
            self._stop(BackendError(f"{text}last {how}, expected none"))
            return
        text = "worker process %d has ended %s, and its streams with it; another is "
        _log.error(text + "started in %g s", process.pid, how, delay)
        self._due[number] = now + delay

    def _stop(self, error: Exception | None = None) -> None:
        self._error, self._is_stopping = self._error or error, True
        self._due.clear()
        for worker in list(self._workers.values()):
            worker.process.terminate()

    @contextlib.contextmanager
    def _signals(self) -> Iterator[socket.socket]:
        """Forward signals; the yielded socket is readable after one."""

        def take(number: int, frame: object) -> None:
            if os.getpid() != self._pid:  # in a worker before it serves
                raise KeyboardInterrupt
            self._stop()

        woken, waking = socket.socketpair()
        waking.setblocking(False)
        before = signal.set_wakeup_fd(waking.fileno())
        handlers = {
            number: signal.signal(number, take)
            for number in _SIGNALS
            if number == signal.SIGTERM
            or signal.getsignal(number) is not signal.SIG_IGN
        }
        try:
            yield woken
        finally:
            for number, handler in handlers.items():
                signal.signal(number, handler)
            signal.set_wakeup_fd(before)
            woken.close()
            waking.close()
