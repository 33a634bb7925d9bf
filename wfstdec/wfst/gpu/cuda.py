"""The CUDA backend: `backend.py` on an NVIDIA GPU, by CuPy.

    backend = CudaBackend(graph)                     # the current CUDA device
    backend.decode(utterances, options, boosts)

Arrays on the GPU (torch, CuPy, anything with DLPack) are taken as they are, float32,
float16 or bfloat16, without a copy; all work goes to the caller's stream (torch's
current one, else CuPy's), and is done when a call returns. The kernels are compiled at
first use and kept on disk (`gpu/compiling.py`).
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Any
from weakref import WeakValueDictionary

from wfstdec.gpu.cuda_arrays import on_gpu, take_logprobs
from wfstdec.gpu.cupy_device import CupyDevice, load_cupy
from wfstdec.gpu.logprobs import Chunk
from wfstdec.graph.packed import PackedGraph
from wfstdec.wfst.gpu.backend import DeviceBackend
from wfstdec.wfst.gpu.layout import PLAIN, PROGRAM

_BACKENDS: WeakValueDictionary[tuple[int, int], CudaBackend] = WeakValueDictionary()
_MAKING = threading.Lock()


class CudaBackend(DeviceBackend):
    """A graph on the current CUDA device.

    Args:
        graph: The graph.
        threads: Threads of a block, a multiple of 32 up to `MAX_THREADS`; None: by the
            size of a batch. The result is the same.

    Raises:
        OptionError: No such number of threads.
        BackendError: CuPy or a GPU is missing, or the graph does not fit.
    """

    device: CupyDevice

    def __init__(self, graph: PackedGraph, threads: int | None = None) -> None:
        super().__init__(graph, CupyDevice(PROGRAM, threads, macros=PLAIN.macros))

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle the graph: it goes to the device of whoever loads it."""
        return backend_for, (self.graph,)

    def inputs(self, logprobs: Any, lengths: Any) -> Sequence[Chunk]:
        """Check log-probs, as `Backend.inputs`; arrays on the GPU stay as they are."""
        if on_gpu(logprobs):
            num_tokens = len(self.graph.tokens)
            return take_logprobs(self.device, logprobs, lengths, num_tokens)
        return super().inputs(logprobs, lengths)


def backend_for(graph: PackedGraph) -> CudaBackend:
    """The graph on the current CUDA device: once for all decoders that search it.

    Raises:
        BackendError: See `CudaBackend`.
    """
    key = id(graph), load_cupy().cuda.Device().id
    with _MAKING:
        backend = _BACKENDS.get(key)  # has the graph: the id is still its own
        if backend is None:
            backend = _BACKENDS[key] = CudaBackend(graph)
        return backend
