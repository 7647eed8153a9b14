"""One HTTP connection: reads its requests, and writes the responses.

A client has a limited time for the head of a request and for its body, and is disconnected when it
does not read for a while after its connection's buffer (64 KiB) filled up.

A handler finds the connection in the scope, and may write the pieces of a response that has begun
directly to it: a streamed token is one write, without a message through ASGI.
"""

import asyncio
import select
from collections.abc import Awaitable, Callable
from contextvars import copy_context
from math import inf
from typing import Protocol

from baton.errors import BatonError, Reason
from baton.rpc.timing.stall import Stall
from baton.rpc.transport.client_addresses import ClientAddresses
from baton.rpc.transport.connection_age import draw_age
from baton.rpc.transport.unfinished import Unfinished
from baton.settings import HttpSettings
from services.frontend.http.asgi import Message, Scope, Send
from services.frontend.http.ending import ServerEnding
from services.frontend.http.protocol.refusals import refusal
from services.frontend.http.protocol.request_reader import EXTENSION, Refuse, RequestReader
from services.frontend.metrics import HTTP_CONNECTIONS, HTTP_REFUSED, SLOW_CLIENTS
from services.frontend.requests.request_id import identify

BUFFER_BYTES = 64 * 1024
_TOLD_AT_ONCE = 32
"""Rejected connections that receive an error at the same time."""
CUT_AFTER_SECONDS = 5.0
"""How long a client may continue a body after it received an error for being late."""


class Wire(Protocol):
    """A response's view of its connection."""

    on_lost: Callable[[], None] | None
    """Called when the client has disconnected."""
    on_pause: Callable[[], None] | None
    """Called when the client does not read and 64 KiB wait for it."""
    on_resume: Callable[[], None] | None
    """Called when it reads again."""
    late: bool
    """It was made after the server had stopped accepting requests."""

    @property
    def lost(self) -> bool: ...
    @property
    def refusal(self) -> BatonError | None: ...
    @property
    def body_complete(self) -> bool: ...
    def lost_error(self) -> BatonError: ...
    def stream_body(self, seconds: float) -> None: ...
    def begin(self, send: Send, start: Message, piece: bytes) -> bool: ...
    def write_piece(self, data: bytes) -> None: ...
    def cut(self) -> None: ...


