"""The connection that carries a channel's calls."""

import asyncio
import ssl
from collections.abc import Callable
from dataclasses import replace

from baton.errors import BatonError, Reason
from baton.rpc.channel.call import ClientCall
from baton.rpc.http2.framing.codes import ErrorCode
from baton.rpc.http2.limits import BULK_LIMITS
from baton.rpc.tls.access import may_serve
from baton.rpc.tls.contexts import HTTP2
from baton.rpc.tls.identity import Peer
from baton.rpc.tls.mutual import MutualTls
from baton.rpc.transport.socket_protocol import SocketProtocol
from baton.settings import LivenessSettings
from baton.telemetry.logs import get_logger

log = get_logger(__name__)

LIMITS = replace(
    BULK_LIMITS,
    # A server of the same cluster sends as fast as it can.
    frame_burst=100_000,
    frames_per_second=100_000.0,
    reply_burst=10_000,
)


class ClientConnection(SocketProtocol):
    """One HTTP/2 connection of a channel.

    Args:
        authority: authority of the server, as the caller names it.
        on_unusable: called when it accepts no more calls, and when it is closed.
        on_room: called when `has_room` may have become true.
        liveness: how soon a server that is silent counts as gone.
        tls: TLS of the socket; None: plain text. With TLS, a server receives only the calls that
            its role serves.
    """

    def __init__(
        self,
        authority: bytes,
        on_unusable: Callable[["ClientConnection"], None],
        on_room: Callable[[], None],
        liveness: LivenessSettings,
        tls: MutualTls | None = None,
    ) -> None:
        super().__init__(
            client=True,
            limits=LIMITS,
            keepalive_seconds=liveness.ping_seconds,
            keepalive_timeout_seconds=liveness.answer_seconds,
        )
        self.authority = authority
        self.scheme = b"http" if tls is None else b"https"
        self._tls = tls
        self._server: Peer | None = None
        """Identity in the server's certificate; None: it presents none."""
        self._on_unusable = on_unusable
        self._on_room = on_room
        self._usable = True
        self.alive = True
        self.lost = self.loop.create_future()
        """Resolved when the socket is closed."""
        self._calls: set[ClientCall] = set()

    @property
    def has_room(self) -> bool:
        """Whether the server accepts one more open call now."""
        return self.http2.has_room

    def open(self, call: ClientCall) -> None:
        """Open a call; `has_room` must be true."""
        if self._server is not None and not may_serve(self._server, call.path):
            log.warning("rpc.server.refused", peer=str(self._server), method=call.path)
            call.fail(
                BatonError(
                    Reason.UNAVAILABLE,
                    f"by its certificate ({str(self._server)[:200]}) {self.peer} does not serve "
                    f"{call.path}",
                )
            )
            return
        self._calls.add(call)
        call.open(self)
        if self.http2.used_up:
            self._retire()

    def forget(self, call: ClientCall) -> None:
        """Remove a call that has ended."""
        self._calls.discard(call)
        if self._usable:
            self._on_room()
        elif not self._calls:
            self.loop.call_soon(self.close)

    def cancel_calls(self, error: BatonError) -> None:
        """End every call with an error."""
        for call in list(self._calls):
            call.cancel(error)

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        if self._tls is not None:
            tls: ssl.SSLObject = transport.get_extra_info("ssl_object")
            self._server = self._tls.caller(tls)
            if tls.selected_alpn_protocol() != HTTP2:
                self.abort()
        super().connection_made(transport)

    def connection_lost(self, exc: Exception | None) -> None:
        self.alive = self._usable = False
        if not self.lost.done():
            self.lost.set_result(None)
        super().connection_lost(exc)
        self._on_unusable(self)

    def on_settings(self) -> None:
        """Handle the server's limit on concurrent calls."""
        self._on_room()

    def on_goaway(self, last_stream_id: int, code: ErrorCode, message: str) -> None:  # noqa: ARG002
        """Open no more calls; those that the server has accepted continue."""
        self._retire()
        if not self._calls:
            self.loop.call_soon(self.close)

    def on_closed(self, code: ErrorCode, message: str) -> None:
        """Close: the server violated the protocol."""
        self._retire()
        super().on_closed(code, message)

    def _retire(self) -> None:
        if self._usable:
            self._usable = False
            self._on_unusable(self)
