"""The connection of one client: HTTP/2 on a socket, and the calls on it."""

import asyncio
import ssl
from collections.abc import Callable
from contextvars import Context
from dataclasses import dataclass

from baton.errors import BatonError, Reason
from baton.rpc.http2.framing.codes import ErrorCode
from baton.rpc.http2.framing.headers import Headers, encode
from baton.rpc.http2.limits import ConnectionLimits
from baton.rpc.http2.stream import NOBODY, Http2Stream, StreamOwner
from baton.rpc.server.call_stream import CallStream
from baton.rpc.server.guard import CallGuard
from baton.rpc.server.head import read_head
from baton.rpc.server.methods import MethodTable, unknown_method
from baton.rpc.tls.access import denial, may_call
from baton.rpc.tls.contexts import HTTP2, ServerTls
from baton.rpc.tls.identity import Peer
from baton.rpc.transport.client_addresses import ClientAddresses
from baton.rpc.transport.connection_age import draw_age
from baton.rpc.transport.handshake import FAILED
from baton.rpc.transport.socket_protocol import SocketProtocol
from baton.rpc.transport.unfinished import Unfinished
from baton.telemetry.logs import get_logger
from baton.telemetry.metrics import Counter

log = get_logger(__name__)

CONNECTION_ERRORS = Counter(
    "baton_rpc_connection_errors_total",
    "Connections closed because the client violated HTTP/2 or its limits, by HTTP/2 error code.",
    ["code"],
)
_MAX_PARTIAL_BYTES = 64 * 1024 * 1024
"""Bytes of all incomplete messages of a client; or four times the longest message."""
_REQUEST_SECONDS = 30.0
"""Time for the single message of a unary call, after its head."""
_FAILED_SECONDS = 1.0
"""Time for a client that violated the protocol to close the connection."""
_RETIRED = b"retired?"
"""Payload of the PING that follows the first GOAWAY."""
_RETIRE_SECONDS = 5.0
"""Time for the client to reply to it."""


@dataclass(frozen=True, slots=True)
class ConnectionSettings:
    """Settings that all connections of a server share."""

    methods: MethodTable
    guard: CallGuard
    context: Context
    """Copied for each call: the server's context, without anything of a request."""
    limits: ConnectionLimits
    max_message_bytes: int
    stall_seconds: float
    keepalive_seconds: float
    keepalive_timeout_seconds: float
    max_age_seconds: float
    """After this, clients are asked to use another connection; 0: never."""
    max_age_grace_seconds: float
    """Time for the calls on it to end after that."""
    addresses: ClientAddresses | None
    """Limits the connections of each client address; None: no limit."""
    unfinished: Unfinished
    """Limits the memory for incomplete messages of all clients."""


