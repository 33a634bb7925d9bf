"""Utterances shared out among threads, and what backends on the host have in common.

with Workers(threads) as workers:
workers.map(function, items)               # in order, in threads where it helps

class CpuBackend(HostBackend): ...             # has `start`; is given the rest
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, Self, TypeVar

import numpy as np

from wfstdec.boost.compiled import CompiledBoosts
from wfstdec.errors import naming
from wfstdec.search.contract import LATTICES, SESSION_LATTICES, Read
from wfstdec.search.interrupts import Held, Pace, pass_through
from wfstdec.search.logprobs import as_utterances

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
