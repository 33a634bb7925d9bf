"""The CUDA backend: `backend.py` on an NVIDIA GPU, by CuPy.

    backend = CudaBackend(graph)                     # the current CUDA device
    backend.decode_batch(utterances, options, boosts)

Arrays on the GPU (torch, CuPy, anything with DLPack) are taken as they are, float32,
float16 or bfloat16, without a copy; all work goes to the caller's stream (torch's
current one, else CuPy's), and is done when a call returns. The kernels are compiled at
first use and kept on disk (`gpu/compiling.py`).
"""

from __future__ import annotations

import threading
from typing import Any
from weakref import WeakValueDictionary

from wfstdec.gpu.cupy_device import CupyDevice, load_cupy
from wfstdec.gpu.logprobs import as_rows, on_gpu, row_of, stream_of
from wfstdec.graph.packed import PackedGraph
from wfstdec.search import logprobs as inputs
from wfstdec.wfst.gpu.backend import DeviceBackend
from wfstdec.wfst.gpu.layout import MOST_THREADS

_BACKENDS: WeakValueDictionary[tuple[int, int], CudaBackend] = WeakValueDictionary()
_MAKING = threading.Lock()


class CudaBackend(DeviceBackend):
    """A graph on the current CUDA device.

    Args:
        graph: The graph.
        threads: Threads of a block, a multiple of 32; the result is the same.

    Raises:
        BackendError: CuPy or a GPU is missing, or the graph does not fit.
    """

    device: CupyDevice

    def __init__(self, graph: PackedGraph, threads: int = MOST_THREADS) -> None:
        super().__init__(graph, CupyDevice(threads))

    def as_utterances(self, logprobs: Any, lengths: Any, num_tokens: int) -> list[Any]:
        """As `search.logprobs.as_utterances`; arrays on the GPU stay as they are."""
        if not on_gpu(logprobs):
            return inputs.as_utterances(logprobs, lengths, num_tokens)
        cupy, number = load_cupy(), self.device.number
        with cupy.cuda.Device(number), stream_of(cupy, logprobs):
            rows = as_rows(cupy, logprobs, lengths, num_tokens, number)
            bad = self.first_bad(rows)
            if bad is not None:
                i, frame = bad
                raise inputs.bad_logprob(i, frame, row_of(rows[i], i, frame))
        return rows


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
