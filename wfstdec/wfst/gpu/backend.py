"""The WFST search on a device, of CUDA by CuPy.

    backend = CudaBackend(graph)                     # the current CUDA device
    backend.decode(utterances, options, boosts)      # a Path per utterance

Arrays on the GPU (torch, CuPy, anything with DLPack) in float32, float16 or bfloat16
are used without a copy. All work is enqueued on the caller's stream (torch's current
one, else CuPy's) and is done when a call returns. Kernels are compiled at first use and
cached on disk (`gpu/compiling.py`).
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Any
from weakref import WeakValueDictionary

from wfstdec.boost.compiled import CompiledBoosts
from wfstdec.gpu.backend import BatchingBackend
from wfstdec.gpu.cuda_arrays import TakesGpuArrays
from wfstdec.gpu.cupy_device import CupyDevice, load_cupy
from wfstdec.gpu.device import Device, ScratchPool
from wfstdec.graph.packed import PackedGraph
from wfstdec.search.threads import LATTICES, MEMORY_PLANS
from wfstdec.wfst.gpu.batch import DeviceBatch, DeviceSession, RecordingBatch
from wfstdec.wfst.gpu.layout import PLAIN, PROGRAM, DeviceGraph, utterance_bytes
from wfstdec.wfst.options import WfstOptions


class DeviceBackend(BatchingBackend):
    """A graph on a device."""

    can = frozenset({LATTICES, MEMORY_PLANS})

    def __init__(
        self, graph: PackedGraph, device: Device, first_capacity: int = 8192
    ) -> None:
        self.graph, self.device = graph, device
        self.num_tokens = len(graph.tokens)
        self.device_graph = DeviceGraph(graph, device, first_capacity)
        self.model_bytes = self.device_graph.num_bytes

    def start(
        self, options: WfstOptions, boosts: CompiledBoosts, *, record: bool = False
    ) -> DeviceSession:
        """Begin an utterance that arrives in chunks."""
        assert not record
        return DeviceSession(self.device_graph, options, boosts)

    def batch(
        self,
        options: WfstOptions,
        boosts: Sequence[CompiledBoosts],
        lengths: Sequence[int],
        record: bool,
    ) -> DeviceBatch:
        """Create a batch of whole utterances."""
        kind = RecordingBatch if record else DeviceBatch
        return kind(self.device_graph, options, boosts, lengths)

    def pool(self, options: WfstOptions | None) -> ScratchPool:
        """Return the scratch, shared by all options."""
        return self.device_graph.scratch

    def utterance_bytes(
        self,
        num_frames: int | None,
        options: WfstOptions | None,
        record: bool = False,
    ) -> int:
        """Return the size of an utterance, bytes; independent of the options."""
        entries = self.device_graph.scratch.entries
        return utterance_bytes(entries, num_frames, record)


_BACKENDS: WeakValueDictionary[tuple[int, int], CudaBackend] = WeakValueDictionary()
_MAKING = threading.Lock()


class CudaBackend(TakesGpuArrays, DeviceBackend):
    """A graph on the current CUDA device."""

    # `threads`: threads of a block, a multiple of 32 up to `MAX_THREADS`; None: as
    # many as the kernels are compiled for. The result is the same.

    def __init__(self, graph: PackedGraph, threads: int | None = None) -> None:
        super().__init__(graph, CupyDevice(PROGRAM, threads, macros=PLAIN.macros))

    def __reduce__(self) -> tuple[Any, ...]:
        return backend_for, (self.graph,)


def backend_for(graph: PackedGraph) -> CudaBackend:
    """Return the graph on the current CUDA device, shared by all its decoders."""
    key = id(graph), load_cupy().cuda.Device().id
    with _MAKING:
        backend = _BACKENDS.get(key)  # it holds the graph, so the id is still valid
        if backend is None:
            backend = _BACKENDS[key] = CudaBackend(graph)
        return backend
