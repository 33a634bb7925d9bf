"""The current NVIDIA GPU as a `Device`, by CuPy: the only module that imports it.

device = CupyDevice()                            # the current CUDA device
device.launch("search_chunk", num_blocks, packet, shared)
"""

from __future__ import annotations

import contextlib
import functools
import importlib
import math
import threading
from collections.abc import Iterator, Mapping, Sequence
from typing import Any
from weakref import WeakValueDictionary

import numpy as np

from wfstdec.errors import BackendError
from wfstdec.gpu.compiling import load_kernels
from wfstdec.gpu.device import Rows
from wfstdec.gpu.memory import Budget, DeviceMemoryError
from wfstdec.wfst.gpu.layout import (
    BLOCKS_AT_HOME,
    MOST_THREADS,
    SLOT_BYTES,
)

MEMORY_SHARE = 0.8
"""The part of the free memory that all decoders together may take."""
KERNELS = ("search_chunk", "best_paths", "check_logprobs")

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
        threads: Threads of a block, a multiple of 32.
        shared_slots: Slots of the table in shared memory; None for as many as leave
            room in a multiprocessor for the blocks that have registers there.

    Attributes:
        number: The device's, as CUDA counts.
    """

    def __init__(
        self, threads: int = MOST_THREADS, shared_slots: int | None = None
    ) -> None:
        self._cupy = cupy = load_cupy()
        self._threads = threads
        self.number = cupy.cuda.Device().id
        self._kernels = load_kernels(cupy, KERNELS)
        search = self._kernels["search_chunk"]
        limits = cupy.cuda.Device().attributes
        taken = search.shared_size_bytes
        if shared_slots is None:
            blocks = BLOCKS_AT_HOME * MOST_THREADS // threads
            shared_slots = slots_in_shared_memory(limits, taken, blocks)
        self.shared_slots = shared_slots
        # The same for all devices that are made: CuPy's kernels are one and the same.
        most = limits["MaxSharedMemoryPerBlockOptin"] - taken
        search.max_dynamic_shared_size_bytes = most
        shared = taken + shared_slots * SLOT_BYTES
        shared += limits["ReservedSharedMemoryPerBlock"]
        side_by_side = min(
            limits["MaxRegistersPerMultiprocessor"] // (search.num_regs * threads),
            limits["MaxThreadsPerMultiProcessor"] // threads,
            limits["MaxSharedMemoryPerMultiprocessor"] // shared,
        )
        self.num_blocks = limits["MultiProcessorCount"] * max(1, side_by_side)
        wanted = side_by_side * shared / limits["MaxSharedMemoryPerMultiprocessor"]
        # Or the driver may give more to the cache, and room for one block alone.
        search.preferred_shared_memory_carveout = math.ceil(100 * wanted)
        with _LOCK:
            self.budget = _BUDGETS.get(self.number) or Budget(
                int(MEMORY_SHARE * self._free_memory())
            )
            _BUDGETS[self.number] = self.budget

    def _free_memory(self) -> int:
        """What CUDA has left and what CuPy's pool keeps, within the pool's limit."""
        cupy = self._cupy
        pool = cupy.get_default_memory_pool()
        free = cupy.cuda.runtime.memGetInfo()[0] + pool.free_bytes()
        limit = pool.get_limit()
        return min(free, limit - pool.used_bytes()) if limit else free

    @contextlib.contextmanager
    def working(self, chunks: Sequence[Any]) -> Iterator[None]:
        """See `Device`."""
        streams = [one.stream for one in chunks if isinstance(one, Rows) and one.stream]
        with self._cupy.cuda.Device(self.number):
            with streams[0] if streams else contextlib.nullcontext():
                yield

    def empty(self, count: int, dtype: np.dtype) -> Any:
        """See `Device`; the buffer is uint8 [bytes]."""
        try:
            return self._cupy.empty(count * dtype.itemsize, np.uint8)
        except self._cupy.cuda.memory.OutOfMemoryError as error:
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
        cuda = self._cupy.cuda
        kind, stream = cuda.runtime.memcpyDeviceToDevice, cuda.get_current_stream()
        to = target.data.ptr
        cuda.runtime.memcpyAsync(to, source, num_bytes, kind, stream.ptr)

    def address(self, buffer: Any) -> int:
        """See `Device`."""
        return buffer.data.ptr

    def launch(self, kernel: str, num_blocks: int, packet: Any, shared: int) -> None:
        """See `Device`."""
        run = self._kernels[kernel]
        run((num_blocks,), (self._threads,), (packet,), shared_mem=shared)

    def wait(self) -> None:
        """See `Device`."""
        self._cupy.cuda.get_current_stream().synchronize()


def slots_in_shared_memory(
    limits: Mapping[str, int], taken: int, blocks: int = BLOCKS_AT_HOME
) -> int:
    """The slots of a hash table that each block has shared memory for.

    Args:
        limits: A device's, as CUDA names them.
        taken: Bytes that a block has of its own.
        blocks: Blocks that shall be in a multiprocessor at a time.
    """
    most = limits["MaxSharedMemoryPerMultiprocessor"] // blocks
    most = min(
        most - limits["ReservedSharedMemoryPerBlock"],
        limits["MaxSharedMemoryPerBlockOptin"],
    )
    slots = (most - taken) // SLOT_BYTES
    return 1 << (slots.bit_length() - 1) if slots > 0 else 0
