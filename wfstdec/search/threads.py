"""Thread pool, base class of CPU backends, and deferred signals.

    with DeferredSignals() as held:       # Ctrl-C is kept here and raised at the end
        for utterance in utterances:
            held.check()                  # a point where work may stop
            pass_through(search, utterance, pace)

An exception from a signal handler can leave a session inconsistent, and numba turns one
that comes while a kernel's result is converted into a `SystemError`. So it is kept, all
threads stop at their next `check`, and it is raised then. A kernel call takes 0.1 s.
"""

import _signal  # type: ignore[import-not-found]  # `signal` is ten times as slow
import signal
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from itertools import chain
from traceback import walk_stack
from types import FrameType
from typing import Any, Self, TypeVar

import numpy as np

from wfstdec.boost.compiled import CompiledBoosts
from wfstdec.errors import LogprobError, naming
from wfstdec.search.logprobs import as_rows, with_numbers_checked

# Abilities of backends: lattices of whole utterances, and of sessions; settled segments
# of these, `Search.settle`; `memory_plan`.
LATTICES, SESSION_LATTICES = "lattices", "lattices of sessions"
SEGMENTS, MEMORY_PLANS = "segments", "memory plans"
Read = Callable[[Sequence[int], Sequence[Any]], list[Any]]
"""Callback `(indices, results) -> values` applied to the results of some utterances."""
_HEARD = tuple(
    getattr(signal, name)
    for name in ("SIGINT", "SIGTERM", "SIGHUP", "SIGALRM", "SIGUSR1", "SIGUSR2")
    if hasattr(signal, name)
)
PATIENCE_S = 1.0
"""Threads that do not stop for this long, as they compile kernels, are not awaited."""
PART_S = 0.1  # target duration of a kernel call, seconds
FIRST_FRAMES, LEAST_FRAMES, MOST_FRAMES = 64, 4, 1 << 20
FASTER = 16  # largest growth factor of the frames of a call

_of_thread = threading.local()


class Interrupted(BaseException):
    """Work stopped early; `DeferredSignals` raises the handler's exception."""


class DeferredSignals:
    """Defers exceptions of signal handlers in the main thread; the outermost does."""

    def __init__(self) -> None:
        self._active = False
        self._before: list[tuple[int, Callable[..., Any]]] = []
        self._raised: BaseException | None = None
        self._since = 0.0

    def __enter__(self) -> Self:
        outer = getattr(_of_thread, "held", None)
        if outer is not None and outer._active:
            return outer
        # Handlers run, and can be set, in the main thread only.
        if threading.get_ident() == threading.main_thread().ident:
            for number in _HEARD:
                before = _signal.getsignal(number)
                if callable(before):
                    self._before.append((number, before))
                    _signal.signal(number, self._handle)
        _of_thread.held, self._active = self, True
        return self

    def __exit__(self, kind: Any, error: BaseException | None, _: Any) -> None:
        if not self._active:
            return
        self._active, _of_thread.held = False, None
        for number, before in self._before:
            if _signal.getsignal(number) == self._handle:  # a handler may set another
                _signal.signal(number, before)
        if self._raised is None or error is self._raised:
            return
        if isinstance(error, Interrupted):
            raise self._raised from None
        raise self._raised

    def _handle(self, number: int, frame: FrameType | None) -> None:
        late = self._overdue
        try:
            dict(self._before)[number](number, frame)
        except BaseException as error:
            # No `check` will follow, or none came for too long: raise here.
            if not self._active or late:
                raise
            if self._raised is None:
                self._raised, self._since = error, time.monotonic()
            # Compilation takes long and may be interrupted.
            if any(
                one.f_code.co_name == "_compile_for_args"
                for one, _ in walk_stack(frame)
            ):
                raise

    @property
    def _overdue(self) -> bool:
        waited = time.monotonic() - self._since
        return self._raised is not None and waited > PATIENCE_S

    def check(self) -> None:
        """Raise `Interrupted` in any thread if a handler has raised."""
        if self._raised is not None:
            raise Interrupted

    def join(self) -> None:
        """Register this thread's work with it."""
        _of_thread.held = self

    def wait(self, work: Iterable[Future]) -> set[Future]:
        """Wait for threads; return those that do not stop."""
        pending = set(work)
        while pending and not self._overdue:
            pending = wait(pending, PATIENCE_S / 2).not_done
        return pending


class CallBudget:
    """Number of frames per kernel call, so that it takes about `PART_S`."""

    def __init__(self, frames: int = FIRST_FRAMES) -> None:
        self.frames = frames

    def note(self, frames: int, seconds: float) -> None:
        """Adapt to the duration of a call."""
        fits = int(PART_S / max(seconds, 1e-6) * frames)
        if fits < self.frames:
            if seconds > PART_S:
                self.frames = max(LEAST_FRAMES, fits)
        elif frames >= self.frames:
            self.frames = min(fits, FASTER * self.frames, MOST_FRAMES)


