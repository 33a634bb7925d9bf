"""Outbox of a stream: what its client is still to be sent, all but outdated interims.

outbox.put(message)                # sent in any case
outbox.put_interim(message)        # in the place of an interim that still waits
outbox.drop_interim()              # words became final: what waits is outdated
while (message := await outbox.next()) is not None: ...
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import Generic, TypeVar

_Message = TypeVar("_Message")


class Outbox(Generic[_Message]):
    """Messages that wait to be sent, in order; at most one interim, the newest.

    All methods are of the event loop.

    Args:
        most: Messages that may wait; at one more it closes, and has overflowed.

    Attributes:
        overflowed: Whether more waited than may; no more is given out then.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._waiting: deque[_Message] = deque()
        self._interim: _Message | None = None
        self._closed = self.overflowed = False
        self._changed = asyncio.Event()

    def __len__(self) -> int:
        return len(self._waiting)

    def put(self, message: _Message) -> None:
        """Add a message."""
        if self._closed:
            return
        self._waiting.append(message)
        if len(self._waiting) > self._most:
            self.overflowed = True
            self.close()
        self._changed.set()

    def put_interim(self, message: _Message) -> None:
        """Add a message that the next interim, or `drop_interim`, takes out again."""
        self.drop_interim()
        self._interim = message
        self.put(message)

    def drop_interim(self) -> None:
        """Take out the interim, if it is not sent yet."""
        found, self._interim = self._interim, None
        if found is None:
            return
        for place in reversed(range(len(self._waiting))):  # mostly the last
            if self._waiting[place] is found:
                del self._waiting[place]
                return

    def close(self) -> None:
        """Let nothing more in; what waits is still given out."""
        self._closed = True
        self._changed.set()

    async def next(self) -> _Message | None:
        """Take the next message; None once it is closed and empty, or overflowed."""
        while not self._waiting and not self._closed:
            self._changed.clear()
            await self._changed.wait()
        if self.overflowed or not self._waiting:
            return None
        message = self._waiting.popleft()
        if message is self._interim:
            self._interim = None
        return message
