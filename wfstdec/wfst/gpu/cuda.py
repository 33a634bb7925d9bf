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
from typing import Any
from weakref import WeakValueDictionary

from wfstdec.gpu.cuda_arrays import TakesGpuArrays
from wfstdec.gpu.cupy_device import CupyDevice, load_cupy
from wfstdec.graph.packed import PackedGraph
from wfstdec.wfst.gpu.backend import DeviceBackend
from wfstdec.wfst.gpu.layout import PLAIN, PROGRAM

_BACKENDS: WeakValueDictionary[tuple[int, int], CudaBackend] = WeakValueDictionary()
_MAKING = threading.Lock()


class CudaBackend(TakesGpuArrays, DeviceBackend):
    """A graph on the current CUDA device.

    Args:
        graph: The graph.
        threads: Threads of a block, a multiple of 32 up to `MAX_THREADS`; None: by the
            size of a batch. The result is the same.

    Raises:
        OptionError: No such number of threads.
        BackendError: CuPy or a GPU is missing, or the graph does not fit.
    """

    def __init__(self, graph: PackedGraph, threads: int | None = None) -> None:
        super().__init__(graph, CupyDevice(PROGRAM, threads, macros=PLAIN.macros))

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle the graph: it goes to the device of whoever loads it."""
        return backend_for, (self.graph,)


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
