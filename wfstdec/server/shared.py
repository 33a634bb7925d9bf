"""Counts of streams and requests of all processes of a server, in shared memory.

    shared = Shared(limits, processes=2)   # before the processes are forked
    shared.process = 1                     # in each of them
    streams = Places(shared, "streams")
    streams.take(one)                      # False where all processes have too many
    streams.discard(one)

Each process writes one row, which its parent clears when it dies.
"""

import contextlib
import fcntl
import hashlib
import mmap
import os
import tempfile
import threading
from collections.abc import Iterator
from typing import Any

import numpy as np

from wfstdec.server.limits import Limits

KINDS = ("streams", "uploads", "requests", "connections", "accepted", "up")
"""Columns of counts: `accepted` are all connections so far, `up` is 1 in a process that
serves.
"""


class Shared:
    """Counts of the processes of a server, and their clients.

    Attributes:
        process: Number of this process, from 0.
        counts: int64 [processes, kinds].
        clients: int64 [processes, connections], a hash for each stream and file.
    """

    def __init__(self, limits: Limits, processes: int = 1) -> None:
        self.limits, self.processes, self.process = limits, processes, 0
        self.counts = _zeros(processes, len(KINDS))
        self.clients = _zeros(processes, limits.connections)
        self._key = os.urandom(16)
        self._file, self._thread = tempfile.TemporaryFile(), threading.Lock()

    @contextlib.contextmanager
    def lock(self) -> Iterator[None]:
        """Lock against other processes, and other threads of this one."""
        # Unlike a semaphore, the kernel releases this lock when its process dies;
        # unlike `flock`, it is not shared with forked processes.
        with self._thread:
            fcntl.lockf(self._file, fcntl.LOCK_EX)
            try:
                yield
            finally:
                fcntl.lockf(self._file, fcntl.LOCK_UN)

    def set(self, kind: str, count: int) -> None:
        """Set a count of this process."""
        self.counts[self.process, KINDS.index(kind)] = count

    def total(self, kind: str) -> int:
        """Return the sum of a count over all processes."""
        return int(self.counts[:, KINDS.index(kind)].sum())

    def clear(self, process: int) -> None:
        """Clear the counts of a dead process."""
        self.counts[process] = self.clients[process] = 0

    def take_client(self, client: str, most: int) -> int | None:
        """Count a stream or file of a client; return its place, None at the limit."""
        text = client.encode("utf-8", "surrogateescape")
        digest = hashlib.blake2b(text, digest_size=8, key=self._key).digest()
        number = int.from_bytes(digest, "little", signed=True) or 1
        own = self.clients[self.process]
        with self.lock():
            free = np.flatnonzero(own == 0)
            if not len(free) or (self.clients == number).sum() >= most:
                return None
            own[free[0]] = number
        return int(free[0])

    def free_client(self, place: int) -> None:
        """Free the place of a client."""
        self.clients[self.process, place] = 0


class Places(set[Any]):
    """Set of things of this process, such as streams; all processes share its limit."""

    def __init__(self, shared: Shared, kind: str) -> None:
        super().__init__()
        self._shared, self._kind = shared, kind

    @property
    def total(self) -> int:
        """Return the number of things in all processes."""
        return self._shared.total(self._kind)

    def take(self, one: Any) -> bool:
        """Add a thing, unless the limit is reached."""
        with self._shared.lock():
            if self.total >= getattr(self._shared.limits, self._kind):
                return False
            self.add(one)
            self._shared.set(self._kind, len(self))
            return True

    def discard(self, one: Any) -> None:
        """Remove a thing, if it is there."""
        with self._shared.lock():
            super().discard(one)
            self._shared.set(self._kind, len(self))


def _zeros(*shape: int) -> np.ndarray:
    size = int(np.prod(shape)) * 8
    return np.frombuffer(mmap.mmap(-1, size), np.int64).reshape(shape)
