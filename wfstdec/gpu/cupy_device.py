"""The current NVIDIA GPU as a `Device`, by CuPy: the only module that imports it."""

import contextlib
import functools
import importlib
import math
import threading
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any
from weakref import WeakValueDictionary

import numpy as np

from wfstdec.errors import BackendError, OptionError
from wfstdec.gpu.compiling import Macros, Program, load_kernels
from wfstdec.gpu.device import BlockShape, Budget, DeviceMemoryError, Grid
from wfstdec.gpu.records import BLOCKS_PER_SM, MAX_THREADS, REGISTERS, WARP

MEMORY_SHARE = 0.8  # share of the free memory for all decoders together

_BUDGETS: WeakValueDictionary[int, Budget] = WeakValueDictionary()
_LOCK = threading.Lock()


def is_available() -> bool:
    """Return whether CuPy is installed and finds a GPU."""
    try:
        load_cupy()
    except BackendError:
        return False
    return True


@functools.cache
def load_cupy() -> Any:
    """Return CuPy, with a usable GPU."""
    try:
        # In a thread, which Ctrl-C does not interrupt: half of CuPy would stay loaded.
        cupy = ThreadPoolExecutor(1).submit(importlib.import_module, "cupy").result()
    except ImportError:
        raise BackendError(
            "backend 'cuda' needs CuPy: pip install 'cupy-cuda12x[ctk]' (or "
            "cupy-cuda13x, the driver's CUDA version); or use backend='cpu'"
        ) from None
    try:
        # CuPy can be imported without a GPU or driver.
        count = cupy.cuda.runtime.getDeviceCount()
    except cupy.cuda.runtime.CUDARuntimeError as error:
        raise BackendError(
            f"backend 'cuda' finds no usable GPU ({error}); use backend='cpu'"
        ) from None
    if count == 0:
        raise BackendError("backend 'cuda' finds no GPU; use backend='cpu'")
    return cupy


class CupyDevice:
    """The current CUDA device at construction. Buffers are CuPy arrays."""

    # `threads`: of a block; None for the program's. `shared_bytes`: dynamic shared
    # memory of a block; None for as much as fits with all blocks that have registers.
    # `number`: CUDA's device number. `way`: how its kernels were loaded, one of
    # `compiling.WAYS`.

    def __init__(
        self,
        program: Program,
        threads: int | None = None,
        shared_bytes: int | None = None,
        macros: Macros = (),
    ) -> None:
        threads = program.threads if threads is None else threads
        if threads % WARP or not 0 < threads <= MAX_THREADS:
            raise OptionError(
                f"threads={threads!r} of a block, expected a multiple of {WARP}, at "
                f"most {MAX_THREADS}"
            )
        self.cupy = cupy = load_cupy()
        self._program = program
        self.number = cupy.cuda.Device().id
        # The errors of CUDA's two interfaces.
        self.failures: tuple[type[Exception], ...] = (
            cupy.cuda.runtime.CUDARuntimeError,
            cupy.cuda.driver.CUDADriverError,
        )
        self._limits = limits = dict(cupy.cuda.Device().attributes)
        self.shape = _shape(limits, program, threads, shared_bytes)
        # Otherwise the driver may give the cache so much that only one block fits.
        self._carveout = _carveout(limits, program, self.shape)
        self._kernels: dict[Macros, dict[str, Any]] = {}
        self._loading = threading.Lock()
        self._staging: list[np.ndarray] = []
        self.kernels(macros)
        self.second_stream = cupy.cuda.Stream(non_blocking=True)
        with _LOCK:
            self.budget = _BUDGETS.get(self.number) or Budget(
                int(MEMORY_SHARE * self._free_memory())
            )
            _BUDGETS[self.number] = self.budget

    def kernels(self, macros: Macros = ()) -> dict[str, Any]:
        """Return CuPy's kernels by name, compiled unless they are on disk."""
        with self._loading:
            if macros not in self._kernels:
                kernels, self.way = load_kernels(self.cupy, self._program, macros)
                search, own = kernels[self._program.kernels[0]], self._program.own_bytes
                assert search.shared_size_bytes <= own, search.shared_size_bytes
                # For all instances: CuPy's kernels are shared.
                most = self._limits["MaxSharedMemoryPerBlockOptin"] - own
                search.max_dynamic_shared_size_bytes = most
                search.preferred_shared_memory_carveout = self._carveout
                self._kernels[macros] = kernels
            return self._kernels[macros]

    def _free_memory(self) -> int:
        """Return bytes free in CUDA and in CuPy's pool, within the pool's limit."""
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
        self.wait()  # a copy that waits would block other threads' driver calls
        return buffer.get().view(dtype)

    @contextlib.contextmanager
    def downloaded(self, buffer: Any, dtype: np.dtype) -> Iterator[np.ndarray]:
        """See `Device`; into pinned memory, which is 20 times as fast."""
        with self.staging(buffer.nbytes) as memory:
            taken = memory[: buffer.nbytes]
            if len(taken):
                buffer.get(out=taken)
            yield taken.view(dtype)

    @contextlib.contextmanager
    def staging(self, num_bytes: int) -> Iterator[np.ndarray]:
        """See `Device`; pinned, and reused for copies."""
        with self._loading:  # copies of two threads must not share it
            memory = self._staging.pop() if self._staging else np.zeros(0, np.uint8)
        if len(memory) < num_bytes:
            pinned = self.cupy.cuda.alloc_pinned_memory(num_bytes)
            memory = np.frombuffer(pinned, np.uint8, num_bytes)
        try:
            yield memory
        finally:
            with self._loading:
                self._staging.append(memory)

    def copy(self, target: int, source: int, num_bytes: int) -> None:
        """See `Device`."""
        cuda = self.cupy.cuda
        kind, stream = cuda.runtime.memcpyDeviceToDevice, cuda.get_current_stream()
        cuda.runtime.memcpyAsync(target, source, num_bytes, kind, stream.ptr)

    def address(self, buffer: Any) -> int:
        """See `Device`."""
        return buffer.data.ptr

    def launch(self, grid: Grid, argument: np.ndarray) -> None:
        """See `Device`."""
        run = self.kernels(grid.macros)[grid.kernel]
        blocks, threads = grid.num_blocks, grid.threads or self.shape.threads
        run((blocks,), (threads,), (argument,), shared_mem=grid.shared_bytes)

    def wait(self) -> None:
        """See `Device`."""
        self.cupy.cuda.get_current_stream().synchronize()


