"""What a decoder asks of its backends, and backends of their searches: protocols.

    search = backend.start(options, boosts)            # one utterance
    search.advance(logprobs)                           # any number of chunks
    search.look()                                      # what was said so far
    result = search.finish()

A backend may take whole utterances a few at a time (`GroupBackend`); one on a device
takes as many as there are, and sessions together: `BatchBackend`. What an
utterance is made of is the search's own affair: log-probs, float32 [T, V], for those
of CTC models, where a chunk is some of its frames.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol, TypeVar, runtime_checkable

from wfstdec.boost.compile import CompiledBoosts

_Chunk = TypeVar("_Chunk")
_Chunk_contra = TypeVar("_Chunk_contra", contravariant=True)
_Result = TypeVar("_Result")
_Result_co = TypeVar("_Result_co", covariant=True)


class Search(Protocol[_Chunk_contra, _Result_co]):
    """One utterance under way."""

    def advance(self, chunk: _Chunk_contra, /) -> None:
        """Pass the search through a chunk, which is as `Decoder` checked it."""

    def look(self) -> Any:
        """How far it has come, for the decoder's reader; it goes on as if not asked."""

    def finish(self) -> _Result_co:
        """End the utterance."""


class Backend(Protocol[_Chunk_contra, _Result_co]):
    """What is searched, laid out for one kind of machine."""

    def start(
        self, options: Any, boosts: CompiledBoosts
    ) -> Search[_Chunk_contra, _Result_co]:
        """Begin an utterance."""


@runtime_checkable
class GroupBackend(Backend[_Chunk_contra, _Result], Protocol[_Chunk_contra, _Result]):
    """A backend that is quicker with a few whole utterances in one call.

    Attributes:
        group_size: It takes so many at most.
    """

    group_size: int

    def decode_group(
        self, utterances: Sequence[_Chunk_contra], options: Any, boosts: CompiledBoosts
    ) -> list[_Result]:
        """Decode whole utterances, which have the same boosts."""


@runtime_checkable
class BatchBackend(Backend[_Chunk, _Result], Protocol[_Chunk, _Result]):
    """A backend that takes many utterances at a time, arrays on its device."""

    def as_utterances(
        self, logprobs: Any, lengths: Any, num_tokens: int
    ) -> Sequence[_Chunk]:
        """As `wfstdec.search.logprobs.as_utterances`; arrays may stay on the device."""

    def advance(self, searches: Sequence[Any], chunks: Sequence[_Chunk]) -> None:
        """Pass searches of the same options through a chunk each."""

    def decode_batch(
        self,
        utterances: Sequence[_Chunk],
        options: Any,
        boosts: Sequence[CompiledBoosts],
    ) -> list[_Result]:
        """Decode whole utterances."""

    def memory_plan(
        self, num_utterances: int, num_frames: int | None = None
    ) -> dict[str, int]:
        """What a batch takes on the device, in bytes; see `WfstDecoder.memory_plan`."""
