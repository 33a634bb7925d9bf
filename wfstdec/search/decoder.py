"""What every decoder does around its search: batches, threads, boosts, chunks.

hyps = decoder.decode(logprobs)                        # whole utterances, or

under_way = decoder.start(len(logprobs))               # as they come in:
under_way.advance(logprobs)                            # any number of chunks
hyps = under_way.finish()
"""

from __future__ import annotations

import copy
import math
import numbers
import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any, Generic, Protocol, Self, TypeVar, runtime_checkable

import numpy as np

from wfstdec.boost.boosts import BoostCompiler, BoostsLike, CompiledBoosts
from wfstdec.errors import InputError, OptionError, ShapeError
from wfstdec.search.hypothesis import Hypothesis
from wfstdec.search.logprobs import as_utterances

_Item = TypeVar("_Item")
_Result = TypeVar("_Result")
_Result_co = TypeVar("_Result_co", covariant=True)


class Search(Protocol[_Result_co]):
    """One utterance under way."""

    def advance(self, logprobs: np.ndarray) -> None:
        """Pass the search through a chunk, float32 [T, V], C order."""

    def finish(self) -> _Result_co:
        """End the utterance."""


class Backend(Protocol[_Result_co]):
    """What a search goes through, laid out for one kind of machine."""

    def start(self, options: Any, boosts: CompiledBoosts) -> Search[_Result_co]:
        """Begin an utterance."""


class Batch(Protocol[_Result]):
    """Utterances under way side by side."""

    def advance(self, chunks: Sequence[Any]) -> None:
        """Pass each utterance through its chunk, float32 [T, V]."""

    def finish(self) -> list[_Result]:
        """End all utterances."""


@runtime_checkable
class BatchBackend(Protocol[_Result]):
    """A backend that takes many utterances at a time, arrays on its device."""

    def as_utterances(
        self, logprobs: Any, lengths: Any, num_tokens: int
    ) -> Sequence[Any]:
        """As `wfstdec.search.logprobs.as_utterances`; arrays may stay on the device."""

    def start_batch(
        self, options: Any, boosts: Sequence[CompiledBoosts]
    ) -> Batch[_Result]:
        """Begin utterances, each with its own boosts."""

    def decode_batch(
        self,
        utterances: Sequence[Any],
        options: Any,
        boosts: Sequence[CompiledBoosts],
    ) -> list[_Result]:
        """Whole utterances."""

    def memory_plan(
        self, num_utterances: int, num_frames: int | None = None
    ) -> dict[str, int]:
        """What a batch takes on the device, in bytes; see `WfstDecoder.memory_plan`."""


