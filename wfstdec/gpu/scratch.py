"""Scratch memory of a search's blocks: kept between launches, as large as was needed.

pool = ScratchPool(device, LAYOUT, first_entries, advice)
scratch = pool.take(num_blocks)         # kept from the last launch, or new
scratch.fill_in(task)
scratch = pool.grow(scratch, num_blocks)  # where a block ran out of it
pool.give(scratch)
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from wfstdec.gpu.budget import DeviceMemoryError
from wfstdec.gpu.device import Device


class ScratchLayout(NamedTuple):
    """Layout of a block's scratch, for frontiers of a number of entries.

    Attributes:
        arrays: Name, length and type of each array of a block; TASK has a pointer of
            that name to those of all blocks.
        counts: Fields of TASK that say how long they are.
    """

    arrays: Callable[[int], list[tuple[str, int, np.dtype]]]
    counts: Callable[[int], dict[str, int]]

    def num_bytes(self, blocks: int, entries: int) -> int:
        """Bytes that so many blocks take, for frontiers of so many entries."""
        each = (length * dtype.itemsize for _, length, dtype in self.arrays(entries))
        return blocks * sum(each)


class Scratch:
    """Scratch memory for the blocks of a launch, undefined between launches.

    Args:
        device: Where it is.
        layout: Arrays of a block.
        blocks: So many.
        entries: What a frontier may have.
        advice: What a user can do where it does not suffice.

    Raises:
        DeviceMemoryError: There is not so much memory.
    """

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
        """Set the fields of a TASK that say where scratch is, and how much."""
        for name, array in self.arrays.items():
            task[name] = self._device.address(array)
        for name, count in self._layout.counts(self.entries).items():
            task[name] = count

    def close(self) -> None:
        """Give the memory back."""
        self.arrays = {}
        self._share.close()


class ScratchPool:
    """Scratch that is not in use, and how large frontiers have become.

    Args:
        device: Where it is.
        layout: Arrays of a block.
        entries: What frontiers hold at first.
        advice: What a user can do where memory does not suffice.

    Attributes:
        layout: The same.
        entries: What new scratch, and new utterances, have room for.
    """

    def __init__(
        self, device: Device, layout: ScratchLayout, entries: int, advice: str
    ) -> None:
        self._device, self.layout = device, layout
        self.entries, self._advice = entries, advice
        self._lock = threading.Lock()
        self._kept: list[Scratch] = []

    @property
    def num_bytes(self) -> int:
        """Bytes that are kept."""
        with self._lock:
            return sum(scratch.num_bytes for scratch in self._kept)

    def take(self, blocks: int) -> Scratch:
        """Scratch for a launch of up to so many blocks, kept from before or new.

        Raises:
            DeviceMemoryError: There is not even enough for one block.
        """
        kept = None
        with self._lock:
            if self._kept:
                kept = self._kept.pop()
        if kept and kept.blocks >= blocks and kept.entries >= self.entries:
            return kept
        if kept:
            kept.close()
        return self._new(blocks, self.entries)

    def give(self, scratch: Scratch) -> None:
        """Put scratch back, unless there is nothing left of it."""
        if scratch.arrays:
            with self._lock:
                self._kept.append(scratch)

    def grow(self, scratch: Scratch, blocks: int) -> Scratch:
        """Twice as much for each of up to so many blocks, in place of what there was.

        Raises:
            DeviceMemoryError: There is not even enough for one block.
        """
        scratch.close()
        self.entries = max(self.entries, 2 * scratch.entries)
        return self._new(min(blocks, scratch.blocks), 2 * scratch.entries)

    def _new(self, blocks: int, entries: int) -> Scratch:
        """For as many of the blocks as there is memory for."""
        while True:
            try:
                return Scratch(self._device, self.layout, blocks, entries, self._advice)
            except DeviceMemoryError:
                if blocks == 1:
                    raise
                blocks = (blocks + 1) // 2
