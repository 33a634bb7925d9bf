"""What a decoder asks of its backends, and backends of their searches: protocols.

search = backend.start(options, boosts)                # one utterance
search.advance(logprobs)                               # any number of chunks
result = search.finish()

A backend on a device takes many utterances at a time instead: `BatchBackend`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol, TypeVar, runtime_checkable

import numpy as np

from wfstdec.boost.boosts import UtteranceBoosts

_Result = TypeVar("_Result")
_Result_co = TypeVar("_Result_co", covariant=True)


class Search(Protocol[_Result_co]):
    """One utterance under way."""

    def advance(self, logprobs: np.ndarray) -> None:
        """Pass the search through a chunk, float32 [T, V], C order."""

    def finish(self) -> _Result_co:
        """End the utterance."""


class Backend(Protocol[_Result_co]):
    """What is searched, laid out for one kind of machine."""

    def start(self, options: Any, boosts: UtteranceBoosts) -> Search[_Result_co]:
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

    def as_utterances(self, logprobs: Any, lengths: Any, num_tokens: int) -> list[Any]:
        """As `wfstdec.search.logprobs.as_utterances`; arrays may stay on the device."""

    def start_batch(
        self, options: Any, boosts: Sequence[UtteranceBoosts]
    ) -> Batch[_Result]:
        """Begin utterances, each with its own boosts."""

    def decode_batch(
        self,
        utterances: Sequence[Any],
        options: Any,
        boosts: Sequence[UtteranceBoosts],
    ) -> list[_Result]:
        """Decode whole utterances."""
