"""One client's connection: HTTP/2 on a socket, calls out of it."""

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
"""Of all messages of a client that are not whole yet, or four of the longest."""
_REQUEST_SECONDS = 30.0
"""For the one message of a call, from its head on."""
_FAILED_SECONDS = 1.0
"""For a client that broke the protocol to close the connection."""
_RETIRED = b"retired?"
"""The PING behind the first GOAWAY."""
_RETIRE_SECONDS = 5.0
"""For the client to answer it."""


@dataclass(frozen=True, slots=True)
class ConnectionSettings:
    """What all connections of a server share."""

    methods: MethodTable
    guard: CallGuard
    context: Context
    """Copied for each call: the server's, with nothing of any request."""
    limits: ConnectionLimits
    max_message_bytes: int
    stall_seconds: float
    keepalive_seconds: float
    keepalive_timeout_seconds: float
    max_age_seconds: float
    """Then clients are told to use another connection; 0: never."""
    max_age_grace_seconds: float
    """For the calls on it to end after that."""
    addresses: ClientAddresses | None
    """Bounds the connections of each client address; None: nothing does."""
    unfinished: Unfinished
    """Bounds what is held of all clients' messages that are not whole."""


class ServerConnection(SocketProtocol):
    """Reads a client's bytes into calls.

    Args:
        settings: the server's.
        on_lost: called when the socket is closed.
        tls: stands under it once it is made; None: it is plain text.
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
        """Whose calls these are; None: anyone's, and anyone may make them."""
        self._tls = tls
        self._settings = settings
        self._on_lost = on_lost
        self._calls: dict[CallStream, float] = {}
        """Loop time at which each came; until its client was told the end."""
        self._partial_bytes = 0
        self._address: str | None = None
        """As it is counted; None: it is not."""
        self.retired = False
        """Its client was told to open new calls on another one."""
        self._aged = False
        self._closing = False
        self._end_timer: asyncio.TimerHandle | None = None
        """What comes next: it is too old, its client has not answered, or its grace is over."""

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
            self._address = None  # TLS may tell of it twice
        super().connection_lost(exc)
        self._on_lost(self)

    def _take(self, transport: asyncio.Transport) -> None:
        super()._take(transport)
        addresses = self._settings.addresses
        if addresses is None or self._address is not None:
            return
        self._address = (transport.get_extra_info("peername") or ("",))[0]
        if addresses.enter(self._address, "grpc"):
            # As of a server that is full: before a byte is said (Connections).
            self.abort()

    # The server's.

    def retire(self) -> None:
        """Tell the client to open new calls on another connection; close after the last one here.

        Calls that it opened before it heard of this are served: they came before it answers the
        PING behind the GOAWAY (RFC 9113, section 6.8).
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
        """Take no more calls; close once those that there are have ended."""
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

    # The calls'.

    def begin(self, call: CallStream) -> "asyncio.Task[None]":
        """Run a call's handler in a task."""
        self._settings.guard.wait_no_more(call)
        context = self._settings.context.copy()
        return self.loop.create_task(self._settings.guard.run(call), context=context)

    def keep_partial(self, call: CallStream, size: int, change: int) -> bool:
        """Count what is kept of messages that are not whole; returns whether it is not too much.

        Args:
            call: of the message; it may be given up within this.
            size: bytes that it keeps.
            change: against before.
        """
        self._partial_bytes += change
        self._settings.unfinished.note(call, size)
        return self._partial_bytes <= max(_MAX_PARTIAL_BYTES, 4 * self._settings.max_message_bytes)

    def forget(self, call: CallStream) -> None:
        """Hear that a call's client was told everything, or is gone."""
        self._calls.pop(call, None)
        self._settings.guard.wait_no_more(call)
        if self._closing:
            self._close_if_done()

    # HTTP/2's.

    def on_request(self, stream: Http2Stream, headers: Headers, end: bool) -> StreamOwner:
        """Begin a call, or refuse it."""
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
        """Answer what is no call of gRPC."""
        self.http2.send_headers(stream, encode([(b":status", status), *more]), end=True)
        return NOBODY

    def _end(self) -> None:
        """Close behind the GOAWAY. What the client still sends is read and dropped for a while:
        closing at once would reset the connection, and why might be lost with it."""
        if not self._connected or self._transport.is_closing():
            return
        self._flush()
        self._closing = self.retired = True
        if self._transport.can_write_eof():
            self._connected = False  # nothing more is written
            self._transport.write_eof()
            self._transport.resume_reading()
            self._end_within(_FAILED_SECONDS, self.abort)
        else:  # TLS has no such half
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
