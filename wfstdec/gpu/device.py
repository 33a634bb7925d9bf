"""What the search asks of a device: memory, copies, launches.

`cuda.py` has the one for NVIDIA GPUs; the tests have one that runs the same kernels on
the CPU.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

if TYPE_CHECKING:
    from wfstdec.gpu.memory import Budget


@dataclass(frozen=True)
class Rows:
    """Log-probs of one utterance, [T, V], where the kernels can read them.

    Attributes:
        buffer: What keeps the memory.
        address: Of the first number.
        kind: Of the numbers: `device_layout.FLOAT32`, `FLOAT16` or `BFLOAT16`.
        stride: Numbers from row to row.
        num_frames: T.
        stream: The stream on which they were made; None where that is no matter.
    """

    buffer: Any
    address: int
    kind: int
    stride: int
    num_frames: int
    stream: Any = None

    def __len__(self) -> int:
        return self.num_frames


class Device(Protocol):
    """A machine that runs the kernels; buffers are arrays of a kind of its own.

    Attributes:
        num_blocks: Blocks that a launch is worth, at most.
        budget: Bytes that all work on it may take.
        shared_slots: Slots of a hash table that a block has shared memory for: a power
            of two, or 0.
    """

    num_blocks: int
    budget: Budget
    shared_slots: int

    def working(self, chunks: Sequence[Any]) -> AbstractContextManager[Any]:
        """A context in which all work goes to the stream that these `Rows` are from."""

    def empty(self, count: int, dtype: np.dtype) -> Any:
        """A buffer of `count` records, its content unknown."""

    def write(self, target: Any, array: np.ndarray) -> None:
        """Copy an array to the beginning of a buffer.

        The array must live until `wait` or `download`: the copy may still be going on.
        """

    def download(self, buffer: Any, dtype: np.dtype) -> np.ndarray:
        """A copy of a buffer, once all work before is done."""

    def copy(self, target: Any, source: int, num_bytes: int) -> None:
        """Copy what stands at an address of the device to the beginning of a buffer."""

    def address(self, buffer: Any) -> int:
        """Where the kernels find a buffer."""

    def launch(self, kernel: str, num_blocks: int, packet: Any, shared: int) -> None:
        """Run a kernel on a buffer that begins with one TASK.

        `shared` is the bytes of shared memory that each block has besides its own.
        """

    def wait(self) -> None:
        """Return when all work in the context is done."""
