"""The memory of a device: how much work takes, who has it, what must wait.

    share = device.budget.share("a batch of 8 utterances")
    share.take(count)                       # DeviceMemoryError, with the numbers
    share.close()                           # or when nobody has it any more

Nothing is taken that the budget does not know, but for the few bytes that say what to
do. An utterance's trace has `TRACE_BYTES`; where it is full, what the frontier cannot
reach is dropped, and it grows only where that leaves more than half.
"""

from __future__ import annotations

import threading
import weakref
from typing import Any, NamedTuple

import numpy as np

from wfstdec.errors import BackendError
from wfstdec.gpu.device import Device
from wfstdec.wfst.gpu import layout as d

CANDIDATES_PER_ENTRY = 4
TRACE_BYTES = 16 << 20
"""What the trace of an utterance may take before it is compacted."""
FRAMES_AHEAD = 64
"""Frames of full frontiers that a trace has room for where their number is unknown."""
_LEAST_FRAMES = 4
_MIB = 2**20


class DeviceMemoryError(BackendError):
    """The device has too little memory."""


class Budget:
    """Bytes that all who work on a device may take together."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self._taken = 0
        self._lock = threading.Lock()

    @property
    def left(self) -> int:
        """Bytes that nobody has."""
        return self.limit - self._taken

    def share(self, what: str) -> Share:
        """An owner's part, nothing as yet; `what` is the owner in messages."""
        return Share(self, what)

    def _change(self, count: int) -> bool:
        """Take, or below 0 give back; whether there was so much."""
        with self._lock:
            if count > 0 and count > self.left:
                return False
            self._taken += count
            return True


class Share:
    """What one owner has of a budget; given back with `close`, or when it goes."""

    def __init__(self, budget: Budget, what: str) -> None:
        self._budget, self._what = budget, what
        self._mine = [0]
        self.close = weakref.finalize(self, _give_back, budget, self._mine)
        self.close.atexit = False

    def take(self, count: int) -> None:
        """Take so many bytes more.

        Raises:
            DeviceMemoryError: There are not so many.
        """
        mine, budget = self._mine[0] + count, self._budget
        if not budget._change(count):
            others = budget.limit - budget.left - self._mine[0]
            raise DeviceMemoryError(
                f"{self._what} takes {mine / _MIB:.1f} MiB on the device, beside "
                f"{others / _MIB:.1f} MiB that are in use, expected at most "
                f"{budget.limit / _MIB:.1f} MiB together; lower max_active or the "
                "beam, decode fewer utterances at a time, or use backend='cpu'"
            )
        self._mine[0] = mine


def _give_back(budget: Budget, mine: list[int]) -> None:
    budget._change(-mine[0])
    mine[0] = 0


class MemoryPlan(NamedTuple):
    """Bytes on the device before anything grows.

    Attributes:
        graph: Of the graph; once, for all decoders that share a backend.
        scratch: Of the blocks that work side by side; kept for the next batch.
        utterances: Of the states and traces of all utterances.
        logprobs: Of log-probs that come from the host.
    """

    graph: int
    scratch: int
    utterances: int
    logprobs: int

    @property
    def total(self) -> int:
        """All of it."""
        return sum(self)


def trace_nodes(entries: int, num_frames: int | None) -> int:
    """The nodes of a trace, for frontiers of so many entries."""
    frames = FRAMES_AHEAD if num_frames is None else num_frames + 1
    most = TRACE_BYTES // d.NODE.itemsize
    return max(min(frames * entries, most), _LEAST_FRAMES * entries)


def utterance_bytes(entries: int, num_frames: int | None) -> int:
    """What an utterance takes, for frontiers of so many entries."""
    trace = trace_nodes(entries, num_frames) * d.NODE.itemsize
    return entries * d.ENTRY.itemsize + trace


def slots_for(entries: int) -> int:
    """The slots of a hash table: a power of two, at least twice the entries."""
    return 1 << (2 * entries - 1).bit_length()


def _scratch(entries: int) -> list[tuple[str, int, np.dtype]]:
    """Name, length and type of the arrays of one block."""
    parts = (
        (d.OF_ENTRIES, entries),
        (d.OF_CANDIDATES, CANDIDATES_PER_ENTRY * entries),
        (d.OF_TABLE, slots_for(entries)),
    )
    return [(name, n, dtype) for part, n in parts for name, dtype in part.items()]


class Work:
    """Scratch for every block of a launch; its content between launches is nothing.

    Args:
        device: Where it is.
        blocks: So many.
        entries: The most that a frontier may have.

    Raises:
        DeviceMemoryError: There is not so much.
    """

    def __init__(self, device: Device, blocks: int, entries: int) -> None:
        self.blocks, self.entries = blocks, entries
        self.candidates = CANDIDATES_PER_ENTRY * entries
        self.slots = slots_for(entries)
        self.num_bytes = self.bytes_of(blocks, entries)
        self._share = device.budget.share(f"a search over {entries} entries at a time")
        self._share.take(self.num_bytes)
        self.arrays: dict[str, Any] = {
            name: device.empty(blocks * length, dtype)
            for name, length, dtype in _scratch(entries)
        }

    @staticmethod
    def bytes_of(blocks: int, entries: int) -> int:
        """What such scratch takes."""
        per_block = (length * dtype.itemsize for _, length, dtype in _scratch(entries))
        return blocks * sum(per_block)

    def close(self) -> None:
        """Give the memory back."""
        self.arrays = {}
        self._share.close()


class WorkPool:
    """Scratch that is not in use, and how large frontiers have become.

    Attributes:
        entries: What new scratch, and new utterances, have room for.
    """

    def __init__(self, device: Device, entries: int) -> None:
        self._device, self.entries = device, entries
        self._lock = threading.Lock()
        self._works: list[Work] = []

    @property
    def num_bytes(self) -> int:
        """What is kept."""
        with self._lock:
            return sum(work.num_bytes for work in self._works)

    def take(self, blocks: int) -> Work:
        """Scratch for a launch of up to so many blocks, as was kept or new.

        Raises:
            DeviceMemoryError: There is not even enough for one block.
        """
        kept = None
        with self._lock:
            if self._works:
                kept = self._works.pop()
        if kept and kept.blocks >= blocks and kept.entries >= self.entries:
            return kept
        if kept:
            kept.close()
        return self._new(blocks, self.entries)

    def give(self, work: Work) -> None:
        """Put scratch back."""
        with self._lock:
            self._works.append(work)

    def grow(self, work: Work, blocks: int) -> Work:
        """Twice as much for each of up to so many blocks, in place of what there was.

        Raises:
            DeviceMemoryError: There is not even enough for one block.
        """
        work.close()
        self.entries = max(self.entries, 2 * work.entries)
        return self._new(min(blocks, work.blocks), 2 * work.entries)

    def _new(self, blocks: int, entries: int) -> Work:
        """As many of the blocks as there is memory for."""
        while True:
            try:
                return Work(self._device, blocks, entries)
            except DeviceMemoryError:
                if blocks == 1:
                    raise
                blocks = (blocks + 1) // 2
