"""The CUDA backend: `device_search.py` on an NVIDIA GPU, by CuPy.

    backend = CudaBackend(graph)                     # the current CUDA device
    backend.decode_batch(utterances, options, boosts)

Arrays on the GPU (torch, CuPy, anything with DLPack) are taken as they are, float32
rows without a copy; DLPack makes the search wait for the stream that they come from,
and all work is done when a call returns. The kernels are compiled at first use and
cached on disk by CuPy.
"""

from __future__ import annotations

import functools
import importlib
from typing import Any

import numpy as np

from wfstdec import inputs
from wfstdec.errors import BackendError
from wfstdec.graph import PackedGraph
from wfstdec.wfst.device import DeviceMemoryError
from wfstdec.wfst.device_layout import MOST_THREADS, kernel_source
from wfstdec.wfst.device_search import DeviceBackend

COMPILE_OPTIONS = ("--std=c++17", "--fmad=false")
"""No fused multiply-add: sums are those of every other backend."""
MEMORY_SHARE = 0.8
"""The part of the free memory that the search may take."""
_ON_CUDA = 2  # DLPack's number for it


def is_available() -> bool:
    """Whether CuPy is installed and finds a GPU."""
    try:
        _cupy()
    except BackendError:
        return False
    return True


@functools.cache
def _cupy() -> Any:
    """CuPy, with a GPU that it can use.

    Raises:
        BackendError: One of the two is missing.
    """
    try:
        cupy = importlib.import_module("cupy")
    except ImportError:
        raise BackendError(
            "backend 'cuda' needs CuPy: pip install 'wfstdec[cuda12]' (or [cuda13], "
            "the driver's CUDA version); or use backend='cpu'"
        ) from None
    try:
        count = cupy.cuda.runtime.getDeviceCount()
    except cupy.cuda.runtime.CUDARuntimeError as error:
        raise BackendError(
            f"backend 'cuda' finds no usable GPU ({error}); use backend='cpu'"
        ) from None
    if count == 0:
        raise BackendError("backend 'cuda' finds no GPU; use backend='cpu'")
    return cupy


class CupyDevice:
    """The CUDA device that is current; it has to stay so. Buffers are CuPy arrays.

    Args:
        threads: Threads of a block, a multiple of 32.

    Attributes:
        number: The device's, as CUDA counts.
    """

    def __init__(self, threads: int = MOST_THREADS) -> None:
        self._cupy = cupy = _cupy()
        self._threads = threads
        self.number = cupy.cuda.Device().id
        module = cupy.RawModule(code=kernel_source(), options=COMPILE_OPTIONS)
        names = ("search_chunk", "best_paths")
        self._kernels = {name: module.get_function(name) for name in names}
        registers = self._kernels["search_chunk"].num_regs
        attributes = cupy.cuda.Device().attributes
        by_registers = attributes["MaxRegistersPerMultiprocessor"] // (
            registers * threads
        )
        by_threads = attributes["MaxThreadsPerMultiProcessor"] // threads
        side_by_side = max(1, min(by_registers, by_threads))
        self.num_blocks = attributes["MultiProcessorCount"] * side_by_side
        self.memory_limit = int(MEMORY_SHARE * cupy.cuda.runtime.memGetInfo()[0])

    def empty(self, count: int, dtype: np.dtype) -> Any:
        """See `Device`; the buffer is uint8 [bytes]."""
        try:
            return self._cupy.empty(count * dtype.itemsize, np.uint8)
        except self._cupy.cuda.memory.OutOfMemoryError as error:
            raise DeviceMemoryError(
                f"the GPU: {error}, expected more free memory; decode fewer "
                "utterances at a time, or use backend='cpu'"
            ) from None

    def upload(self, array: np.ndarray) -> Any:
        """See `Device`."""
        flat = np.ascontiguousarray(array).reshape(-1)
        return self._cupy.asarray(flat.view(np.uint8))

    def download(self, buffer: Any, dtype: np.dtype) -> np.ndarray:
        """See `Device`."""
        return buffer.get().view(dtype)

    def copy(self, target: Any, source: Any) -> None:
        """See `Device`."""
        target[: len(source)] = source

    def address(self, buffer: Any) -> int:
        """See `Device`."""
        return buffer.data.ptr

    def logprobs(self, chunk: Any) -> Any:
        """See `Device`."""
        return self._cupy.ascontiguousarray(self._cupy.asarray(chunk), np.float32)

    def launch(self, kernel: str, num_blocks: int, task: Any) -> None:
        """See `Device`."""
        self._kernels[kernel]((num_blocks,), (self._threads,), (task,))


class CudaBackend(DeviceBackend):
    """A graph on the current CUDA device.

    Raises:
        BackendError: CuPy or a GPU is missing, or the graph does not fit.
    """

    device: CupyDevice

    def __init__(self, graph: PackedGraph) -> None:
        super().__init__(graph, CupyDevice())

    def as_utterances(self, logprobs: Any, lengths: Any, num_tokens: int) -> list[Any]:
        """As `wfstdec.inputs.as_utterances`; arrays on the GPU stay there."""
        first = logprobs
        if isinstance(logprobs, list | tuple) and logprobs:
            first = logprobs[0]
        if not _on_cuda(first):
            return inputs.as_utterances(logprobs, lengths, num_tokens)
        cupy = _cupy()
        arrays = inputs.split_batch(logprobs, _as_cupy)
        counts = inputs.check_lengths(lengths, len(arrays))
        used = []
        for i, (array, count) in enumerate(zip(arrays, counts, strict=True)):
            if array.device.id != self.device.number:
                raise BackendError(
                    f"utterance {i}: logprobs is on GPU {array.device.id}, expected "
                    f"GPU {self.device.number}, where the graph is; move one of them"
                )
            inputs.check_axes(array, i, count, num_tokens)
            used.append(cupy.ascontiguousarray(array[:count], np.float32))
        tops = [x.max() for x in used if x.size]  # NaN where there is one
        if tops and not (cupy.stack(tops) <= inputs.LARGEST).all():
            on_host = [x.get() for x in used]
            inputs.as_utterances(on_host, None, num_tokens)  # raises: says where
        return used


def _on_cuda(array: Any) -> bool:
    where = getattr(array, "__dlpack_device__", None)
    return where is not None and where()[0] == _ON_CUDA


def _as_cupy(array: Any) -> Any:
    """To CuPy without a copy where the type allows."""
    if hasattr(array, "detach"):  # torch: no DLPack while gradients are needed
        array = array.detach()
        if "bfloat16" in str(array.dtype):
            array = array.float()
    if _on_cuda(array):
        return _cupy().from_dlpack(array)
    return _cupy().asarray(array)
