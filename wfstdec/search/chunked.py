"""Utterances that come in chunks, a batch of them side by side.

under_way = decoder.start(len(logprobs))
under_way.advance(logprobs)                            # any number of chunks
hyps = under_way.finish()
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Generic, TypeVar

from wfstdec.errors import InputError, ShapeError
from wfstdec.search.contract import Batch, Search
from wfstdec.search.hypothesis import Hypothesis

_Result = TypeVar("_Result")


class SearchBatch(Generic[_Result]):
    """Searches of one utterance each, as a `Batch`.

    Args:
        searches: The utterances.
        map_over: Calls a function for every number of a list: in threads, or not.
    """

    def __init__(
        self,
        searches: Sequence[Search[_Result]],
        map_over: Callable[[Callable[[int], None], list[int]], list[None]],
    ) -> None:
        self._searches, self._map_over = searches, map_over

    def advance(self, chunks: Sequence[Any]) -> None:
        """Pass each utterance through its chunk, float32 [T, V]."""

        def advance_one(i: int) -> None:
            self._searches[i].advance(chunks[i])

        self._map_over(advance_one, list(range(len(chunks))))

    def finish(self) -> list[_Result]:
        """End all utterances."""
        return [search.finish() for search in self._searches]


class ChunkedDecoding(Generic[_Result]):
    """Utterances that come in chunks; made by `Decoder.start`.

    Args:
        batch: The searches under way.
        num_utterances: How many there are, B.
        check: Makes checked arrays of what `advance` is given.
        read: Makes hypotheses of the results.
    """

    def __init__(
        self,
        batch: Batch[_Result],
        num_utterances: int,
        *,
        check: Callable[[Any, Any], Sequence[Any]],
        read: Callable[[list[_Result]], list[Hypothesis]],
    ) -> None:
        self._batch = batch
        self._num_utterances = num_utterances
        self._check, self._read = check, read
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
        chunks = self._check(logprobs, lengths)
        if len(chunks) != self._num_utterances:
            raise ShapeError(
                f"chunks of {len(chunks)} utterances, expected {self._num_utterances}"
            )
        self._batch.advance(chunks)

    def finish(self) -> list[Hypothesis]:
        """End all utterances; the object cannot be used afterwards.

        Raises:
            InputError: The utterances were finished before.
        """
        self._check_under_way()
        self._finished = True
        return self._read(self._batch.finish())

    def _check_under_way(self) -> None:
        if self._finished:
            raise InputError(
                "this search was finished, expected one that is under way; start "
                "another"
            )