def _shape(
    limits: Mapping[str, int], program: Program, threads: int, shared_bytes: int | None
) -> BlockShape:
    """Return the shape of blocks: the number that run at once, and their memory."""
    most = blocks_of_threads(limits, threads)
    if shared_bytes is None:
        shared_bytes = program.shared_bytes(
            free_shared(limits, program.own_bytes, most)
        )
    whole = limits["MaxSharedMemoryPerMultiprocessor"]
    taken = _shared_of(limits, program, shared_bytes)
    side_by_side = max(1, min(most, whole // taken))
    blocks = limits["MultiProcessorCount"] * side_by_side
    return BlockShape(threads, blocks, shared_bytes)


def _shared_of(limits: Mapping[str, int], program: Program, shared_bytes: int) -> int:
    return program.own_bytes + shared_bytes + limits["ReservedSharedMemoryPerBlock"]


def _carveout(limits: Mapping[str, int], program: Program, shape: BlockShape) -> int:
    taken = _shared_of(limits, program, shape.shared_bytes)
    blocks = shape.num_blocks // limits["MultiProcessorCount"]
    whole = limits["MaxSharedMemoryPerMultiprocessor"]
    return min(100, math.ceil(100 * blocks * taken / whole))


def blocks_of_threads(limits: Mapping[str, int], threads: int) -> int:
    """Return how many blocks a multiprocessor's registers and limits allow."""
    return min(
        limits["MaxRegistersPerMultiprocessor"] // (REGISTERS * threads),
        limits["MaxThreadsPerMultiProcessor"] // threads,
        limits["MaxBlocksPerMultiprocessor"],
    )


def free_shared(
    limits: Mapping[str, int], own: int, blocks: int = BLOCKS_PER_SM
) -> int:
    """Return bytes of dynamic shared memory available to each of some blocks."""
    most = limits["MaxSharedMemoryPerMultiprocessor"] // blocks
    most -= limits["ReservedSharedMemoryPerBlock"]
    return min(most, limits["MaxSharedMemoryPerBlockOptin"]) - own
