"""Base of device backends: batches split to the device's memory."""

import contextlib
from abc import ABC, abstractmethod
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from operator import attrgetter
from typing import Any

import numpy as np

from wfstdec.boost.compiled import CompiledBoosts
from wfstdec.errors import DeviceError, LogprobError
from wfstdec.gpu.batch import advance_together
from wfstdec.gpu.device import Device, DeviceMemoryError, ScratchPool
from wfstdec.gpu.logprobs import Chunk, stream_of
from wfstdec.search.logprobs import as_utterances
from wfstdec.search.threads import ALONE, Read, Workers

_MOST_NAMED = 20  # most utterances named in a message


def _failed(error: Exception, missing: set[int]) -> str:
    named = ", ".join(map(str, sorted(missing)[:_MOST_NAMED]))
    more = ", ..." if len(missing) > _MOST_NAMED else ""
    return (
        f"the device failed ({type(error).__name__}: {error}) before utterances {named}"
        f"{more} were done, {len(missing)} in all; those that were are in `done`: "
        "decode the others by backend='cpu', the device may need a new process"
    )


_LOGPROB_BYTES = 4
PART_BLOCKS = 4  # utterances in a part of a long list, per running block


class BatchingBackend(ABC):
    """A model on a device, searched by batches of utterances."""

    device: Device
    num_tokens: int  # V
    model_bytes: int  # of the model on the device

    def prepare(self, options: Any, boosts: CompiledBoosts) -> None:  # noqa: B027
        """Do nothing: boosts are uploaded with the first batch that has them."""

    @abstractmethod
    def pool(self, options: Any) -> ScratchPool:
        """Return the scratch of the blocks for a search with these options."""

    @abstractmethod
    def utterance_bytes(
        self, num_frames: int | None, options: Any, record: bool = False
    ) -> int:
        """Return bytes of an utterance without log-probs; None: in chunks."""

    @abstractmethod
    def batch(
        self,
        options: Any,
        boosts: Sequence[CompiledBoosts],
        lengths: Sequence[int],
        record: bool,
    ) -> Any:
        """Create a batch of whole utterances: `advance`, then `finish`."""

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
        """Advance sessions of one decoder by a chunk each, in one launch."""
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
        """Decode whole utterances, [T, V]; a long list in parts, two at a time."""
        found: dict[int, Any] = {}
        bad: list[LogprobError] = []
        scratch, lengths = self.pool(options), list(map(len, utterances))
        device, late = scratch.device, []  # parts that did not fit in parallel
        parts, both = self._parts(lengths, options, record)
        left = [sorted(part) for part in parts][::-1]
        if both:
            utterances = self._without_streams(utterances)

        def next_part() -> list[int] | None:
            with contextlib.suppress(IndexError):  # another thread may take the last
                return left.pop()
            return None

        def decode_parts(both: bool) -> None:
            try:
                while (part := next_part()) is not None:
                    decode_one(part, both)
            except BaseException:
                left.clear()
                raise

        def decode_one(part: list[int], both: bool) -> None:
            chunks, given = [utterances[i] for i in part], [boosts[i] for i in part]
            try:
                decoded = self._decode_part(chunks, options, given, record)
                if read is not None:
                    decoded = read(part, decoded)
                found.update(zip(part, decoded, strict=True))
            except LogprobError as error:
                assert isinstance(error.utterance, int)
                error.utterance = part[error.utterance]
                bad.append(error)  # an earlier part may have one too
            except DeviceMemoryError:
                # The plan is an estimate: a part that does not fit is halved.
                if both:
                    late.append(part)
                elif len(part) < 2:
                    raise
                else:
                    half = len(part) // 2
                    left.extend([part[half:], part[:half]])

        def run_parallel() -> None:
            """Upload, and read results, while another part is searched."""
            with device.on_stream(device.second_stream):
                decode_parts(True)

        try:
            with ThreadPoolExecutor(1) as pool:
                other = pool.submit(run_parallel) if both else None
                decode_parts(both)
                if other is not None:
                    other.result()
            if late:
                scratch.clear()
                left += late
                decode_parts(False)
        except device.failures as error:
            missing = set(range(len(utterances))) - set(found)
            raise DeviceError(_failed(error, missing), missing, found) from error
        if bad:
            raise min(bad, key=attrgetter("utterance"))
        return [one for _, one in sorted(found.items())]

    def _without_streams(self, utterances: Sequence[Chunk]) -> list[Chunk]:
        with self.device.on_stream(stream_of(utterances)):
            self.device.wait()
        return [
            one if isinstance(one, np.ndarray) else replace(one, stream=None)
            for one in utterances
        ]

    def _decode_part(
        self,
        chunks: Sequence[Chunk],
        options: Any,
        boosts: Sequence[CompiledBoosts],
        record: bool,
    ) -> Sequence[Any]:
        # Frees a failed batch before the next is created.
        batch = self.batch(options, boosts, list(map(len, chunks)), record)
        batch.advance(chunks)
        return batch.finish()

    def memory_plan(
        self, num_utterances: int, num_frames: int | None = None, options: Any = None
    ) -> dict[str, int]:
        """Plan the memory of a batch, bytes; see `Decoder.memory_plan`."""
        pool = self.pool(options)
        frame = self.num_tokens * _LOGPROB_BYTES
        blocks = min(num_utterances, pool.device.shape.num_blocks)
        plan = {
            "graph": self.model_bytes,
            "scratch": pool.layout.num_bytes(blocks, pool.entries),
            "utterances": num_utterances * self.utterance_bytes(num_frames, options),
            "logprobs": num_utterances * (num_frames or 0) * frame,
        }
        return plan | {"total": sum(plan.values()), "limit": pool.device.budget.limit}

    def _parts(
        self, lengths: Sequence[int], options: Any, record: bool
    ) -> tuple[list[list[int]], bool]:
        """Split a batch, the longest first; return whether two parts fit at once."""
        # By similar length: a launch takes as long as its longest utterance.
        order = sorted(range(len(lengths)), key=lambda i: -lengths[i])
        pool, frame = self.pool(options), self.num_tokens * _LOGPROB_BYTES
        room = pool.device.budget.left + pool.num_bytes
        block_bytes = pool.layout.num_bytes(1, pool.entries)
        num_blocks = pool.device.shape.num_blocks
        most = PART_BLOCKS * num_blocks
        longest = max(lengths, default=0)
        whole = longest * frame + self.utterance_bytes(longest, options, record)
        if len(lengths) * whole + 2 * num_blocks * block_bytes <= room:
            cut = [order[i : i + most] for i in range(0, len(order), most)]
            return cut, len(lengths) > most
        sizes = {
            n: n * frame + self.utterance_bytes(n, options, record)
            for n in set(lengths)
        }
        parts: list[list[int]] = [[]]
        taken = 0
        for i in order:
            scratch = block_bytes * min(len(parts[-1]) + 1, num_blocks)
            if parts[-1] and taken + sizes[lengths[i]] + scratch > room:
                parts.append([])
                taken = 0
            parts[-1].append(i)
            taken += sizes[lengths[i]]
        return [part for part in parts if part], False
