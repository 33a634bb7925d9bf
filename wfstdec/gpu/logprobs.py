"""Log-probs on a GPU as they are: any array with DLPack, no copy, on its own stream.

    if on_gpu(logprobs):
        with stream_of(cupy, logprobs):          # the caller's
            rows = as_rows(cupy, logprobs, lengths, num_tokens, number)

CuPy's module is passed in: only `cuda.py` imports it.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from wfstdec.errors import BackendError
from wfstdec.gpu.device import Rows
from wfstdec.search import logprobs as inputs
from wfstdec.wfst.gpu import layout as d

_ON_CUDA = 2  # DLPack's number for it
_KINDS = {np.dtype(np.float32): d.FLOAT32, np.dtype(np.float16): d.FLOAT16}


@dataclass(frozen=True)
class View:
    """An array on the GPU, or an utterance of it.

    Attributes:
        array: CuPy's, of which this is the whole or a part.
        pointer: The address of the first number.
        dtype: Of the numbers; float16 also for bfloat16.
        kind: Their `UTTERANCE.logprob_type`.
        shape: Axes.
        strides: Bytes.
    """

    array: Any
    pointer: int
    dtype: np.dtype
    kind: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]

    @property
    def ndim(self) -> int:
        """The number of axes."""
        return len(self.shape)

    def __iter__(self) -> Iterator[View]:
        for i in range(self.shape[0]):
            yield replace(
                self,
                pointer=self.pointer + i * self.strides[0],
                shape=self.shape[1:],
                strides=self.strides[1:],
            )


def on_gpu(logprobs: Any) -> bool:
    """Whether a batch, or the first array of a list, is on a CUDA device."""
    first = logprobs
    if isinstance(logprobs, list | tuple) and logprobs:
        first = logprobs[0]
    where = getattr(first, "__dlpack_device__", None)
    return where is not None and where()[0] == _ON_CUDA


def is_torch(array: Any) -> bool:
    """Whether an array is torch's; asked of what it can do, not to import torch."""
    return hasattr(array, "detach") and hasattr(array, "is_cuda")


class CallersStream:
    """A stream of another library, by the CUDA stream protocol."""

    def __init__(self, pointer: int) -> None:
        self._pointer = pointer

    def __cuda_stream__(self) -> tuple[int, int]:
        return 0, self._pointer


def stream_of(cupy: Any, logprobs: Any) -> Any:
    """The stream that the caller works on: torch's current one, else CuPy's."""
    first = logprobs[0] if isinstance(logprobs, list | tuple) else logprobs
    if not is_torch(first):
        return cupy.cuda.get_current_stream()
    torch = importlib.import_module("torch")
    pointer = int(torch.cuda.current_stream(first.device).cuda_stream)
    if pointer == 0:
        return cupy.cuda.Stream.null
    return cupy.cuda.Stream.from_external(CallersStream(pointer))


def as_rows(
    cupy: Any, logprobs: Any, lengths: Any, num_tokens: int, number: int
) -> list[Rows]:
    """`wfstdec.search.logprobs.as_utterances` for arrays on the GPU, numbers unchecked.

    float32, float16 and bfloat16 with the numbers of a row together are taken as they
    are; others are copied to float32.

    Args:
        cupy: The module; its current stream is the caller's.
        logprobs: [B, T, V] or a sequence of [T, V].
        lengths: [B] or None.
        num_tokens: V.
        number: The GPU where the graph is.

    Raises:
        ShapeError: Axes, V, lengths or the type are wrong.
        BackendError: An array is on another GPU.
    """
    views = inputs.split_batch(logprobs, lambda array: view_of(cupy, array))
    counts = inputs.check_lengths(lengths, len(views))
    stream = cupy.cuda.get_current_stream()
    rows = []
    for i, (view, count) in enumerate(zip(views, counts, strict=True)):
        if view.array.device.id != number:
            raise BackendError(
                f"utterance {i}: logprobs is on GPU {view.array.device.id}, expected "
                f"GPU {number}, where the graph is; move one of them"
            )
        inputs.check_axes(view, i, count, num_tokens)
        frames, stride = view.shape[0], view.strides[0] // view.dtype.itemsize
        used = frames if count is None else count
        rows.append(Rows(view.array, view.pointer, view.kind, stride, used, stream))
    return rows


def view_of(cupy: Any, array: Any) -> View:
    """An array as the kernels can read it; copied only where they cannot."""
    brain = False
    if is_torch(array):
        array = array.detach()  # no DLPack while gradients are needed
        brain = "bfloat16" in str(array.dtype)
        if brain:  # CuPy has no such type: the bits, as they are
            array = array.view(importlib.import_module("torch").int16)
    where = getattr(array, "__dlpack_device__", None)
    on_device = where is not None and where()[0] == _ON_CUDA
    array = cupy.from_dlpack(array) if on_device else cupy.asarray(array)
    if array.dtype == np.float64:
        array = array.astype(np.float32)
    if not _readable(array):
        array = cupy.ascontiguousarray(array)
    dtype = np.dtype(np.float16 if brain else array.dtype)
    kind = d.BFLOAT16 if brain else _KINDS.get(dtype, d.FLOAT32)  # others: refused
    return View(array, array.data.ptr, dtype, kind, array.shape, array.strides)


def _readable(array: Any) -> bool:
    """Whether the numbers of a row stand together, and rows one after the other."""
    size = array.dtype.itemsize
    if array.ndim == 0:
        return True
    steps = array.strides[:-1]
    return array.strides[-1] == size and all(s >= 0 and s % size == 0 for s in steps)


def row_of(rows: Rows, i: int, frame: int) -> np.ndarray:
    """A frame of utterance `i` on the host, float32 [V]."""
    array = rows.buffer
    row = (array[i, frame] if array.ndim == 3 else array[frame]).get()
    if rows.kind == d.BFLOAT16:
        return (row.view(np.uint16).astype(np.uint32) << 16).view(np.float32)
    return row.astype(np.float32)
