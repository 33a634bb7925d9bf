"""Device of a search: protocol, memory budget, uploads, launches, scratch.

`cupy_device.py` implements `Device` for NVIDIA GPUs; the tests run the same kernels on
the CPU. All device memory is taken from the budget first, except for the few bytes of a
launch's packet.
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any, NamedTuple, Protocol

import numpy as np

from wfstdec.errors import BackendError
from wfstdec.gpu.compiling import Macros

_MIB = 2**20


class DeviceMemoryError(BackendError):
    """The device has too little memory."""


class Budget:
    """Memory budget of all work on a device, in bytes."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self._taken = 0
        self._lock = threading.Lock()

    @property
    def left(self) -> int:
        """Free bytes."""
        return self.limit - self._taken

    def share(self, owner: str, advice: str) -> Share:
        """Return a new, empty share for an owner."""
        return Share(self, owner, advice)

    def _take(self, num_bytes: int) -> bool:
        with self._lock:
            if num_bytes > 0 and num_bytes > self.left:
                return False
            self._taken += num_bytes
            return True


class Share:
    """Share of a budget; returned by `close`, or with its owner."""

    def __init__(self, budget: Budget, owner: str, advice: str) -> None:
        self._budget, self._owner, self._advice = budget, owner, advice
        self._taken = [0]
        self.close = weakref.finalize(self, _give_back, budget, self._taken)
        self.close.atexit = False

    @property
    def num_bytes(self) -> int:
        """Bytes of the share."""
        return self._taken[0]

    def take(self, num_bytes: int) -> None:
        """Add bytes to the share."""
        mine, budget = self.num_bytes + num_bytes, self._budget
        if not budget._take(num_bytes):
            others = budget.limit - budget.left - self.num_bytes
            raise DeviceMemoryError(
                f"{self._owner} takes {mine / _MIB:.1f} MiB on the device, with "
                f"{others / _MIB:.1f} MiB in use, expected at most "
                f"{budget.limit / _MIB:.1f} MiB together; {self._advice}, or use "
                "backend='cpu'"
            )
        self._taken[0] = mine


def _give_back(budget: Budget, taken: list[int]) -> None:
    budget._take(-taken[0])
    taken[0] = 0


class Grid(NamedTuple):
    """Blocks and threads of a launch."""

    kernel: str  # its name
    num_blocks: int
    shared_bytes: int = 0  # dynamic shared memory of each
    macros: Macros = ()  # compile-time features
    threads: int | None = None  # of a block; None for those of the search


class BlockShape(NamedTuple):
    """Shape of blocks of the search on a device."""

    threads: int  # of a block
    num_blocks: int  # blocks that run at once; a launch of more gains nothing
    shared_bytes: int  # dynamic shared memory of a block


class Device(Protocol):
    """A machine that runs the kernels of one `Program`."""

    # Buffers and streams are of the device's own types.

    shape: BlockShape  # of blocks of the search
    budget: Budget  # memory for all work on it
    second_stream: Any  # for work in parallel to a thread's current stream
    # errors of the device itself
    failures: tuple[type[Exception], ...]

    def on_stream(self, stream: Any) -> AbstractContextManager[Any]:
        """Return a context for work on a stream; None: the current one."""

    def empty(self, count: int, dtype: np.dtype) -> Any:
        """Return an uninitialised buffer of `count` records."""

    def write(self, target: Any, array: np.ndarray) -> None:
        """Copy an array, which must live until `wait` or `download`, to a buffer."""

    def download(self, buffer: Any, dtype: np.dtype) -> np.ndarray:
        """Return a copy of a buffer, after all previous work."""

    def downloaded(
        self, buffer: Any, dtype: np.dtype
    ) -> AbstractContextManager[np.ndarray]:
        """Return the content of a large buffer, in staging memory."""

    def staging(self, num_bytes: int) -> AbstractContextManager[np.ndarray]:
        """Return a context with host memory for copies, uint8, at least `num_bytes`."""

    def copy(self, target: int, source: int, num_bytes: int) -> None:
        """Copy from one address on the device to another."""

    def address(self, buffer: Any) -> int:
        """Return the address of a buffer for kernels."""

    def launch(self, grid: Grid, argument: np.ndarray) -> None:
        """Run a kernel."""

    def wait(self) -> None:
        """Wait for all work in the context."""


_ALIGNMENT = 16
_BYTE: np.dtype = np.dtype(np.uint8)


def upload(device: Device, array: np.ndarray) -> Any:
    """Upload an array to a new buffer; it must live until `device.wait`."""
    buffer = device.empty(array.size, array.dtype)
    device.write(buffer, array)
    return buffer


class DeviceArrays:
    """Named arrays on a device, with their share of its budget."""

    def __init__(
        self, device: Device, arrays: Mapping[str, np.ndarray], owner: str, advice: str
    ) -> None:
        self._device = device
        self.num_bytes = sum(array.nbytes for array in arrays.values())
        self._share = device.budget.share(owner, advice)
        # Before the copy, so that the error names the large object.
        self._share.take(self.num_bytes)
        with device.on_stream(None):
            self._buffers = {name: upload(device, x) for name, x in arrays.items()}
            device.wait()  # the next user may be on another stream

    def fill_in(self, record: np.ndarray) -> None:
        """Set the fields of a record that are addresses of these arrays."""
        for name in self._buffers.keys() & set(record.dtype.names or ()):
            record[name] = self._device.address(self._buffers[name])


