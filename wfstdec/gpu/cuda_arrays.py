"""Log-probs on a GPU: any array with DLPack, no copy, on its own stream.

CuPy is an argument or comes from the device: only `cupy_device.py` imports it.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from wfstdec.errors import BackendError
from wfstdec.gpu.backend import BatchingBackend
from wfstdec.gpu.cupy_device import CupyDevice
from wfstdec.gpu.logprobs import BFLOAT16, FLOAT16, FLOAT32, Chunk, DeviceLogprobs
from wfstdec.search.logprobs import check_axes, check_lengths, split_batch

_CUDA = 2  # DLPack's number of the device type
_TYPES = {np.dtype(np.float32): FLOAT32, np.dtype(np.float16): FLOAT16}


class TakesGpuArrays(BatchingBackend):
    """Backend on a CUDA device that accepts inputs on it."""

    device: CupyDevice

    def inputs(self, logprobs: Any, lengths: Any) -> Sequence[Chunk]:
        """Check log-probs, as `Backend.inputs`; arrays on the GPU are not copied."""
        # For a list, the first array decides.
        if _is_on_cuda(_first(logprobs)):
            return take_logprobs(self.device, logprobs, lengths, self.num_tokens)
        return super().inputs(logprobs, lengths)


def take_logprobs(
    device: CupyDevice, logprobs: Any, lengths: Any, num_tokens: int
) -> list[DeviceLogprobs]:
    """Do as `wfstdec.search.logprobs.as_utterances` for arrays on the GPU."""
    # float32, float16 and bfloat16 with contiguous frames are used without a copy;
    # others are copied to float32, on the caller's stream.
    cupy = device.cupy
    with cupy.cuda.Device(device.number), callers_stream(cupy, _first(logprobs)):
        arrays = split_batch(logprobs, lambda array: _as_gpu_array(cupy, array))
        stream = cupy.cuda.get_current_stream()
    counts = check_lengths(lengths, len(arrays))
    chunks = []
    for i, (array, count) in enumerate(zip(arrays, counts, strict=True)):
        number = array.owner.device.id
        if number != device.number:
            raise BackendError(
                f"utterance {i}: logprobs is on GPU {number}, expected GPU "
                f"{device.number}, where the graph is; move one of them"
            )
        check_axes(array, i, count, num_tokens)
        frames = array.shape[0] if count is None else count
        stride = array.strides[0] // array.dtype.itemsize
        memory = array.owner, array.address, array.type
        chunks.append(DeviceLogprobs(*memory, stride, frames, stream))
    return chunks


class _Stream:
    def __init__(self, pointer: int) -> None:
        self._pointer = pointer

    def __cuda_stream__(self) -> tuple[int, int]:
        return 0, self._pointer


def _first(logprobs: Any) -> Any:
    is_list = isinstance(logprobs, list | tuple) and len(logprobs) > 0
    return logprobs[0] if is_list else logprobs


def _is_on_cuda(array: Any) -> bool:
    device = getattr(array, "__dlpack_device__", None)
    return device is not None and device()[0] == _CUDA


def _is_torch(array: Any) -> bool:
    return hasattr(array, "detach") and hasattr(array, "is_cuda")


def callers_stream(cupy: Any, array: Any) -> Any:
    """Return the caller's stream: torch's current one, else CuPy's."""
    if not _is_torch(array):
        return cupy.cuda.get_current_stream()
    torch = importlib.import_module("torch")
    pointer = int(torch.cuda.current_stream(array.device).cuda_stream)
    if pointer == 0:
        return cupy.cuda.Stream.null
    return cupy.cuda.Stream.from_external(_Stream(pointer))


@dataclass(slots=True)
class _GpuArray:
    owner: Any  # CuPy's array that includes this one
    address: int  # of the first number
    dtype: np.dtype  # of the numbers; float16 also for bfloat16
    type: int  # as in `DeviceLogprobs`
    shape: tuple[int, ...]  # axes
    strides: tuple[int, ...]  # bytes

    @property
    def ndim(self) -> int:
        return len(self.shape)

    def __iter__(self) -> Iterator[_GpuArray]:
        shape, strides = self.shape[1:], self.strides[1:]
        of_numbers = self.dtype, self.type, shape, strides
        for i in range(self.shape[0]):
            yield _GpuArray(self.owner, self.address + i * self.strides[0], *of_numbers)


def _as_gpu_array(cupy: Any, array: Any) -> _GpuArray:
    is_bfloat16 = False
    if _is_torch(array):
        array = array.detach()  # no DLPack while gradients are needed
        is_bfloat16 = "bfloat16" in str(array.dtype)
        if is_bfloat16:  # CuPy has no such type: keep the bits
            array = array.view(importlib.import_module("torch").int16)
    array = cupy.from_dlpack(array) if _is_on_cuda(array) else cupy.asarray(array)
    if array.dtype == np.float64:
        array = array.astype(np.float32)
    if not _is_readable(array):
        array = cupy.ascontiguousarray(array)
    dtype = np.dtype(np.float16 if is_bfloat16 else array.dtype)
    kind = BFLOAT16 if is_bfloat16 else _TYPES.get(dtype, FLOAT32)  # others: rejected
    address = array.data.ptr
    return _GpuArray(array, address, dtype, kind, array.shape, array.strides)


def _is_readable(array: Any) -> bool:
    size = array.dtype.itemsize
    if array.ndim == 0:
        return True
    steps = array.strides[:-1]
    return array.strides[-1] == size and all(s >= 0 and s % size == 0 for s in steps)
