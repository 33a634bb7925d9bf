"""The search on a device: batches, cut to its memory.

    backend = DeviceBackend(graph, device)
    backend.decode(utterances, options, boosts)       # a BestPath per utterance
    session = backend.start(options, boosts[0])       # or as they come in

`boosts` is one `CompiledBoosts` per utterance.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from wfstdec.boost.compiled import CompiledBoosts
from wfstdec.gpu.batch import advance_together
from wfstdec.gpu.device import BlockShape, Device, shape_for
from wfstdec.gpu.logprobs import Chunk
from wfstdec.gpu.parts import decode_parts, parts_that_fit
from wfstdec.graph.packed import PackedGraph
from wfstdec.search.contract import LATTICES, MEMORY_PLANS, Read
from wfstdec.search.logprobs import as_utterances
from wfstdec.search.scheduling import ALONE, Workers
from wfstdec.wfst.gpu.batch import DeviceBatch
from wfstdec.wfst.gpu.device_graph import DeviceGraph
from wfstdec.wfst.gpu.memory import utterance_bytes
from wfstdec.wfst.gpu.recording import RecordingBatch
from wfstdec.wfst.gpu.sessions import DeviceSession
from wfstdec.wfst.options import WfstOptions

_LOGPROB_BYTES = 4


class DeviceBackend:
    """A graph on a device.

    Args:
        graph: The graph.
        device: Where it goes.
        first_capacity: Entries that frontiers hold at first; they grow.

    Raises:
        DeviceMemoryError: The graph does not fit.
    """

    can = frozenset({LATTICES, MEMORY_PLANS})

    def __init__(
        self, graph: PackedGraph, device: Device, first_capacity: int = 8192
    ) -> None:
        self.graph, self.device = graph, device
        self.device_graph = DeviceGraph(graph, device, first_capacity)

    def inputs(self, logprobs: Any, lengths: Any) -> Sequence[Chunk]:
        """Check log-probs, as `Backend.inputs`; arrays may stay on the device."""
        return as_utterances(logprobs, lengths, len(self.graph.tokens))

    def prepare(self, options: WfstOptions, boosts: CompiledBoosts) -> None:
        """Nothing ahead: boosts go to the device with the first batch that has them."""

    def start(
        self, options: WfstOptions, boosts: CompiledBoosts, *, record: bool = False
    ) -> DeviceSession:
        """Begin an utterance that comes in chunks."""
        assert not record
        return DeviceSession(self.device_graph, options, boosts)

    def advance(
        self,
        searches: Sequence[DeviceSession],
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
        options: WfstOptions,
        boosts: Sequence[CompiledBoosts],
        *,
        record: bool = False,
        workers: Workers = ALONE,
        read: Read | None = None,
    ) -> list[Any]:
        """Decode whole utterances, [T, V], in as many parts as memory asks for.

        Raises:
            DeviceMemoryError: Not even one utterance fits.
            LogprobError: A number is no log-prob: the first utterance that has one.
            DeviceError: The device failed; has the paths of the parts that were done.
        """
        kind = RecordingBatch if record else DeviceBatch

        def decode(part: Sequence[int]) -> list[Any]:
            chunks, given = [utterances[i] for i in part], [boosts[i] for i in part]
            lengths = [len(chunk) for chunk in chunks]
            batch = kind(self.device_graph, options, given, lengths)
            batch.advance(chunks)
            return batch.finish()

        parts = self._parts([len(one) for one in utterances], record)
        return decode_parts(self.device, parts, decode, read)

    def memory_plan(
        self,
        num_utterances: int,
        num_frames: int | None = None,
        options: WfstOptions | None = None,
    ) -> dict[str, int]:
        """Plan the memory of a batch, bytes; see `Decoder.memory_plan`.

        The options change nothing of it.
        """
        blocks = min(num_utterances, self.shape(num_utterances).num_blocks)
        pool = self.device_graph.scratch
        entries = pool.entries
        frame = len(self.graph.tokens) * _LOGPROB_BYTES
        plan = {
            "graph": self.device_graph.num_bytes,
            "scratch": pool.layout.num_bytes(blocks, entries),
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
        return parts_that_fit(
            lengths,
            self.device.budget.left + pool.num_bytes,
            lambda n: utterance_bytes(pool.entries, n, records) + n * frame,
            pool.layout.num_bytes(1, pool.entries),
            self.shape(len(lengths)).num_blocks,
        )

    def shape(
        self, num_utterances: int, options: WfstOptions | None = None
    ) -> BlockShape:
        """Blocks that search so many utterances; the options change nothing of it."""
        return shape_for(self.device.shapes, num_utterances)
