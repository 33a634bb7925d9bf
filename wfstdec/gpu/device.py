"""What a search asks of a device: memory, copies, launches.

`cupy_device.py` has the one for NVIDIA GPUs; the tests have one that runs the same
kernels on the CPU.
"""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Any, Protocol

import numpy as np

from wfstdec.gpu.budget import Budget


class Device(Protocol):
    """A machine that runs the kernels of one `Program`.

    Buffers are arrays of the device's own kind; streams too.

    Attributes:
        num_blocks: Blocks that run side by side; a launch of more gains nothing.
        budget: The memory that all work on it may take.
        shared_bytes: Shared memory that a block of the search has besides its own
            variables: what `Program.shared_bytes` made of what there is.
    """

    num_blocks: int
    budget: Budget
    shared_bytes: int

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

    def copy(self, target: Any, source: int, num_bytes: int) -> None:
        """Copy from an address on the device to the beginning of a buffer."""

    def address(self, buffer: Any) -> int:
        """Where the kernels find a buffer."""

    def launch(
        self, kernel: str, num_blocks: int, packet: Any, shared_bytes: int
    ) -> None:
        """Run a kernel.

        Args:
            kernel: Its name.
            num_blocks: So many blocks.
            packet: The buffer whose address is the kernel's one argument.
            shared_bytes: Shared memory of each block, besides its own variables.
        """

    def wait(self) -> None:
        """Return when all work in the context is done."""
