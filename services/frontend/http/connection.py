"""One HTTP connection: uvicorn's protocol with the limits that it lacks.

A client gets a limited time for the head of a request and for its body, and is cut when it does
not read for a while after its connection's buffer (64 KiB) filled up. A head that is too long is
refused.

A handler finds the connection in the scope, and may write the pieces of a response that has begun
straight to it: a streamed token is one write, and no message through ASGI.
"""

import asyncio
from collections.abc import Callable
from contextvars import copy_context
from typing import Protocol

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from baton.errors import BatonError, Reason
from baton.settings import HttpSettings
from services.frontend.http.asgi import Scope
from services.frontend.metrics import SLOW_CLIENTS

BUFFER_BYTES = 64 * 1024
REFUSED_SECONDS = 1.0
"""A client that was refused has this long to close the connection."""
_EXTENSION = "baton.connection"

Refuse = Callable[[BatonError], bytes]
"""Records that a request is refused before any application sees it; returns the whole answer."""


class Wire(Protocol):
    """What an answer sees of its connection."""

    on_lost: Callable[[], None] | None
    """Called when the client is gone."""
    on_pause: Callable[[], None] | None
    """Called when the client does not read and 64 KiB wait for it."""
    on_resume: Callable[[], None] | None
    """Called when it reads again."""

    @property
    def lost(self) -> bool: ...
    def lost_error(self) -> BatonError: ...
    def write_piece(self, data: bytes) -> None: ...
    def cut(self) -> None: ...


class Connection(HttpToolsProtocol):
    """A client's connection, on the event loop, which owns its timers and ends with it.

    `limited` makes the class that a server uses.
    """

    header_seconds: float
    body_seconds: float
    stall_seconds: float
    head_bytes: int
    on_lost: Callable[[], None] | None = None
    on_pause: Callable[[], None] | None = None
    on_resume: Callable[[], None] | None = None
    refuse: Refuse
    _cut_slow_client = False
    _refused = False
    _reading: asyncio.TimerHandle | None = None
    _stalled: asyncio.TimerHandle | None = None
    _in_head = False
    _head_bytes = 0
    """Of the head that is being read, its first read aside."""

    @classmethod
    def limited(
        cls, refuse: Refuse, settings: HttpSettings, stall_seconds: float
    ) -> type["Connection"]:
        """Return a class of connections with these limits, that refuses so."""
        limits = {
            "header_seconds": settings.header_timeout_seconds,
            "head_bytes": settings.max_head_bytes,
            # The application answers late bodies itself; this is for those that go on after that.
            "body_seconds": settings.body_timeout_seconds + 1.0,
            "stall_seconds": stall_seconds,
            "refuse": staticmethod(refuse),
        }
        return type("LimitedConnection", (cls,), limits)

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        transport.set_write_buffer_limits(high=BUFFER_BYTES)
        self._expect(self.header_seconds)

    def connection_lost(self, exc: Exception | None) -> None:
        self._expect(None)
        self._unstall()
        super().connection_lost(exc)
        if self.on_lost is not None:
            self.on_lost()

    def data_received(self, data: bytes) -> None:
        if self._refused:
            return
        begun = self._in_head
        super().data_received(data)
        self._head_bytes = self._head_bytes + len(data) if begun and self._in_head else 0
        if self._head_bytes > self.head_bytes:
            too_long = f"the head of the request is longer than {self.head_bytes} bytes"
            self._refuse(BatonError(Reason.HEAD_TOO_LARGE, too_long))

    def send_400_response(self, msg: str) -> None:
        """Refuse what uvicorn cannot parse."""
        self._refuse(BatonError(Reason.MALFORMED_HEAD, msg))

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self._in_head = True
        self._expect(self.header_seconds)
        self.scope["extensions"] = {_EXTENSION: self}  # type: ignore[dict-item]  # ours, no ASGI

    def on_headers_complete(self) -> None:
        self._in_head = False
        self._expect(self.body_seconds)
        super().on_headers_complete()

    def on_message_complete(self) -> None:
        self._expect(None)
        super().on_message_complete()

    def pause_writing(self) -> None:
        super().pause_writing()
        if self.on_pause is not None:
            self.on_pause()
        if self._stalled is None:
            self._stalled = self.loop.call_later(self.stall_seconds, self._cut_slow)

    def resume_writing(self) -> None:
        self._unstall()
        super().resume_writing()
        if self.on_resume is not None:
            self.on_resume()

    @property
    def lost(self) -> bool:
        """Whether the client is gone."""
        return self.transport.is_closing()

    def lost_error(self) -> BatonError:
        """Return why the client is gone."""
        if self._cut_slow_client:
            late = f"the client did not read for {self.stall_seconds:g} s"
            return BatonError(Reason.SLOW_CONSUMER, late)
        return BatonError(Reason.CANCELLED, "the client is gone")

    def write_piece(self, data: bytes) -> None:
        """Send a piece, not empty, of the chunked answer that has begun. Never waits."""
        if not self.transport.is_closing():
            self.transport.write(b"%x\r\n%b\r\n" % (len(data), data))

    def cut(self) -> None:
        """Break the connection, dropping what was not sent yet."""
        self.transport.abort()

    def _expect(self, seconds: float | None) -> None:
        """Cut the connection if what is awaited does not come in time; None awaits nothing."""
        if self._reading is not None:
            self._reading.cancel()
        self._reading = (
            None if seconds is None else self.loop.call_later(seconds, self.transport.abort)
        )

    def _refuse(self, error: BatonError) -> None:
        self._refused = True
        if self.cycle is not None and not self.cycle.response_complete:
            self.transport.abort()  # an answer to something else is half sent
            return
        self.transport.write(copy_context().run(self.refuse, error))
        # What the client still sends is read and dropped: closing at once would reset the
        # connection, and the answer might be lost with it.
        self.transport.write_eof()
        self._expect(REFUSED_SECONDS)

    def _unstall(self) -> None:
        if self._stalled is not None:
            self._stalled.cancel()
            self._stalled = None

    def _cut_slow(self) -> None:
        self._cut_slow_client = True
        SLOW_CLIENTS.labels("http").inc()
        self.transport.abort()


def connection_of(scope: Scope) -> Wire:
    """Return the connection that a request came on."""
    connection: Wire = scope["extensions"][_EXTENSION]
    return connection
