"""Utterances shared out among threads, and what backends on the host have in common.

    with Workers(threads) as workers:
        workers.map(function, items)              # in order, in threads where it helps

    class ReferenceBackend(HostBackend): ...      # has `start`; is given the rest
    class CpuBackend(GroupingBackend): ...        # and `decode_group`, in which

    given = filled_up(utterances)
    now, behind, cut, frames = stretch(given, len(utterances), at, pace.frames)
    kernel(now, at, ...)                          # as much as one call should do

What Python takes to call a kernel is taken once for a group: it has many arrays.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from itertools import chain
from typing import Any, Self, TypeVar

import numpy as np

from wfstdec.boost.compiled import CompiledBoosts
from wfstdec.errors import naming
from wfstdec.search.contract import LATTICES, SESSION_LATTICES, Read
from wfstdec.search.interrupts import Held, Pace, pass_through
from wfstdec.search.logprobs import as_utterances

GROUP = 16
"""Whole utterances of one call, at most: kernels are compiled for so many."""
_NOTHING = np.zeros((0, 0), np.float32)
"""Fills what is given up to `GROUP`: a kernel is compiled for one length."""
_Given = TypeVar("_Given")
_Item = TypeVar("_Item")


class Workers:
    """Threads that work side by side; they are made when there is work for them.

    Args:
        threads: So many, the calling one among them.
        pace: Of searches like these, where it is known.
    """

    def __init__(self, threads: int, pace: Pace | None = None) -> None:
        self.threads = threads
        self.pace = pace or Pace()
        self._pool: ThreadPoolExecutor | None = None
        self._late: set[Future] = set()

    def __enter__(self) -> Self:
        """Nothing is made yet."""
        return self

    def __exit__(self, *error: object) -> None:
        """End the threads."""
        self.end_threads()

    def end_threads(self) -> None:
        """End the threads; others are made when there is work again."""
        pool, self._pool = self._pool, None
        if pool is not None:
            pool.shutdown(wait=not self._late)

    def map(
        self, function: Callable[[_Given], _Item], items: Sequence[_Given]
    ) -> list[_Item]:
        """Call for every item; results in order. Not for several threads at once.

        What a handler of signals raises, such as `KeyboardInterrupt`, is raised when
        all threads have stopped, which they do between items and parts of them.
        """
        results: dict[int, _Item] = {}
        left = iter(range(len(items)))  # all threads take from it, the next one each
        with Held() as held:

            def work() -> None:
                held.join()
                try:
                    for at in left:
                        held.check()
                        results[at] = function(items[at])
                except BaseException:
                    for _ in left:  # nobody begins another
                        pass
                    raise

            others = min(self.threads, len(items)) - 1
            if others < 1:
                work()
            else:
                self._work_side_by_side(work, others, held)
        return [results[at] for at in range(len(items))]

    def _work_side_by_side(
        self, work: Callable[[], None], others: int, held: Held
    ) -> None:
        """Do work in other threads and this one, until there is none."""
        held.wait(self._late)  # what was left alone may still use its search
        held.check()
        if self._pool is None:
            self._pool = ThreadPoolExecutor(self.threads - 1)
        # This thread works too, so that one fewer is needed, and Ctrl-C is heard here.
        done = [self._pool.submit(work) for _ in range(others)]
        try:
            work()
        finally:
            self._late = held.wait(done)
        held.check()
        for one in done:
            one.result()


ALONE = Workers(1)
"""The calling thread, and no other."""


class HostBackend(ABC):
    """A backend whose searches run on the host, one utterance in a thread.

    A copy of one, pickled or not, is made anew of what it searches: memory of searches
    and what is remembered of boosts stay behind.

    Args:
        num_tokens: V of log-probs.
        searched: What it is made of, alone.
    """

    can = frozenset({LATTICES, SESSION_LATTICES})

    def __init__(self, num_tokens: int, searched: Any = None) -> None:
        self._num_tokens, self._searched = num_tokens, searched

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle what it searches."""
        return _made_again, (type(self), self._searched)

    def inputs(self, logprobs: Any, lengths: Any) -> list[np.ndarray]:
        """Check log-probs, as `Backend.inputs`; float32 [T, V], C order."""
        return as_utterances(logprobs, lengths, self._num_tokens)

    def prepare(self, options: Any, boosts: CompiledBoosts) -> None:  # noqa: B027
        """Lay out boosts, as `Backend.prepare`: here as they are."""

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
        """Decode whole utterances, as `Backend.decode`: the longest first."""

        def decode_one(i: int) -> Any:
            with naming(i):
                search = self.start(options, boosts[i], record=record)
                pass_through(search, utterances[i], workers.pace)
                found = search.finish()
                return found if read is None else read(i, found)

        return _each(decode_one, list(map(len, utterances)), workers)

    def advance(
        self,
        searches: Sequence[Any],
        chunks: Sequence[np.ndarray],
        *,
        names: Sequence[int | str] | None = None,
        workers: Workers = ALONE,
    ) -> None:
        """Pass searches through a chunk each, as `Backend.advance`."""
        called = range(len(chunks)) if names is None else names

        def advance_one(i: int) -> None:
            if len(chunks[i]):
                with naming(called[i]):
                    pass_through(searches[i], chunks[i], workers.pace)

        if workers.threads == 1:
            workers.map(advance_one, range(len(chunks)))
        else:
            _each(advance_one, list(map(len, chunks)), workers)


