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

from wfstdec.boost.boosts import CompiledBoosts

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
        """Decode whole utterances."""

    def memory_plan(
        self, num_utterances: int, num_frames: int | None = None
    ) -> dict[str, int]:
        """What a batch takes on the device, in bytes; see `WfstDecoder.memory_plan`."""
