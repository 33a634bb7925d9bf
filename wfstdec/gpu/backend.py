"""Backends on a device, of any search: batches, cut to its memory.

    class DeviceBackend(BatchingBackend): ...         # the part of one search
    backend.decode(utterances, options, boosts)       # what was found, per utterance
    session = backend.start(options, boosts[0])       # or as they come in

`boosts` is one `CompiledBoosts` per utterance.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from operator import attrgetter
from typing import Any, Protocol

from wfstdec.boost.compiled import CompiledBoosts
from wfstdec.errors import DeviceError, LogprobError
from wfstdec.gpu.batch import advance_together
from wfstdec.gpu.device import (
    BlockShape,
    Device,
    DeviceMemoryError,
    ScratchPool,
    shape_for,
)
from wfstdec.gpu.logprobs import Chunk
from wfstdec.search.logprobs import as_utterances
from wfstdec.search.threads import ALONE, Read, Workers

_MOST_NAMED = 20
"""Utterances that a message names."""


def parts_that_fit(
    lengths: Sequence[int],
    room: int,
    bytes_of: Callable[[int], int],
    block_bytes: int,
    num_blocks: int,
) -> Iterator[list[int]]:
    """Utterances that fit side by side by the plan, the longest first."""
    part: list[int] = []
    taken = 0
    # Of like length together: a launch takes as long as its longest utterance.
    for i in sorted(range(len(lengths)), key=lambda i: -lengths[i]):
        one = bytes_of(lengths[i])
        scratch = block_bytes * min(len(part) + 1, num_blocks)
        if part and taken + one + scratch > room:
            yield part
            part, taken = [], 0
        part.append(i)
        taken += one
    if part:
        yield part


def decode_parts(
    device: Device,
    parts: Iterable[Sequence[int]],
    decode: Callable[[Sequence[int]], Sequence[Any]],
    read: Read | None = None,
) -> list[Any]:
    """Decode parts one after the other; what was found, by utterance."""
    found: dict[int, Any] = {}

    def done() -> dict[int, Any]:
        return found if read is None else {i: read(i, one) for i, one in found.items()}

    bad: list[LogprobError] = []
    left = [sorted(part) for part in parts][::-1]
    everyone = {i for part in left for i in part}
    while left:
        part = left.pop()
        try:
            found.update(zip(part, decode(part), strict=True))
        except LogprobError as error:
            assert isinstance(error.utterance, int)
            error.utterance = part[error.utterance]
            bad.append(error)  # another part may have one before it
        except DeviceMemoryError:
            # The plan is an estimate: what does not fit after all is halved.
            if len(part) < 2:
                raise
            half = len(part) // 2
            left += [part[half:], part[:half]]
        except device.failures as error:
            missing = everyone - set(found)
            raise DeviceError(_failed(error, missing), missing, done()) from error
    if bad:
        raise min(bad, key=attrgetter("utterance"))
    return [one for _, one in sorted(done().items())]


def _failed(error: Exception, missing: set[int]) -> str:
    """The message of a device's failure, with the utterances that are missing."""
    named = ", ".join(map(str, sorted(missing)[:_MOST_NAMED]))
    more = ", ..." if len(missing) > _MOST_NAMED else ""
    return (
        f"the device failed ({type(error).__name__}: {error}) before utterances {named}"
        f"{more} were done, {len(missing)} in all; those that were are in `done`: "
        "decode the others by backend='cpu', the device may need a new process"
    )


_LOGPROB_BYTES = 4


class Blocks(Protocol):
    """Blocks that search: the device that runs them, scratch of those not running."""

    device: Device
    scratch: ScratchPool


class BatchingBackend(ABC):
    """A model on a device, searched by batches of utterances."""

    device: Device  # The device
    num_tokens: int  # V

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
        """Bytes of an utterance without log-probs; None where it comes in chunks."""

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
        """Pass sessions of one decoder through a chunk each, in one launch."""
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
        """Decode whole utterances, [T, V], in as many parts as memory asks for."""

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
        """Return the blocks for a number of utterances."""
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