def upload_joined(device: Device, arrays: Sequence[np.ndarray]) -> Any:
    """Upload arrays of one type to one new buffer, and wait."""
    num_bytes = sum(array.nbytes for array in arrays)
    dtype = arrays[0].dtype
    buffer = device.empty(num_bytes // dtype.itemsize, dtype)
    with device.staging(num_bytes) as memory:
        joined = memory[:num_bytes].view(dtype)
        np.concatenate([array.reshape(-1) for array in arrays], out=joined)
        device.write(buffer, joined)
        device.wait()  # the staging memory is reused
    return buffer


def launch(
    device: Device, grid: Grid, task: np.ndarray, arrays: Mapping[str, np.ndarray]
) -> dict[str, np.ndarray]:
    """Run a kernel over arrays that are copied with its task, and wait."""
    # One copy in each direction, for any number of arrays.
    parts = list(arrays.values())
    # One copy in each direction, for any number of arrays.
    sizes = [-(-part.nbytes // _ALIGNMENT) * _ALIGNMENT for part in parts]
    starts = np.cumsum([0, *sizes]).tolist()
    packet = device.empty(starts[-1], _BYTE)
    first = device.address(packet)
    places = list(zip(arrays, starts, strict=False))
    for name, start in places:
        task[name] = first + start
    content = np.zeros(starts[-1], _BYTE)
    for part, start in zip(parts, starts, strict=False):
        content[start : start + part.nbytes] = part.view(_BYTE)
    device.write(packet, content)
    device.launch(grid, task)
    back = device.download(packet, _BYTE)
    return {
        name: back[start : start + arrays[name].nbytes].view(arrays[name].dtype)
        for name, start in places
    }


class ScratchLayout(NamedTuple):
    """Layout of a block's scratch, for frontiers of a number of entries."""

    # Name, length and type of each array of a block; TASK has a pointer of that name
    # to those of all blocks
    arrays: Callable[[int], list[tuple[str, int, np.dtype]]]
    counts: Callable[[int], dict[str, int]]  # fields of TASK with their lengths

    def num_bytes(self, blocks: int, entries: int) -> int:
        """Return the bytes of `blocks` blocks with `entries` entries each."""
        each = (length * dtype.itemsize for _, length, dtype in self.arrays(entries))
        return blocks * sum(each)


class Scratch:
    """Scratch memory for the blocks of a launch, undefined between launches."""

    def __init__(
        self,
        device: Device,
        layout: ScratchLayout,
        blocks: int,
        entries: int,
        advice: str,
    ) -> None:
        self.blocks, self.entries = blocks, entries
        self.num_bytes = layout.num_bytes(blocks, entries)
        owner = f"a search over {entries} entries at a time"
        self._share = device.budget.share(owner, advice)
        self._share.take(self.num_bytes)
        self._device, self._layout = device, layout
        self.arrays: dict[str, Any] = {
            name: device.empty(blocks * length, dtype)
            for name, length, dtype in layout.arrays(entries)
        }

    def fill_in(self, task: np.ndarray) -> None:
        """Set the fields of a TASK for the address and size of scratch."""
        for name, array in self.arrays.items():
            task[name] = self._device.address(array)
        for name, count in self._layout.counts(self.entries).items():
            task[name] = count

    def close(self) -> None:
        """Release the memory."""
        self.arrays = {}
        self._share.close()


class ScratchPool:
    """Scratch that is not in use, and the largest number of entries so far."""

    def __init__(
        self, device: Device, layout: ScratchLayout, entries: int, advice: str
    ) -> None:
        self.device, self.layout = device, layout
        self.entries, self.advice = entries, advice
        self._lock = threading.Lock()
        self._kept: list[Scratch] = []

    @property
    def num_bytes(self) -> int:
        """Bytes of unused scratch."""
        with self._lock:
            return sum(scratch.num_bytes for scratch in self._kept)

    def take(self, blocks: int) -> Scratch:
        """Return scratch for a launch of at most `blocks` blocks, reused or new."""
        with self._lock:
            kept = self._kept.pop() if self._kept else None
        if kept and kept.blocks >= blocks and kept.entries >= self.entries:
            return kept
        if kept:
            kept.close()
        return self._new(blocks, self.entries)

    def clear(self) -> None:
        """Release unused memory."""
        with self._lock:
            while self._kept:
                self._kept.pop().close()

    def give(self, scratch: Scratch) -> None:
        """Return scratch to the pool, unless it is closed."""
        if scratch.arrays:
            with self._lock:
                self._kept.append(scratch)

    def grow(self, scratch: Scratch, blocks: int) -> Scratch:
        """Double the entries of each block; `scratch` is replaced."""
        scratch.close()
        self.entries = max(self.entries, 2 * scratch.entries)
        return self._new(min(blocks, scratch.blocks), 2 * scratch.entries)

    def _new(self, blocks: int, entries: int) -> Scratch:
        while True:
            try:
                return Scratch(self.device, self.layout, blocks, entries, self.advice)
            except DeviceMemoryError:
                if blocks == 1:
                    raise
                blocks = (blocks + 1) // 2
