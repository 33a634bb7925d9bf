"""Protocol of a device as searches use it: memory, copies, launches.

`cupy_device.py` has the one for NVIDIA GPUs; the tests have one that runs the same
kernels on the CPU.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import Any, NamedTuple, Protocol

import numpy as np

from wfstdec.gpu.budget import Budget
from wfstdec.gpu.program import Macros


class Grid(NamedTuple):
    """Blocks and threads of a launch.

    Attributes:
        kernel: The kernel's name.
        num_blocks: Its blocks.
        shared_bytes: Shared memory of each, besides its own variables.
        macros: What it is compiled for.
        threads: Of a block; None for those of the device's first shape.
    """

    kernel: str
    num_blocks: int
    shared_bytes: int = 0
    macros: Macros = ()
    threads: int | None = None


class BlockShape(NamedTuple):
    """Shape of blocks of the search on a device.

    Attributes:
        threads: Of a block.
        num_blocks: Blocks that run side by side; a launch of more gains nothing.
        shared_bytes: Shared memory that a block has besides its own variables: what
            `Program.shared_bytes` made of what there is.
    """

    threads: int
    num_blocks: int
    shared_bytes: int


def shape_for(shapes: Sequence[BlockShape], num_utterances: int) -> BlockShape:
    """Choose the largest blocks of which there is one for every utterance.

    Where no shape has so many, the smallest blocks: one that waits for another to end
    takes as long as both.

    Args:
        shapes: A device's, the largest blocks first.
        num_utterances: A block takes one at a time.
    """
    enough = (one for one in shapes if one.num_blocks >= num_utterances)
    return next(enough, shapes[-1])


class Device(Protocol):
    """A machine that runs the kernels of one `Program`.

    Buffers are arrays of the device's own kind; streams too.

    Attributes:
        shapes: Of blocks, the largest first; `shape_for` chooses.
        budget: The memory that all work on it may take.
        failures: What is raised where the device itself fails.
    """

    shapes: tuple[BlockShape, ...]
    budget: Budget
    failures: tuple[type[Exception], ...]

    def on_stream(self, stream: Any) -> AbstractContextManager[Any]:
        """A context in which all work goes to a stream; None: the current one."""

    def empty(self, count: int, dtype: np.dtype) -> Any:
        """A buffer of `count` records, its content undefined."""

    def write(self, target: Any, array: np.ndarray) -> None:
        """Copy an array to the beginning of a buffer.

        The array must live until `wait` or `download`: the copy may still be going on.
        """

    def download(self, buffer: Any, dtype: np.dtype) -> np.ndarray:
        """A copy of a buffer, once all work before is done."""

    def staging(self, num_bytes: int) -> AbstractContextManager[np.ndarray]:
        """Memory of the host to copy from, uint8, at least so many bytes.

        It is used again after the context: the copy has to be done by then.
        """

    def copy(self, target: int, source: int, num_bytes: int) -> None:
        """Copy from one address on the device to another."""

    def address(self, buffer: Any) -> int:
        """Where the kernels find a buffer."""

    def launch(self, grid: Grid, argument: np.ndarray) -> None:
        """Run a kernel.

        Args:
            grid: Which, and how many blocks.
            argument: One record, the kernel's one argument, by value.
        """

    def wait(self) -> None:
        """Return when all work in the context is done."""