def check() -> None:
    """Raise `Interrupted` in this thread if a handler has raised."""
    held = getattr(_of_thread, "held", None)
    if held is not None:
        held.check()


def pass_through(search: Any, chunk: Any, pace: CallBudget) -> None:
    """Advance a search by a chunk, [T, V], in parts of the budget."""
    first = 0
    while True:
        part = chunk[first : first + pace.frames]
        began = time.perf_counter()
        search.advance(part)
        pace.note(len(part), time.perf_counter() - began)
        first += len(part)
        if first >= len(chunk):
            return
        # Not after the last part: finished work should not be lost.
        check()


GROUP = 16  # most utterances per call: kernels are compiled for this number
SESSIONS = 256  # most sessions per call
_NOTHING = np.zeros((0, 0), np.float32)
_Given = TypeVar("_Given")
_Item = TypeVar("_Item")


class Workers:
    """Pool of worker threads, started when there is work."""

    def __init__(self, threads: int, pace: CallBudget | None = None) -> None:
        self.threads = threads
        self.pace = pace or CallBudget()
        self._pool: ThreadPoolExecutor | None = None
        self._late: set[Future] = set()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.end_threads()

    def end_threads(self) -> None:
        """End the threads; new ones are started when there is work."""
        pool, self._pool = self._pool, None
        if pool is not None:
            pool.shutdown(wait=not self._late)

    def map(
        self, function: Callable[[_Given], _Item], items: Sequence[_Given]
    ) -> list[_Item]:
        """Apply a function to every item; results in order. Not for concurrent use."""
        if len(items) == 1:
            with DeferredSignals():
                return [function(items[0])]
        results: dict[int, _Item] = {}
        left = iter(range(len(items)))  # shared by all threads
        with DeferredSignals() as held:

            def work() -> None:
                held.join()
                try:
                    for at in left:
                        held.check()
                        results[at] = function(items[at])
                except BaseException:
                    for _ in left:  # stops the other threads
                        pass
                    raise

            others = min(self.threads, len(items)) - 1
            if others < 1:
                work()
                return [results[at] for at in range(len(items))]
            held.wait(self._late)  # a thread not awaited may still use its search
            held.check()
            if self._pool is None:
                self._pool = ThreadPoolExecutor(self.threads - 1)
            done = [self._pool.submit(work) for _ in range(others)]
            try:
                work()
            finally:
                self._late = held.wait(done)
            held.check()
            for one in done:
                one.result()
        return [results[at] for at in range(len(items))]


ALONE = Workers(1)  # the calling thread alone


