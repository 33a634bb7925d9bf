"""Memory of the search on a device: scratch of its blocks, traces, frontiers.

    scratch = pool.take(num_blocks)         # kept from the last launch, or new
    pool.give(scratch)

An utterance's trace has `TRACE_BYTES`. Where it is full, the nodes that the frontier
cannot reach are dropped; it grows only where that leaves more than half of it in use.
"""

from __future__ import annotations

import threading
from typing import Any

import numpy as np

from wfstdec.gpu.budget import DeviceMemoryError
from wfstdec.gpu.device import Device
from wfstdec.wfst.gpu import layout as d

CANDIDATES_PER_ENTRY = 4
TRACE_BYTES = 16 << 20
"""What the trace of an utterance may take before it is compacted."""
FRAMES_AHEAD = 64
"""Frames of full frontiers that a trace has room for where their number is unknown."""
LINKS_PER_NODE = 2
_MIN_FRAMES = 4
NARROWER = "lower max_active or the beam"
"""The advice where scratch and traces take too much."""


def trace_nodes(entries: int, num_frames: int | None) -> int:
    """The nodes of a trace, for frontiers of so many entries."""
    frames = FRAMES_AHEAD if num_frames is None else num_frames + 1
    most = TRACE_BYTES // d.NODE.itemsize
    return max(min(frames * entries, most), _MIN_FRAMES * entries)


def link_count(nodes: int) -> int:
    """The arcs that are noted beside a trace of so many nodes, at first."""
    return LINKS_PER_NODE * nodes


def utterance_bytes(
    entries: int, num_frames: int | None, lattices: bool = False
) -> int:
    """Bytes of an utterance, for frontiers of so many entries."""
    nodes = trace_nodes(entries, num_frames)
    links = link_count(nodes) * d.LINK.itemsize if lattices else 0
    trace = nodes * d.NODE.itemsize
    frontiers = 2 if num_frames is None else 1  # in chunks: the one before is kept
    return frontiers * entries * d.ENTRY.itemsize + trace + links


def scratch_bytes(blocks: int, entries: int) -> int:
    """Bytes of scratch of so many blocks, for frontiers of so many entries."""
    per_block = (length * dtype.itemsize for _, length, dtype in _arrays(entries))
    return blocks * sum(per_block)


def table_slots(entries: int) -> int:
    """The slots of a hash table, twice the entries."""
    return 2 * entries


def _arrays(entries: int) -> list[tuple[str, int, np.dtype]]:
    """Name, length and type of the arrays of one block."""
    groups = (
        (d.ENTRY_ARRAYS, entries),
        (d.CANDIDATE_ARRAYS, CANDIDATES_PER_ENTRY * entries),
        (d.TABLE_ARRAYS, table_slots(entries)),
    )
    return [(name, n, dtype) for group, n in groups for name, dtype in group.items()]


class Scratch:
    """Scratch memory for the blocks of a launch, undefined between launches.

    Args:
        device: Where it is.
        blocks: So many.
        entries: What a frontier may have.

    Raises:
        DeviceMemoryError: There is not so much memory.
    """

    def __init__(self, device: Device, blocks: int, entries: int) -> None:
        self.blocks, self.entries = blocks, entries
        self.num_bytes = scratch_bytes(blocks, entries)
        owner = f"a search over {entries} entries at a time"
        self._share = device.budget.share(owner, NARROWER)
        self._share.take(self.num_bytes)
        self._device = device
        self.arrays: dict[str, Any] = {
            name: device.empty(blocks * length, dtype)
            for name, length, dtype in _arrays(entries)
        }

    def fill_in(self, task: np.ndarray) -> None:
        """Set the fields of a TASK that say where scratch is, and how much."""
        for name, array in self.arrays.items():
            task[name] = self._device.address(array)
        task["entry_capacity"] = self.entries
        task["candidate_capacity"] = CANDIDATES_PER_ENTRY * self.entries
        task["table_slots"] = table_slots(self.entries)

    def close(self) -> None:
        """Give the memory back."""
        self.arrays = {}
        self._share.close()


class ScratchPool:
    """Scratch that is not in use, and how large frontiers have become.

    Args:
        device: Where it is.
        entries: What frontiers hold at first.

    Attributes:
        entries: What new scratch, and new utterances, have room for.
    """

    def __init__(self, device: Device, entries: int) -> None:
        self._device, self.entries = device, entries
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
                return Scratch(self._device, blocks, entries)
            except DeviceMemoryError:
                if blocks == 1:
                    raise
                blocks = (blocks + 1) // 2
