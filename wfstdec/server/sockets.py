"""WebSockets under uvicorn: its protocol, which lets go of clients that do not read.

    uvicorn.Config(app, ws=SocketProtocol)

uvicorn closes a connection once its last bytes are sent: with a client that never reads
that is never, and neither does the server stop. A stream's key and words may be in its
address, which uvicorn logs: a handler takes the query out of the scope before it
accepts.
"""

from __future__ import annotations

import asyncio
from typing import Any

from uvicorn.protocols.websockets.websockets_sansio_impl import (
    WebSocketsSansIOProtocol,
)

GIVE_UP = "wfstdec.give_up"
"""Name in a WebSocket's scope of `give_up(code, reason)`."""
_LAST_S = 5.0
"""Seconds that the last bytes have to get out, once nobody waits for them."""


class SocketProtocol(WebSocketsSansIOProtocol):
    """uvicorn's protocol; a connection ends even if its client never reads."""

    close_sent: bool
    read_paused: bool
    close_timer: asyncio.TimerHandle | None
    _cut_timer: asyncio.TimerHandle | None = None
    _is_given_up = False

    def handle_connect(self, event: Any) -> None:
        """Begin the handshake; the handler finds `give_up` in its scope."""
        super().handle_connect(event)
        if getattr(self, "scope", None) is not None:  # the handler begins later
            scope: dict[str, Any] = self.scope
            scope[GIVE_UP] = self.give_up

    def give_up(self, code: int, reason: str) -> None:
        """Close without waiting for the client to read what was sent before.

        For a while it may still read that. What it sends meanwhile is thrown away, and
        not left unread: then the connection would be reset, and the close be lost.
        """
        if not self.close_sent and not self.transport.is_closing():
            self.conn.send_close(code, reason)
            self.transport.write(b"".join(self.conn.data_to_send()))
            self.close_sent = True
        self._is_given_up = True
        self._linger()

    def data_received(self, data: bytes) -> None:
        """Take bytes, unless the client is given up."""
        if not self._is_given_up:
            super().data_received(data)

    async def send(self, message: Any) -> None:
        """Send a message of the handler."""
        await super().send(message)
        # A handshake that is refused is complete too: uvicorn logs an error if not.
        if message["type"] == "websocket.http.response.body" and self.close_sent:
            self.handshake_complete = True

    def handle_parser_exception(self) -> None:
        """Tell what is wrong with a frame, such as its size, and hear the rest.

        A connection that is closed with bytes unread is reset, and then the client
        never sees why.
        """
        if self.close_sent:
            return
        assert self.conn.close_sent is not None
        code, reason = self.conn.close_sent.code, self.conn.close_sent.reason
        told = {"type": "websocket.disconnect", "code": code, "reason": reason}
        self.queue.put_nowait(told)
        self.transport.write(b"".join(self.conn.data_to_send()))
        self.close_sent = True
        self._linger()

    def _linger(self) -> None:
        """Leave some time for what was sent last; hear what comes until then."""
        self.stop_keepalive()
        if self.read_paused:
            self.read_paused = False
            self.transport.resume_reading()
        if self.close_timer is None:
            self.close_timer = self.loop.call_later(_LAST_S, self.transport.close)
        self._cut_later(_LAST_S)

    async def run_asgi(self) -> None:
        """Run the handler; what it leaves behind has a while to get out."""
        try:
            await super().run_asgi()
        finally:
            self._cut_later(self.close_timeout + _LAST_S)

    def connection_lost(self, exc: Exception | None) -> None:
        """Forget the connection."""
        super().connection_lost(exc)
        if self._cut_timer is not None:
            self._cut_timer.cancel()

    def _cut_later(self, seconds: float) -> None:
        if self._cut_timer is None and not self.disconnected:
            self._cut_timer = self.loop.call_later(seconds, self.transport.abort)
