"""What the search asks of a device: memory, copies, launches.

`cuda.py` has the one for NVIDIA GPUs; the tests have one that runs the same kernels on
the CPU.
"""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np

from wfstdec.errors import BackendError


class Device(Protocol):
    """A machine that runs the kernels; buffers are arrays of a kind of its own.

    Attributes:
        num_blocks: Blocks that a launch is worth, at most.
        memory_limit: Bytes that one batch may take.
    """

    num_blocks: int
    memory_limit: int

    def empty(self, count: int, dtype: np.dtype) -> Any:
        """A buffer of `count` records, its content unknown."""

    def upload(self, array: np.ndarray) -> Any:
        """A buffer with a copy of an array."""

    def download(self, buffer: Any, dtype: np.dtype) -> np.ndarray:
        """A copy of a buffer, once all launches before are done."""

    def copy(self, target: Any, source: Any) -> None:
        """Copy a buffer to the beginning of one that is as long or longer."""

    def address(self, buffer: Any) -> int:
        """Where the kernels find a buffer."""

    def logprobs(self, chunk: Any) -> Any:
        """float32 [T, V] from the host or the device as a buffer, rows together."""

    def launch(self, kernel: str, num_blocks: int, task: Any) -> None:
        """Run a kernel on a buffer that holds one TASK."""


class DeviceMemoryError(BackendError):
    """The device has too little memory for a batch."""


def check_memory(device: Device, needed: int, what: str) -> None:
    """Refuse what cannot fit, with the numbers.

    Raises:
        DeviceMemoryError: It takes more than the device has for it.
    """
    if needed > device.memory_limit:
        raise DeviceMemoryError(
            f"{what} takes {needed / 2**20:.1f} MiB on the device, expected at most "
            f"{device.memory_limit / 2**20:.1f} MiB; lower max_active or the beam, "
            "decode fewer utterances at a time, or use backend='cpu'"
        )
