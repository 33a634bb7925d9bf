"""Interrupting: what signal handlers raise waits until kernels are at rest.

    with Held() as held:                  # Ctrl-C is heard here, and raised at the end
        for utterance in utterances:
            held.check()                  # where the work may be left
            pass_through(search, utterance, pace)

Python runs handlers in the main thread, between any two of its instructions. What they
raise there can leave a session half-way; numba, which makes what a kernel returns by
calling Python, turns it into a `SystemError`. So in the main thread handlers are called
in our place: what one raises is kept, all threads stop at their next `check`, and it
is raised when they have. Kernels are given so much as takes them a tenth of a second.
"""

from __future__ import annotations

import _signal  # type: ignore[import-not-found]  # `signal` is ten times as slow
import signal
import threading
import time
from collections.abc import Callable, Iterable
from concurrent.futures import Future, wait
from traceback import walk_stack
from types import FrameType
from typing import Any, Self

_HEARD = tuple(
    getattr(signal, name)
    for name in ("SIGINT", "SIGTERM", "SIGHUP", "SIGALRM", "SIGUSR1", "SIGUSR2")
    if hasattr(signal, name)
)
PATIENCE_S = 1.0
"""Threads that do not stop for so long, as they compile kernels, are left alone."""
PART_S = 0.1
"""What a call of a kernel should take."""
FIRST_FRAMES, LEAST_FRAMES, MOST_FRAMES = 64, 4, 1 << 20
FASTER = 16
"""So many times as much a call is given at most, where the last one was quick."""

_of_thread = threading.local()


class Stopped(BaseException):
    """Work was left where it may be; `Held` raises what a handler raised instead."""


class Held:
    """Holds back what signal handlers raise, in the main thread; elsewhere nothing.

    Within another one it is that one.
    """

    def __init__(self) -> None:
        self._active = False
        self._before: list[tuple[int, Callable[..., Any]]] = []
        self._raised: BaseException | None = None
        self._since = 0.0

    def __enter__(self) -> Self:
        """Take the handlers' place."""
        outer = getattr(_of_thread, "held", None)
        # A call within a call: who came first hears, and raises at its end.
        if outer is not None and outer._active:
            return outer
        # Python calls handlers in the main thread, and only there may they be set.
        if threading.get_ident() == threading.main_thread().ident:
            for number in _HEARD:
                before = _signal.getsignal(number)
                if callable(before):
                    self._before.append((number, before))
                    _signal.signal(number, self._hear)
        _of_thread.held, self._active = self, True
        return self

    def __exit__(self, kind: Any, error: BaseException | None, _: Any) -> None:
        """Put handlers back; raise what one of them raised."""
        if not self._active:
            return
        self._active, _of_thread.held = False, None
        for number, before in self._before:
            if _signal.getsignal(number) == self._hear:  # a handler may set another
                _signal.signal(number, before)
        if self._raised is None or error is self._raised:
            return
        # `Stopped` only carried the news through the search: users see what their
        # handler raised.
        if isinstance(error, Stopped):
            raise self._raised from None
        raise self._raised

    def _hear(self, number: int, frame: FrameType | None) -> None:
        """Call the handler; keep what it raises, unless that would take too long."""
        late = self._overdue
        try:
            dict(self._before)[number](number, frame)
        except BaseException as error:
            # Nobody looks any more, or looked for too long: raised wherever the program
            # is.
            if not self._active or late:
                raise
            if self._raised is None:
                self._raised, self._since = error, time.monotonic()
            # A kernel that is compiled takes long, and may be left.
            if any(
                one.f_code.co_name == "_compile_for_args"
                for one, _ in walk_stack(frame)
            ):
                raise

    @property
    def _overdue(self) -> bool:
        """Tell whether something should have stopped long ago."""
        waited = time.monotonic() - self._since
        return self._raised is not None and waited > PATIENCE_S

    def check(self) -> None:
        """Leave the work where a handler has raised something; for any thread.

        Raises:
            Stopped: It has.
        """
        if self._raised is not None:
            raise Stopped

    def join(self) -> None:
        """Let this thread's work belong to it."""
        _of_thread.held = self

    def wait(self, work: Iterable[Future]) -> set[Future]:
        """Wait for threads; gives those that do not stop."""
        pending = set(work)
        while pending and not self._overdue:
            pending = wait(pending, PATIENCE_S / 2).not_done
        return pending


class Pace:
    """Keeps calls of kernels short: how many frames one is given."""

    def __init__(self) -> None:
        self.frames = FIRST_FRAMES

    def note(self, frames: int, seconds: float) -> None:
        """Take account of a call."""
        fits = int(PART_S / max(seconds, 1e-6) * frames)
        if fits < self.frames:
            if seconds > PART_S:
                self.frames = max(LEAST_FRAMES, fits)
        elif frames >= self.frames:
            self.frames = min(fits, FASTER * self.frames, MOST_FRAMES)


def check() -> None:
    """Leave the work of this thread where a handler has raised something.

    Raises:
        Stopped: It has.
    """
    held = getattr(_of_thread, "held", None)
    if held is not None:
        held.check()


def pass_through(search: Any, chunk: Any, pace: Pace) -> None:
    """Pass a search through a chunk, [T, V], in parts where that would take long.

    Raises:
        Stopped: The search is somewhere within the chunk, and can go on.
    """
    first = 0
    while True:
        part = chunk[first : first + pace.frames]
        began = time.perf_counter()
        search.advance(part)
        pace.note(len(part), time.perf_counter() - began)
        first += len(part)
        if first >= len(chunk):
            return
        # Not behind the last part: what is done should not be lost.
        check()