class GroupingBackend(HostBackend):
    """A backend on the host that searches whole utterances a few in one call."""

    @abstractmethod
    def decode_group(
        self,
        utterances: Sequence[np.ndarray],
        options: Any,
        boosts: CompiledBoosts,
        pace: Pace,
        names: Sequence[int] | None = None,
    ) -> list[Any]:
        """Decode whole utterances with the same boosts.

        Args:
            utterances: At most `GROUP`, float32 [T, V] each, C order.
            options: Of the search.
            boosts: Of all of them.
            pace: How much a call of the kernel does.
            names: How errors name them; by default by their place in the group.

        Returns:
            What was found of each utterance.
        """

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
        """Decode whole utterances, as `Backend.decode`: those of a list in groups."""
        if record or read is not None:
            return super().decode(
                utterances, options, boosts, record=record, workers=workers, read=read
            )
        groups = groups_of(list(map(len, utterances)), boosts, workers.threads, GROUP)

        def decode_some(group: list[int]) -> list[Any]:
            some, of_all = [utterances[i] for i in group], boosts[group[0]]
            return self.decode_group(some, options, of_all, workers.pace, group)

        order, each = chain(*groups), chain(*workers.map(decode_some, groups))
        found = dict(zip(order, each, strict=True))
        return [found[i] for i in range(len(utterances))]


def _made_again(backend: Callable[[Any], Any], searched: Any) -> Any:
    """Make a backend of what was pickled; tables of arrays become read-only again.

    Kernels are compiled for read-only ones, and pickles do not keep that.
    """
    _freeze(searched)
    return backend(searched)


def _freeze(tables: Any) -> None:
    if isinstance(tables, np.ndarray):
        tables.setflags(write=False)
    elif isinstance(tables, tuple):
        for one in tables:
            _freeze(one)


def _each(
    function: Callable[[int], _Item], lengths: Sequence[int], workers: Workers
) -> list[_Item]:
    """Call for the position of everything that has a length, the longest first."""
    order = longest_first(lengths)
    results = dict(zip(order, workers.map(function, order), strict=True))
    return [results[i] for i in range(len(lengths))]


def longest_first(lengths: Sequence[int]) -> list[int]:
    """Positions of lengths, the longest first."""
    return sorted(range(len(lengths)), key=lambda i: -lengths[i])


def groups_of(
    lengths: Sequence[int], boosts: Sequence[CompiledBoosts], threads: int, most: int
) -> list[list[int]]:
    """Put utterances of the same boosts together; leave every thread a few groups."""
    enough = sum(lengths) / (4 * threads)
    groups: list[list[int]] = []
    begun: dict[int, tuple[list[int], int]] = {}  # by what boosts are: with its frames
    for i in longest_first(lengths):
        # Equal lists were compiled once, and are one object.
        key = id(boosts[i])
        group, frames = begun.get(key, ([], 0))
        if group and (len(group) == most or frames + lengths[i] > enough):
            group, frames = [], 0
        if not group:
            groups.append(group)
        group.append(i)
        begun[key] = group, frames + lengths[i]
    return groups


def filled_up(utterances: Sequence[np.ndarray]) -> tuple[np.ndarray, ...]:
    """Give as many arrays as a kernel is compiled for: those of a group, then empty."""
    assert len(utterances) <= GROUP
    return (*utterances, *[_NOTHING] * (GROUP - len(utterances)))


def stretch(
    given: tuple[np.ndarray, ...], num: int, at: np.ndarray, frames: int
) -> tuple[tuple[np.ndarray, ...], int, int, int]:
    """Part of a kernel's work that one call does, from `at` on.

    Args:
        given: The utterances.
        num: How many they are.
        at: Where it begins: an utterance, and the frame of it.
        frames: So many at most.

    Returns:
        The utterances, how many of them, the frames of the last one if it is cut, and
        how many frames there are in all.
    """
    i, frame = at[:2].tolist()
    left = frame + frames
    while i < num and len(given[i]) <= left:
        left -= len(given[i])
        i += 1
    if i == num or not left:
        return given, i, 0, frames - left
    return (*given[:i], given[i][:left], *given[i + 1 :]), i + 1, left, frames
