"""The WFST search on a device.

backend = DeviceBackend(graph, device)
backend.decode(utterances, options, boosts)       # a BestPath per utterance
"""

from __future__ import annotations

from collections.abc import Sequence

from wfstdec.boost.compiled import CompiledBoosts
from wfstdec.gpu.backend import BatchingBackend
from wfstdec.gpu.device import Device
from wfstdec.graph.packed import PackedGraph
from wfstdec.search.contract import LATTICES, MEMORY_PLANS
from wfstdec.wfst.gpu.batch import DeviceBatch
from wfstdec.wfst.gpu.device_graph import DeviceGraph
from wfstdec.wfst.gpu.memory import utterance_bytes
from wfstdec.wfst.gpu.recording import RecordingBatch
from wfstdec.wfst.gpu.sessions import DeviceSession
from wfstdec.wfst.options import WfstOptions


class DeviceBackend(BatchingBackend):
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
        self.num_tokens = len(graph.tokens)
        self.device_graph = DeviceGraph(graph, device, first_capacity)

    @property
    def model_bytes(self) -> int:
        """Bytes that the graph takes."""
        return self.device_graph.num_bytes

    def prepare(self, options: WfstOptions, boosts: CompiledBoosts) -> None:
        """Nothing ahead: boosts go to the device with the first batch that has them."""

    def start(
        self, options: WfstOptions, boosts: CompiledBoosts, *, record: bool = False
    ) -> DeviceSession:
        """Begin an utterance that comes in chunks."""
        assert not record
        return DeviceSession(self.device_graph, options, boosts)

    def batch(
        self,
        options: WfstOptions,
        boosts: Sequence[CompiledBoosts],
        lengths: Sequence[int],
        record: bool,
    ) -> DeviceBatch:
        """Make a batch of whole utterances."""
        kind = RecordingBatch if record else DeviceBatch
        return kind(self.device_graph, options, boosts, lengths)

    def blocks(self, options: WfstOptions | None) -> DeviceGraph:
        """The device and its scratch: one for all options."""
        return self.device_graph

    def utterance_bytes(
        self,
        num_frames: int | None,
        options: WfstOptions | None,
        record: bool = False,
    ) -> int:
        """Bytes of an utterance; the options change nothing of it."""
        entries = self.device_graph.scratch.entries
        return utterance_bytes(entries, num_frames, record)