class Decoder(ABC, Generic[_Result]):
    """A search with options and a backend; see `WfstDecoder` and `TrieDecoder`.

    Args:
        options: Search options of the decoder's kind.
        backend: What `options` and boosts go to.
        boosts: Compiles what users give.
        num_tokens: V.
        frame_shift_s: Seconds per frame of log-probs.
        threads: Utterances decoded side by side; `None` takes one per processor.

    Raises:
        OptionError: `frame_shift_s` or `threads` is out of range.
    """

    def __init__(
        self,
        options: Any,
        backend: Backend[_Result] | BatchBackend[_Result],
        boosts: BoostCompiler,
        *,
        num_tokens: int,
        frame_shift_s: float,
        threads: int | None,
    ) -> None:
        if not (math.isfinite(frame_shift_s) and frame_shift_s > 0):
            raise OptionError(
                f"frame_shift_s={frame_shift_s!r}, expected seconds, above 0"
            )
        if threads is not None and threads < 1:
            raise OptionError(f"threads={threads!r}, expected 1 or more, or None")
        self.options = options
        self.frame_shift_s = frame_shift_s
        self.threads = threads or len(os.sched_getaffinity(0))
        self._backend = backend
        self._boosts = boosts
        self._num_tokens = num_tokens

    @abstractmethod
    def _hypothesis(self, result: _Result, boosts: CompiledBoosts) -> Hypothesis:
        """What the user gets of a finished search."""

    @property
    def num_tokens(self) -> int:
        """V, the blank included."""
        return self._num_tokens

    def with_options(self, **changes: Any) -> Self:
        """The same decoder with some options changed; shares all its arrays.

        Raises:
            OptionError: A value is out of range, or fixed where a decoder is made.
        """
        other = copy.copy(self)
        other.options = replace(self.options, **changes)
        return other

    def _check_boosts(self, boosts: list[CompiledBoosts]) -> None:
        """Raise where the search cannot do these boosts."""

    def decode(
        self, logprobs: Any, lengths: Any = None, boosts: BoostsLike | Sequence = None
    ) -> list[Hypothesis]:
        """Decode whole utterances: start, advance and finish in a row.

        Args:
            logprobs: [B, T, V] array or a sequence of [T, V] arrays, natural log,
                NumPy or torch, float16 or wider; `-inf` is an impossible token.
            lengths: [B] frames of each utterance; `None` for all.
            boosts: For all utterances, or a sequence with one for each: word to bonus
                in nats (above 0 favours), compiled phrases, `Boosts`, or `None`.

        Raises:
            ShapeError: Axes, V, lengths or the number of boosts are wrong.
            LogprobError: NaN or +inf.
            BoostError: A boost is no word with a finite number, or does not fit.

        Warns:
            BoostWarning: Boosted words are unknown; names them.
        """
        utterances = self._utterances(logprobs, lengths)
        compiled = self._boosts.compile(boosts, len(utterances))
        results = self._search(utterances, compiled)
        return list(map(self._hypothesis, results, compiled))

    def start(self, n: int, boosts: BoostsLike | Sequence = None) -> Decoding:
        """Begin `n` utterances that come in chunks; boosts and errors as in `decode`.

        Raises:
            ShapeError: `n` is no count.
        """
        if not isinstance(n, numbers.Integral) or n < 0:
            raise ShapeError(f"n={n!r} utterances, expected a count, 0 or more")
        compiled = self._boosts.compile(boosts, int(n))
        self._check_boosts(compiled)
        if isinstance(self._backend, BatchBackend):
            batch = self._backend.start_batch(self.options, compiled)
        else:
            searches = [self._backend.start(self.options, one) for one in compiled]
            batch = _SearchesInThreads(self, searches)
        return Decoding(self, batch, compiled)

    def _search(
        self, utterances: Sequence[Any], boosts: list[CompiledBoosts]
    ) -> list[_Result]:
        """The result for each utterance."""
        self._check_boosts(boosts)
        backend = self._backend
        if isinstance(backend, BatchBackend):
            return backend.decode_batch(utterances, self.options, boosts)

        def decode_one(i: int) -> _Result:
            search = backend.start(self.options, boosts[i])
            search.advance(utterances[i])
            return search.finish()

        longest_first = sorted(
            range(len(utterances)), key=lambda i: -len(utterances[i])
        )
        results = self._map(decode_one, longest_first)
        by_utterance = dict(zip(longest_first, results, strict=True))
        return [by_utterance[i] for i in range(len(utterances))]

    def _utterances(self, logprobs: Any, lengths: Any) -> Sequence[Any]:
        """One checked array per utterance, where the backend wants them."""
        if isinstance(self._backend, BatchBackend):
            return self._backend.as_utterances(logprobs, lengths, self._num_tokens)
        return as_utterances(logprobs, lengths, self._num_tokens)

    def _map(self, function: Callable[[int], _Item], items: list[int]) -> list[_Item]:
        """Call for every item, in threads where that helps; results in order."""
        if self.threads == 1 or len(items) < 2:
            return [function(item) for item in items]
        with ThreadPoolExecutor(min(self.threads, len(items))) as pool:
            return list(pool.map(function, items))


class _SearchesInThreads:
    """Searches of one utterance each as one batch."""

    def __init__(self, decoder: Decoder, searches: list[Search]) -> None:
        self._decoder, self._searches = decoder, searches

    def advance(self, chunks: Sequence[Any]) -> None:
        self._decoder._map(
            lambda i: self._searches[i].advance(chunks[i]), list(range(len(chunks)))
        )

    def finish(self) -> list[Any]:
        return [search.finish() for search in self._searches]


class Decoding:
    """Utterances that come in chunks; made by `Decoder.start`."""

    def __init__(
        self, decoder: Decoder, batch: Batch, boosts: list[CompiledBoosts]
    ) -> None:
        self._decoder = decoder
        self._batch = batch
        self._boosts = boosts
        self._finished = False

    def advance(self, logprobs: Any, lengths: Any = None) -> None:
        """Pass every utterance through its next chunk.

        Args:
            logprobs: [B, T, V] array or a sequence of B arrays [T, V], as in
                `Decoder.decode`; an utterance that has ended gets no frames.
            lengths: [B] frames of each chunk; `None` for all.

        Raises:
            ShapeError, LogprobError: As in `Decoder.decode`; no utterance moved.
            InputError: The utterances were finished.
        """
        self._check_under_way()
        chunks = self._decoder._utterances(logprobs, lengths)
        if len(chunks) != len(self._boosts):
            raise ShapeError(
                f"chunks of {len(chunks)} utterances, expected {len(self._boosts)}"
            )
        self._batch.advance(chunks)

    def finish(self) -> list[Hypothesis]:
        """End all utterances; the object cannot be used afterwards.

        Raises:
            InputError: The utterances were finished before.
        """
        self._check_under_way()
        self._finished = True
        results = self._batch.finish()
        return list(map(self._decoder._hypothesis, results, self._boosts))

    def _check_under_way(self) -> None:
        if self._finished:
            raise InputError(
                "this search was finished, expected one that is under way; start "
                "another"
            )
