"""A frontend's HTTP connection on a simulated socket: bytes arrive in given segments, at once."""

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Any

import uvicorn
from uvicorn.server import ServerState

from baton.errors import BatonError
from baton.settings import HttpSettings
from services.frontend.http.asgi import ASGIApp
from services.frontend.http.protocol.connection import HttpServerConnection
from services.frontend.http.responses import encode

_LONG = 60.0
"""Longer than a busy machine stands still within a connection."""
_PATIENT = HttpSettings(header_timeout_seconds=_LONG, body_timeout_seconds=_LONG)


class Socket(asyncio.Transport):
    """Records what is written. Pausing it works as with a real socket: received bytes wait."""

    def __init__(self) -> None:
        super().__init__({"peername": ("127.0.0.1", 1), "sockname": ("127.0.0.1", 2)})
        self.written = bytearray()
        self.closed = False
        """Whether nothing more is written."""
        self.paused = False
        self.on_abort: Callable[[], None] = self.close

    def write(self, data: Any) -> None:
        if self.closed:
            raise RuntimeError("written behind the end")
        self.written += data

    def is_closing(self) -> bool:
        return self.closed

    def close(self) -> None:
        self.closed = True

    def abort(self) -> None:
        self.on_abort()

    def can_write_eof(self) -> bool:
        return True

    def write_eof(self) -> None:
        self.closed = True

    def pause_reading(self) -> None:
        self.paused = True

    def resume_reading(self) -> None:
        self.paused = False

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        """There is no buffer."""


class Wire:
    """The client side of a connection to an application.

    Args:
        application: responds to requests.
        settings: limits of the connection.
    """

    def __init__(self, application: ASGIApp, settings: HttpSettings | None = None) -> None:
        kind = HttpServerConnection.limited(_refuse, settings or _PATIENT, 10.0)
        kind.unread_seconds = _LONG  # segments are one loop turn apart, however long it is
        config = uvicorn.Config(
            application,
            http=kind,
            log_config=None,
            proxy_headers=False,
            timeout_keep_alive=int(_LONG),
        )
        config.load()
        self.socket = Socket()
        self.socket.on_abort = self.lose
        self.connection = kind(config, ServerState(), {})
        self.connection.connection_made(self.socket)
        self._coming: deque[bytes] = deque()
        self._lost = False

    def send(self, segment: bytes) -> None:
        """Deliver a segment, after those that wait."""
        self._coming.append(segment)

    async def turn(self) -> None:
        """Let the server read a segment, if it reads, and run for a turn of the loop."""
        if self._coming and not self.socket.paused:
            self.connection.data_received(self._coming.popleft())
        await asyncio.sleep(0)

    async def until(self, done: Callable[[], bool], turns: int = 2000) -> bool:
        """Run turns until a condition is true; return whether it is, within a number of turns."""
        for _ in range(turns):
            if done():
                return True
            await self.turn()
        return done()

    @property
    def unread(self) -> bool:
        """Whether segments wait for the server to read."""
        return bool(self._coming) and not self.socket.closed

    def lose(self) -> None:
        """Disconnect the client. Idempotent."""
        self.socket.closed = True
        if not self._lost:
            self._lost = True
            self.connection.connection_lost(None)


def _refuse(error: BatonError) -> bytes:
    body = encode(error.to_openai())
    head = b"HTTP/1.1 %d X\r\ncontent-length: %d\r\nconnection: close\r\n\r\n"
    return head % (error.http_status, len(body)) + body