class ServerConnection(SocketProtocol):
    """One client's connection: turns its bytes into calls.

    Args:
        settings: settings of the server.
        on_lost: called when the socket is closed.
        tls: the TLS layer below, once established; None: plain text.
    """

    def __init__(
        self,
        settings: ConnectionSettings,
        on_lost: Callable[["ServerConnection"], None],
        tls: ServerTls | None,
    ) -> None:
        super().__init__(
            client=False,
            limits=settings.limits,
            keepalive_seconds=settings.keepalive_seconds,
            keepalive_timeout_seconds=settings.keepalive_timeout_seconds,
        )
        self.stall_seconds = settings.stall_seconds
        self.caller: Peer | None = None
        """Identity of the client; None: clients are not identified and may make every call."""
        self._tls = tls
        self._settings = settings
        self._on_lost = on_lost
        self._calls: dict[CallStream, float] = {}
        """Loop time at which each call arrived, until its client has received the status."""
        self._partial_bytes = 0
        self._address: str | None = None
        """Address under which the connection is counted; None: it is not counted."""
        self.retired = False
        """Whether its client was asked to open new calls on another connection."""
        self._aged = False
        self._closing = False
        self._end_timer: asyncio.TimerHandle | None = None
        """Timer for the next step: maximum age, the client's reply, or the end of the grace
        period."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        if self._tls is not None:
            shown: ssl.SSLObject = transport.get_extra_info("ssl_object")
            self.caller = self._tls.caller(shown)
            if shown.selected_alpn_protocol() != HTTP2:
                FAILED.labels("protocol").inc()
                log.debug("rpc.tls.failed", peer=self.peer, error="no HTTP/2 by ALPN")
                self._unwanted = True
        super().connection_made(transport)
        age = self._settings.max_age_seconds
        if age:
            self._end_within(draw_age(age), self._too_old)

    def connection_lost(self, exc: Exception | None) -> None:
        if self._end_timer is not None:
            self._end_timer.cancel()
        if self._address is not None and self._settings.addresses is not None:
            self._settings.addresses.leave(self._address)
            self._address = None  # TLS may report it twice
        super().connection_lost(exc)
        self._on_lost(self)

    def _take(self, transport: asyncio.Transport) -> None:
        super()._take(transport)
        addresses = self._settings.addresses
        if addresses is None or self._address is not None:
            return
        self._address = (transport.get_extra_info("peername") or ("",))[0]
        if addresses.enter(self._address, "grpc"):
            # As for a full server: before any byte is sent (Connections).
            self.abort()

    # Called by the server.

    def retire(self) -> None:
        """Ask the client to open new calls on another connection; close after the last one here.

        Calls that it opened before it received the GOAWAY are served: they arrive before its reply
        to the PING that follows (RFC 9113, section 6.8).
        """
        if self.retired or self._closing:
            return
        self.retired = True
        self.http2.refuse_new(last=False)
        self.http2.ping(_RETIRED)
        self._end_within(_RETIRE_SECONDS, self.drain)
        for call in list(self._calls):
            if call.call.on_retire is not None:
                call.call.on_retire()

    def drain(self) -> None:
        """Accept no more calls; close once the existing ones have ended."""
        if not self._closing:
            self._closing = self.retired = True
            if self._aged:
                self._end_within(self._settings.max_age_grace_seconds, self._cut)
            elif self._end_timer is not None:
                self._end_timer.cancel()
            self.http2.refuse_new(last=True)
            self._close_if_done()

    def cancel_calls(self, error: BatonError) -> None:
        """End every call with an error."""
        for call in list(self._calls):
            call.cancel(error)

    # Called by calls.

    def begin(self, call: CallStream) -> "asyncio.Task[None]":
        """Run a call's handler in a task."""
        self._settings.guard.wait_no_more(call)
        context = self._settings.context.copy()
        return self.loop.create_task(self._settings.guard.run(call), context=context)

    def keep_partial(self, call: CallStream, size: int, change: int) -> bool:
        """Count the bytes buffered for incomplete messages; return whether they are within the
        limit.

        Args:
            call: call of the message; it may be cancelled within this.
            size: bytes that it buffers.
            change: difference from before.
        """
        self._partial_bytes += change
        self._settings.unfinished.note(call, size)
        return self._partial_bytes <= max(_MAX_PARTIAL_BYTES, 4 * self._settings.max_message_bytes)

    def forget(self, call: CallStream) -> None:
        """Remove a call whose client has received everything, or has disconnected."""
        self._calls.pop(call, None)
        self._settings.guard.wait_no_more(call)
        if self._closing:
            self._close_if_done()

    # Called by HTTP/2.

    def on_request(self, stream: Http2Stream, headers: Headers, end: bool) -> StreamOwner:
        """Begin a call, or reject it."""
        head = read_head(headers)
        if head.http_method != b"POST":
            return self._refuse(stream, b"405", (b"allow", b"POST"))
        if not head.is_grpc:
            return self._refuse(stream, b"415", (b"accept", b"application/grpc"))
        settings = self._settings
        failure, seconds = None, None
        try:
            head.check()
            seconds = head.timeout_seconds()
        except BatonError as error:
            failure = error
        found = settings.methods.find(head.path)
        method = found or unknown_method(head.path)
        if self.caller is not None and found is not None and not may_call(self.caller, head.path):
            failure = denial(self.caller, head.path)
        call = CallStream(self, stream, method, head, seconds, settings.max_message_bytes)
        self._calls[call] = self.loop.time()
        if failure is not None:
            call.cancel(failure)
        else:
            call.opened(end)
            if call.task is None:
                settings.guard.wait(call)
        return call

    def on_pong(self, payload: bytes) -> None:
        if payload == _RETIRED and self.retired:
            self.drain()

    def on_closed(self, code: ErrorCode, message: str) -> None:
        CONNECTION_ERRORS.labels(code.name).inc()
        log.info("rpc.connection.failed", peer=self.peer, code=code.name, error=message)
        self.loop.call_soon(self._end)

    def _refuse(
        self, stream: Http2Stream, status: bytes, *more: tuple[bytes, bytes]
    ) -> StreamOwner:
        """Respond to a request that is not a gRPC call."""
        self.http2.send_headers(stream, encode([(b":status", status), *more]), end=True)
        return NOBODY

    def _end(self) -> None:
        """Close after the GOAWAY. Further data from the client is read and dropped for a while:
        closing immediately would reset the connection, and the GOAWAY might be lost with it."""
        if not self._connected or self._transport.is_closing():
            return
        self._flush()
        self._closing = self.retired = True
        if self._transport.can_write_eof():
            self._connected = False  # nothing more is written
            self._transport.write_eof()
            self._transport.resume_reading()
            self._end_within(_FAILED_SECONDS, self.abort)
        else:  # TLS has no half-close
            self._transport.close()

    def _too_old(self) -> None:
        self._aged = True
        self.retire()

    def _cut(self) -> None:
        old = "the connection reached its maximum age: send the request on another one"
        self.cancel_calls(BatonError(Reason.DRAINING, old, retry_after=0.0))

    def _end_within(self, seconds: float, end: Callable[[], None]) -> None:
        if self._end_timer is not None:
            self._end_timer.cancel()
        self._end_timer = self.loop.call_later(seconds, end)

    def _close_if_done(self) -> None:
        if not self._calls:
            self.loop.call_soon(self.close)

    def _look(self) -> None:
        now = self.loop.time()
        for call, came in list(self._calls.items()):
            if call.task is None and now - came > _REQUEST_SECONDS:
                late = f"no complete message within {_REQUEST_SECONDS:g} s"
                call.cancel(BatonError(Reason.BODY_TIMEOUT, late))
        super()._look()
