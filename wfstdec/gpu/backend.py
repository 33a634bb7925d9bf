"""Backends on a device, of whatever search: batches, cut to its memory.

    class DeviceBackend(BatchingBackend): ...         # what a search has of its own
    backend.decode(utterances, options, boosts)       # what was found, per utterance
    session = backend.start(options, boosts[0])       # or as they come in

`boosts` is one `CompiledBoosts` per utterance.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from typing import Any, Protocol

from wfstdec.boost.compiled import CompiledBoosts
from wfstdec.gpu.batch import advance_together
from wfstdec.gpu.device import BlockShape, Device, shape_for
from wfstdec.gpu.logprobs import Chunk
from wfstdec.gpu.parts import decode_parts, parts_that_fit
from wfstdec.gpu.scratch import ScratchPool
from wfstdec.search.contract import Read
from wfstdec.search.logprobs import as_utterances
from wfstdec.search.scheduling import ALONE, Workers

_LOGPROB_BYTES = 4


class Blocks(Protocol):
    """Blocks that search: the device that runs them, scratch of those not running."""

    device: Device
    scratch: ScratchPool


class BatchingBackend(ABC):
    """A model on a device, searched by batches of utterances.

    Attributes:
        device: The device.
        num_tokens: V.
    """

    device: Device
    num_tokens: int

    @property
    @abstractmethod
    def model_bytes(self) -> int:
        """Bytes that the model takes on the device."""

    @abstractmethod
    def blocks(self, options: Any) -> Blocks:
        """Blocks for a search with these options."""

    @abstractmethod
    def utterance_bytes(
        self, num_frames: int | None, options: Any, record: bool = False
    ) -> int:
        """Bytes of an utterance beside its log-probs; None where it comes in chunks."""

    @abstractmethod
    def batch(
        self,
        options: Any,
        boosts: Sequence[CompiledBoosts],
        lengths: Sequence[int],
        record: bool,
    ) -> Any:
        """Make a batch of whole utterances: `advance`, then `finish`."""

    def inputs(self, logprobs: Any, lengths: Any) -> Sequence[Chunk]:
        """Check log-probs, as `Backend.inputs`; arrays may stay on the device."""
        return as_utterances(logprobs, lengths, self.num_tokens)

    def advance(
        self,
        searches: Sequence[Any],
        chunks: Sequence[Chunk],
        *,
        names: Sequence[int | str] | None = None,
        workers: Workers = ALONE,
    ) -> None:
        """Pass sessions of one decoder through a chunk each, in one launch.

        Raises:
            DeviceMemoryError: The device's memory does not suffice.
            LogprobError: A number is no log-prob; no session has moved.
        """
        advance_together(searches, chunks, names)

    def decode(
        self,
        utterances: Sequence[Chunk],
        options: Any,
        boosts: Sequence[CompiledBoosts],
        *,
        record: bool = False,
        workers: Workers = ALONE,
        read: Read | None = None,
    ) -> list[Any]:
        """Decode whole utterances, [T, V], in as many parts as memory asks for.

        Raises:
            OptionError: Options or boosts ask for what only the CPU does.
            DeviceMemoryError: Not even one utterance fits.
            LogprobError: A number is no log-prob: the first utterance that has one.
            DeviceError: The device failed; has the paths of the parts that were done.
        """

        def decode(part: Sequence[int]) -> list[Any]:
            chunks, given = [utterances[i] for i in part], [boosts[i] for i in part]
            batch = self.batch(options, given, list(map(len, chunks)), record)
            batch.advance(chunks)
            return batch.finish()

        parts = self._parts(list(map(len, utterances)), options, record)
        return decode_parts(self.device, parts, decode, read)

    def memory_plan(
        self, num_utterances: int, num_frames: int | None = None, options: Any = None
    ) -> dict[str, int]:
        """Plan the memory of a batch, bytes; see `Decoder.memory_plan`."""
        blocks = self.blocks(options)
        pool, shape = blocks.scratch, self.shape(num_utterances, options)
        frame = self.num_tokens * _LOGPROB_BYTES
        plan = {
            "graph": self.model_bytes,
            "scratch": pool.layout.num_bytes(
                min(num_utterances, shape.num_blocks), pool.entries
            ),
            "utterances": num_utterances * self.utterance_bytes(num_frames, options),
            "logprobs": num_utterances * (num_frames or 0) * frame,
        }
        return plan | {"total": sum(plan.values()), "limit": blocks.device.budget.limit}

    def shape(self, num_utterances: int, options: Any = None) -> BlockShape:
        """Blocks that search so many utterances."""
        return shape_for(self.blocks(options).device.shapes, num_utterances)

    def _parts(
        self, lengths: Sequence[int], options: Any, record: bool
    ) -> Iterator[list[int]]:
        """Utterances that fit side by side by the plan, the longest first."""
        blocks, frame = self.blocks(options), self.num_tokens * _LOGPROB_BYTES
        pool = blocks.scratch
        return parts_that_fit(
            lengths,
            blocks.device.budget.left + pool.num_bytes,
            lambda n: self.utterance_bytes(n, options, record) + n * frame,
            pool.layout.num_bytes(1, pool.entries),
            self.shape(len(lengths), options).num_blocks,
        )
