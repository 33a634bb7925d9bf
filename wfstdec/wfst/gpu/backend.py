"""The search on a device: batches, cut to its memory.

    backend = DeviceBackend(graph, device)
    backend.decode_batch(utterances, options, boosts)    # a BestPath per utterance
    session = backend.start(options, boosts)             # or as they come in

`boosts` is one `CompiledBoosts` per utterance.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from operator import attrgetter
from typing import Any

from wfstdec.boost.compile import CompiledBoosts
from wfstdec.errors import DeviceError, LogprobError
from wfstdec.gpu.budget import DeviceMemoryError
from wfstdec.gpu.device import Device
from wfstdec.gpu.logprobs import Chunk
from wfstdec.graph.packed import PackedGraph
from wfstdec.search.logprobs import as_utterances
from wfstdec.search.paths.label_path import BestPath
from wfstdec.wfst.gpu.batch import DeviceBatch
from wfstdec.wfst.gpu.device_graph import DeviceGraph
from wfstdec.wfst.gpu.memory import scratch_bytes, utterance_bytes
from wfstdec.wfst.gpu.recording import RecordingBatch
from wfstdec.wfst.gpu.sessions import DeviceSession, advance
from wfstdec.wfst.lattice_pack import Recorded
from wfstdec.wfst.options import WfstOptions

_LOGPROB_BYTES = 4
_MOST_NAMED = 20
"""Utterances that a message names."""


class DeviceBackend:
    """A graph on a device.

    Args:
        graph: The graph.
        device: Where it goes.
        first_capacity: Entries that frontiers hold at first; they grow.

    Raises:
        DeviceMemoryError: The graph does not fit.
    """

    def __init__(
        self, graph: PackedGraph, device: Device, first_capacity: int = 8192
    ) -> None:
        self.graph, self.device = graph, device
        self.device_graph = DeviceGraph(graph, device, first_capacity)

    def as_utterances(
        self, logprobs: Any, lengths: Any, num_tokens: int
    ) -> Sequence[Chunk]:
        """As `wfstdec.search.logprobs.as_utterances`; arrays may stay on the device."""
        return as_utterances(logprobs, lengths, num_tokens)

    def start(self, options: WfstOptions, boosts: CompiledBoosts) -> DeviceSession:
        """Begin an utterance that comes in chunks."""
        return DeviceSession(self.device_graph, options, boosts)

    def advance(
        self, sessions: Sequence[DeviceSession], chunks: Sequence[Chunk]
    ) -> None:
        """Pass sessions of one decoder through a chunk each, in one launch.

        Raises:
            DeviceMemoryError: The device's memory does not suffice.
            LogprobError: A number is no log-prob; no session has moved.
        """
        advance(sessions, chunks)

    def decode_batch(
        self,
        utterances: Sequence[Chunk],
        options: WfstOptions,
        boosts: Sequence[CompiledBoosts],
    ) -> list[BestPath]:
        """Whole utterances, [T, V], in as many parts as memory asks for.

        Raises:
            DeviceMemoryError: Not even one utterance fits.
            LogprobError: A number is no log-prob: the first utterance that has one.
            DeviceError: The device failed; has the paths of the parts that were done.
        """
        return self._in_parts(DeviceBatch, "finish", utterances, options, boosts)

    def record_batch(
        self,
        utterances: Sequence[Chunk],
        options: WfstOptions,
        boosts: Sequence[CompiledBoosts],
    ) -> list[Recorded]:
        """The same, and what was recorded for lattices; errors as of `decode_batch`."""
        return self._in_parts(RecordingBatch, "record", utterances, options, boosts)

    def _in_parts(
        self,
        kind: type[DeviceBatch],
        end: str,
        utterances: Sequence[Chunk],
        options: WfstOptions,
        boosts: Sequence[CompiledBoosts],
    ) -> list[Any]:
        """What the method `end` of batches of a kind gives, of all utterances."""
        paths: dict[int, Any] = {}
        bad: list[LogprobError] = []
        records = kind is RecordingBatch
        parts = list(self._parts([len(one) for one in utterances], records))[::-1]
        while parts:
            part = sorted(parts.pop())
            chunks, given = [utterances[i] for i in part], [boosts[i] for i in part]
            lengths = [len(chunk) for chunk in chunks]
            try:
                batch = kind(self.device_graph, options, given, lengths)
                batch.advance(chunks)
                paths.update(zip(part, getattr(batch, end)(), strict=True))
            except LogprobError as error:
                assert isinstance(error.utterance, int)
                error.utterance = part[error.utterance]
                bad.append(error)  # another part may have one before it
            except DeviceMemoryError:
                if len(part) < 2:
                    raise
                half = len(part) // 2
                parts += [part[half:], part[:half]]
            except self.device.failures as error:
                missing = set(range(len(utterances))) - set(paths)
                raise DeviceError(_failed(error, missing), missing, paths) from error
        if bad:
            raise min(bad, key=attrgetter("utterance"))
        return [paths[i] for i in range(len(utterances))]

    def memory_plan(
        self, num_utterances: int, num_frames: int | None = None
    ) -> dict[str, int]:
        """What a batch takes on the device, in bytes; see `WfstDecoder.memory_plan`."""
        blocks = min(num_utterances, self.device.num_blocks)
        entries = self.device_graph.scratch.entries
        frame = len(self.graph.tokens) * _LOGPROB_BYTES
        plan = {
            "graph": self.device_graph.num_bytes,
            "scratch": scratch_bytes(blocks, entries),
            "utterances": num_utterances * utterance_bytes(entries, num_frames),
            "logprobs": num_utterances * (num_frames or 0) * frame,
        }
        return plan | {"total": sum(plan.values()), "limit": self.device.budget.limit}

    def _parts(
        self, lengths: Sequence[int], records: bool = False
    ) -> Iterator[list[int]]:
        """Utterances that fit side by side by the plan, the longest first."""
        pool = self.device_graph.scratch
        frame = len(self.graph.tokens) * _LOGPROB_BYTES
        room = self.device.budget.left + pool.num_bytes
        block = scratch_bytes(1, pool.entries)
        part: list[int] = []
        taken = 0
        for i in sorted(range(len(lengths)), key=lambda i: -lengths[i]):
            one = utterance_bytes(pool.entries, lengths[i], records)
            one += lengths[i] * frame
            scratch = block * min(len(part) + 1, self.device.num_blocks)
            if part and taken + one + scratch > room:
                yield part
                part, taken = [], 0
            part.append(i)
            taken += one
        if part:
            yield part


def _failed(error: Exception, missing: set[int]) -> str:
    """What a device's failure left undone."""
    named = ", ".join(map(str, sorted(missing)[:_MOST_NAMED]))
    more = ", ..." if len(missing) > _MOST_NAMED else ""
    return (
        f"the device failed ({type(error).__name__}: {error}) before utterances {named}"
        f"{more} were done, {len(missing)} in all; those that were are in `done`: "
        "decode the others by backend='cpu', the device may need a new process"
    )