class HttpServerConnection(RequestReader):
    """A client's connection, on the event loop, which owns its timers and ends with it.

    `limited` makes the class that a server uses.
    """

    stall_seconds: float
    max_connections: int
    max_age_seconds: float
    ending: ServerEnding
    addresses: ClientAddresses
    late = False
    idle_since: float | None = None
    """Since when it has no request, by the loop's clock; None while there is one."""
    on_lost: Callable[[], None] | None = None
    on_pause: Callable[[], None] | None = None
    on_resume: Callable[[], None] | None = None
    _cut_slow_client = False
    _stalled: Stall | None = None
    _retire_at = inf

    @classmethod
    def limited(
        cls,
        refuse: Refuse,
        settings: HttpSettings,
        stall_seconds: float,
        max_age_seconds: float = 0.0,
        ending: ServerEnding | None = None,
        addresses: ClientAddresses | None = None,
        unfinished: Unfinished | None = None,
    ) -> type["HttpServerConnection"]:
        """Return a class of a server's connections with these limits and this rejection."""
        limits = {
            "header_seconds": settings.header_timeout_seconds,
            "head_bytes": settings.max_head_bytes,
            "head_fields": settings.max_head_fields,
            # The application answers late bodies itself; this is for those that continue,
            # and so much later that it never comes first.
            "body_seconds": settings.body_timeout_seconds + CUT_AFTER_SECONDS,
            "stall_seconds": stall_seconds,
            "max_connections": settings.max_connections,
            "max_age_seconds": max_age_seconds,
            "ending": ending or ServerEnding(),
            "addresses": addresses or ClientAddresses(0),
            "unfinished": unfinished or Unfinished(0),
            "refuse": staticmethod(refuse),
        }
        return type("LimitedConnection", (cls,), limits)

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        transport.set_write_buffer_limits(high=BUFFER_BYTES)
        # Every token passes here: nothing lies between it and the socket.
        self._write, self._is_closing = transport.write, transport.is_closing
        super().connection_made(transport)
        self.late, self.idle_since = self.ending.refusing, self.loop.time()
        if age := self.max_age_seconds:
            self._retire_at = self.idle_since + draw_age(age)
        HTTP_CONNECTIONS.inc()
        self._address = (transport.get_extra_info("peername") or ("",))[0]
        if excess := self.addresses.enter(self._address, "http"):
            many = f"this address has more than {self.addresses.most} open connections"
            error = BatonError(Reason.RATE_LIMITED, f"{many}: reuse them, or close some")
            self._refuse_crowd(excess, error)
        elif (excess := len(self.connections) - self.max_connections) > 0:
            HTTP_REFUSED.inc()
            many = f"the server has more than {self.max_connections} open connections: retry later"
            self._refuse_crowd(excess, BatonError(Reason.OVERLOADED, many, retry_after=1.0))

    def connection_lost(self, exc: Exception | None) -> None:
        HTTP_CONNECTIONS.dec()
        self.addresses.leave(self._address)
        self._unstall()
        super().connection_lost(exc)
        if self.on_lost is not None:
            self.on_lost()

    def on_message_begin(self) -> None:
        self.idle_since = None
        super().on_message_begin()

    def on_headers_complete(self) -> None:
        super().on_headers_complete()
        if self.ending.retiring or self.loop.time() >= self._retire_at:
            self.retire()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        if not (self._in_head or self._answering):
            self.idle_since = self.loop.time()

    def pause_writing(self) -> None:
        super().pause_writing()
        if self.on_pause is not None:
            self.on_pause()
        if self._stalled is None:
            waiting = self.transport.get_write_buffer_size
            self._stalled = Stall(self.stall_seconds, waiting, self._cut_slow)

    def resume_writing(self) -> None:
        self._unstall()
        super().resume_writing()
        if self.on_resume is not None:
            self.on_resume()

    def lost_error(self) -> BatonError:
        """Return why the client has disconnected."""
        if self._cut_slow_client:
            late = f"the client did not read for {self.stall_seconds:g} s"
            return BatonError(Reason.SLOW_CONSUMER, late)
        return BatonError(Reason.CANCELLED, "the client disconnected")

    def begin(self, send: Send, start: Message, piece: bytes) -> bool:
        """Begin a response of any length with a nonempty piece, in one write. Never waits.

        Args:
            send: takes ASGI messages on this connection.
            start: the message that begins the response.
            piece: the first bytes after its head.

        Returns:
            Whether it has begun: not while the client has unread data, nor before its request is
                complete, and not once it has disconnected.
        """
        if self.flow.write_paused or self._is_closing() or self.answering.more_body:
            return False
        held = self._transport
        held.hold()
        try:
            _run(send(start))
            held.write(self._framed(piece))
        finally:
            held.flush()
        return True

    def write_piece(self, data: bytes) -> None:
        """Send a nonempty piece of the response that has begun. Never waits."""
        if not self._is_closing():
            self._write(self._framed(data))

    def _framed(self, data: bytes) -> bytes:
        if self.answering.chunked_encoding:
            return b"%x\r\n%b\r\n" % (len(data), data)
        return data if self.answering.has_body else b""

    def retire(self) -> None:
        """Make the response that has not begun the last one, and say so (`connection: close`)."""
        cycle = self.cycle
        if cycle is not None and not cycle.response_started:
            cycle.keep_alive = False

    def close_if_idle(self, seconds: float) -> None:
        """Close it if it had no request for this long, and none has arrived just now."""
        since = self.idle_since
        if since is None or self.loop.time() - since < seconds or self.lost:
            return
        arrived = select.poll()
        arrived.register(self.transport.get_extra_info("socket").fileno(), select.POLLIN)
        if not arrived.poll(0):
            self.transport.close()

    def cut(self) -> None:
        """Abort the connection, dropping unsent data."""
        self.transport.abort()

    def _refuse_crowd(self, excess: int, error: BatonError) -> None:
        """Close an excess connection; a few of these receive the error."""
        if excess > _TOLD_AT_ONCE:
            self.transport.abort()
            return
        self.transport.write(refusal(error, copy_context().run(identify)))
        self._end()

    def _unstall(self) -> None:
        if self._stalled is not None:
            self._stalled.cancel()
            self._stalled = None

    def _cut_slow(self) -> None:
        self._cut_slow_client = True
        SLOW_CLIENTS.labels("http").inc()
        self.transport.abort()


def _run(step: Awaitable[None]) -> None:
    """Run a coroutine that does not wait to its end, without a task."""
    for _ in step.__await__():
        raise RuntimeError("an answer waits before it has begun")


def connection_of(scope: Scope) -> Wire:
    """Return the connection of a request."""
    connection: Wire = scope["extensions"][EXTENSION]
    return connection
