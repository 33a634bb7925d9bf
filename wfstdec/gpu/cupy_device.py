"""The current NVIDIA GPU as a `Device`, by CuPy: the only module that imports it.

device = CupyDevice(PROGRAM)                     # the current CUDA device
device.launch("search_chunk", num_blocks, packet, device.shared_bytes)
"""

from __future__ import annotations

import contextlib
import functools
import importlib
import math
import threading
from collections.abc import Iterator, Mapping
from typing import Any
from weakref import WeakValueDictionary

import numpy as np

from wfstdec.errors import BackendError
from wfstdec.gpu.budget import Budget, DeviceMemoryError
from wfstdec.gpu.compiling import load_kernels
from wfstdec.gpu.program import Program
from wfstdec.gpu.records import BLOCKS_PER_SM, MAX_THREADS

MEMORY_SHARE = 0.8
"""The part of the free memory that all decoders together may take."""

_BUDGETS: WeakValueDictionary[int, Budget] = WeakValueDictionary()
_LOCK = threading.Lock()


def is_available() -> bool:
    """Whether CuPy is installed and finds a GPU."""
    try:
        load_cupy()
    except BackendError:
        return False
    return True


@functools.cache
def load_cupy() -> Any:
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
    """The CUDA device that is current when it is made. Buffers are CuPy arrays.

    Args:
        program: The kernels of the search.
        threads: Threads of a block, a multiple of 32.
        shared_bytes: Shared memory of a block besides its own variables; None for as
            much as leaves room for all blocks that have registers.

    Attributes:
        cupy: The module.
        number: The device's, as CUDA counts.
    """

    def __init__(
        self,
        program: Program,
        threads: int = MAX_THREADS,
        shared_bytes: int | None = None,
    ) -> None:
        self.cupy = cupy = load_cupy()
        self._threads = threads
        self.number = cupy.cuda.Device().id
        self._kernels = load_kernels(cupy, program)
        search = self._kernels[program.kernels[0]]
        limits = cupy.cuda.Device().attributes
        own = search.shared_size_bytes
        if shared_bytes is None:
            blocks = BLOCKS_PER_SM * MAX_THREADS // threads
            shared_bytes = program.shared_bytes(free_shared(limits, own, blocks))
        self.shared_bytes = shared_bytes
        # For all devices that are made: CuPy's kernels are the same objects for all.
        most = limits["MaxSharedMemoryPerBlockOptin"] - own
        search.max_dynamic_shared_size_bytes = most
        taken = own + shared_bytes + limits["ReservedSharedMemoryPerBlock"]
        side_by_side = min(
            limits["MaxRegistersPerMultiprocessor"] // (search.num_regs * threads),
            limits["MaxThreadsPerMultiProcessor"] // threads,
            limits["MaxSharedMemoryPerMultiprocessor"] // taken,
        )
        self.num_blocks = limits["MultiProcessorCount"] * max(1, side_by_side)
        wanted = side_by_side * taken / limits["MaxSharedMemoryPerMultiprocessor"]
        # Else the driver may give so much to the cache that only one block fits.
        search.preferred_shared_memory_carveout = math.ceil(100 * wanted)
        with _LOCK:
            self.budget = _BUDGETS.get(self.number) or Budget(
                int(MEMORY_SHARE * self._free_memory())
            )
            _BUDGETS[self.number] = self.budget

    def _free_memory(self) -> int:
        """What CUDA has left and what CuPy's pool keeps, within the pool's limit."""
        cupy = self.cupy
        pool = cupy.get_default_memory_pool()
        free = cupy.cuda.runtime.memGetInfo()[0] + pool.free_bytes()
        limit = pool.get_limit()
        return min(free, limit - pool.used_bytes()) if limit else free

    @contextlib.contextmanager
    def on_stream(self, stream: Any) -> Iterator[None]:
        """See `Device`."""
        with self.cupy.cuda.Device(self.number):
            with contextlib.nullcontext() if stream is None else stream:
                yield

    def empty(self, count: int, dtype: np.dtype) -> Any:
        """See `Device`; the buffer is uint8 [bytes]."""
        try:
            return self.cupy.empty(count * dtype.itemsize, np.uint8)
        except self.cupy.cuda.memory.OutOfMemoryError as error:
            raise DeviceMemoryError(
                f"the GPU: {error}, expected more free memory; decode fewer "
                "utterances at a time, or use backend='cpu'"
            ) from None

    def write(self, target: Any, array: np.ndarray) -> None:
        """See `Device`."""
        flat = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
        if len(flat):
            target[: len(flat)].set(flat)

    def download(self, buffer: Any, dtype: np.dtype) -> np.ndarray:
        """See `Device`."""
        return buffer.get().view(dtype)

    def copy(self, target: Any, source: int, num_bytes: int) -> None:
        """See `Device`."""
        cuda = self.cupy.cuda
        kind, stream = cuda.runtime.memcpyDeviceToDevice, cuda.get_current_stream()
        to = target.data.ptr
        cuda.runtime.memcpyAsync(to, source, num_bytes, kind, stream.ptr)

    def address(self, buffer: Any) -> int:
        """See `Device`."""
        return buffer.data.ptr

    def launch(
        self, kernel: str, num_blocks: int, packet: Any, shared_bytes: int
    ) -> None:
        """See `Device`."""
        run = self._kernels[kernel]
        run((num_blocks,), (self._threads,), (packet,), shared_mem=shared_bytes)

    def wait(self) -> None:
        """See `Device`."""
        self.cupy.cuda.get_current_stream().synchronize()


def free_shared(
    limits: Mapping[str, int], own: int, blocks: int = BLOCKS_PER_SM
) -> int:
    """Bytes of shared memory that each of some blocks has besides its own variables.

    Args:
        limits: A device's, as CUDA names them.
        own: Bytes of a block's variables.
        blocks: Blocks that a multiprocessor is to have at a time.
    """
    most = limits["MaxSharedMemoryPerMultiprocessor"] // blocks
    most = min(
        most - limits["ReservedSharedMemoryPerBlock"],
        limits["MaxSharedMemoryPerBlockOptin"],
    )
    return most - own
