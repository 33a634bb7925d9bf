"""The memory of a device: how much all work on it may take, and who has it.

    share = device.budget.share("a batch of 8 utterances", "decode fewer at a time")
    share.take(num_bytes)                   # DeviceMemoryError, with the numbers
    share.close()                           # or when its owner is collected

All memory that is taken on a device is taken from its budget first, but for the few
bytes of the packets that launches send.
"""

from __future__ import annotations

import threading
import weakref

from wfstdec.errors import BackendError

_MIB = 2**20


class DeviceMemoryError(BackendError):
    """The device has too little memory."""


class Budget:
    """Bytes that all work on a device may take together.

    Args:
        limit: So many.
    """

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self._taken = 0
        self._lock = threading.Lock()

    @property
    def left(self) -> int:
        """Bytes that nobody has taken."""
        return self.limit - self._taken

    def share(self, owner: str, advice: str) -> Share:
        """A new owner's part, which has nothing as yet.

        Args:
            owner: What takes it, for messages.
            advice: What a user can do where it does not suffice.
        """
        return Share(self, owner, advice)

    def _take(self, num_bytes: int) -> bool:
        """Take bytes, or below 0 give them back; whether there were so many."""
        with self._lock:
            if num_bytes > 0 and num_bytes > self.left:
                return False
            self._taken += num_bytes
            return True


class Share:
    """Share of a budget; given back by `close`, or with its owner."""

    def __init__(self, budget: Budget, owner: str, advice: str) -> None:
        self._budget, self._owner, self._advice = budget, owner, advice
        self._taken = [0]
        self.close = weakref.finalize(self, _give_back, budget, self._taken)
        self.close.atexit = False

    @property
    def num_bytes(self) -> int:
        """Bytes that the owner has."""
        return self._taken[0]

    def take(self, num_bytes: int) -> None:
        """Take so many bytes more.

        Raises:
            DeviceMemoryError: There are not so many.
        """
        mine, budget = self.num_bytes + num_bytes, self._budget
        # Taken under the budget's lock: looking first and taking then would let two in.
        if not budget._take(num_bytes):
            others = budget.limit - budget.left - self.num_bytes
            raise DeviceMemoryError(
                f"{self._owner} takes {mine / _MIB:.1f} MiB on the device, beside "
                f"{others / _MIB:.1f} MiB that are in use, expected at most "
                f"{budget.limit / _MIB:.1f} MiB together; {self._advice}, or use "
                "backend='cpu'"
            )
        self._taken[0] = mine


def _give_back(budget: Budget, taken: list[int]) -> None:
    budget._take(-taken[0])
    taken[0] = 0