class HostBackend(ABC):
    """Backend whose searches run on the host, a group of utterances per thread."""

    can = frozenset({LATTICES, SESSION_LATTICES})
    checks_numbers = False
    """Whether `decode_group` validates the numbers of log-probs, in the same pass."""

    def __init__(self, num_tokens: int, searched: Any = None) -> None:
        self._num_tokens, self._searched = num_tokens, searched

    def __reduce__(self) -> tuple[Any, ...]:
        # Without memory and prepared boosts.
        return _made_again, (type(self), self._searched)

    def inputs(self, logprobs: Any, lengths: Any) -> list[np.ndarray]:
        """Check shapes; return float32 [T, V], C order. Numbers are checked later."""
        return as_rows(logprobs, lengths, self._num_tokens)

    def prepare(self, options: Any, boosts: CompiledBoosts) -> None:  # noqa: B027
        """Lay out boosts, as `Backend.prepare`: nothing by default."""

    @abstractmethod
    def start(
        self, options: Any, boosts: CompiledBoosts, *, record: bool = False
    ) -> Any:
        """Begin an utterance, as `Backend.start`."""

    def decode(
        self,
        utterances: Sequence[np.ndarray],
        options: Any,
        boosts: Sequence[CompiledBoosts],
        *,
        record: bool = False,
        workers: Workers = ALONE,
        read: Read | None = None,
    ) -> list[Any]:
        """Decode whole utterances in groups, the longest first."""
        # Equal boost lists are compiled once and are one object.
        lengths, most = list(map(len, utterances)), 1 if record else GROUP
        groups = groups_of(lengths, boosts, workers.threads, most)

        def decode_some(group: list[int]) -> list[Any]:
            rows = [utterances[i] for i in group]
            if record or not self.checks_numbers:
                rows = list(map(with_numbers_checked, rows, group))
            given = rows, options, boosts[group[0]]
            if not record:
                found: Any = self.decode_group(*given, workers.pace, group)
                return found if read is None else read(group, found)
            found = self._decode_each(*given, workers.pace, group, record=True)
            with naming(group[0]):  # the only one
                return found if read is None else read(group, found)

        try:
            each = chain(*workers.map(decode_some, groups))
        except LogprobError:
            for i, one in enumerate(utterances):
                with_numbers_checked(one, i)  # names the first invalid one
            raise
        found = dict(zip(chain(*groups), each, strict=True))
        return [found[i] for i in range(len(utterances))]

    def decode_group(
        self,
        utterances: Sequence[np.ndarray],
        options: Any,
        boosts: CompiledBoosts,
        pace: CallBudget,
        names: Sequence[int] = (),
    ) -> Sequence[Any]:
        """Decode at most `GROUP` whole utterances with the same boosts, one by one."""
        return self._decode_each(utterances, options, boosts, pace, names)

    def _decode_each(
        self,
        utterances: Sequence[np.ndarray],
        options: Any,
        boosts: CompiledBoosts,
        pace: CallBudget,
        names: Sequence[int],
        *,
        record: bool = False,
    ) -> list[Any]:
        found = []
        for name, one in zip(names or range(len(utterances)), utterances, strict=True):
            with naming(name):
                search = self.start(options, boosts, record=record)
                pass_through(search, one, pace)
                found.append(search.finish())
        return found

    def advance(
        self,
        searches: Sequence[Any],
        chunks: Sequence[np.ndarray],
        *,
        names: Sequence[int | str] | None = None,
        workers: Workers = ALONE,
    ) -> None:
        """Advance searches by a chunk each, as `Backend.advance`."""
        called = range(len(chunks)) if names is None else names
        chunks = list(map(with_numbers_checked, chunks, called))
        groups = [[0]]
        if len(chunks) != 1:
            lengths, kinds = list(map(len, chunks)), list(map(self.kind_of, searches))
            groups = groups_of(lengths, kinds, workers.threads, SESSIONS)

        def advance_some(group: list[int]) -> None:
            self.advance_group(
                *([searches[i] for i in group], [chunks[i] for i in group]),
                *([called[i] for i in group], workers.pace),
            )

        workers.map(advance_some, groups)

    def kind_of(self, search: Any) -> Any:
        """Return an object shared by searches that `advance_group` may combine."""
        return self

    def advance_group(
        self,
        searches: Sequence[Any],
        chunks: Sequence[np.ndarray],
        names: Sequence[int | str],
        pace: CallBudget,
    ) -> None:
        """Advance searches of one kind by a chunk each, one by one."""
        for search, chunk, name in zip(searches, chunks, names, strict=True):
            if len(chunk):
                with naming(name):
                    pass_through(search, chunk, pace)


def _made_again(backend: Callable[[Any], Any], searched: Any) -> Any:
    _freeze(searched)
    return backend(searched)


def _freeze(tables: Any) -> None:
    # Kernels are compiled for read-only arrays; pickles lose the flag.
    if isinstance(tables, np.ndarray):
        tables.setflags(write=False)
    elif isinstance(tables, tuple):
        for one in tables:
            _freeze(one)


def groups_of(
    lengths: Sequence[int], kinds: Sequence[Any], threads: int, most: int
) -> list[list[int]]:
    """Group utterances of one kind, by identity; about four groups per thread."""
    enough = sum(lengths) / (4 * threads)
    groups: list[list[int]] = []
    begun: dict[int, tuple[list[int], int]] = {}  # group and its frames
    for i in sorted(range(len(lengths)), key=lengths.__getitem__, reverse=True):
        key = id(kinds[i])
        group, frames = begun.get(key, ([], 0))
        if group and (len(group) == most or frames + lengths[i] > enough):
            group, frames = [], 0
        if not group:
            groups.append(group)
        group.append(i)
        begun[key] = group, frames + lengths[i]
    return groups


def filled_up(utterances: Sequence[np.ndarray]) -> tuple[np.ndarray, ...]:
    """Pad a group with empty arrays: kernels are compiled for `GROUP` arrays."""
    assert len(utterances) <= GROUP
    return (*utterances, *[_NOTHING] * (GROUP - len(utterances)))


def stretch(
    given: tuple[np.ndarray, ...], num: int, at: np.ndarray, frames: int
) -> tuple[tuple[np.ndarray, ...], int, int, int]:
    """Return the part of a kernel's work for one call: `frames` from `at` on."""
    i, frame = at[:2].tolist()
    left = frame + frames
    while i < num and len(given[i]) <= left:
        left -= len(given[i])
        i += 1
    if i == num or not left:
        return given, i, 0, frames - left
    return (*given[:i], given[i][:left], *given[i + 1 :]), i + 1, left, frames
