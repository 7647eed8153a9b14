"""The connections of a server: how many are allowed, and how they are closed."""

import asyncio
from contextlib import suppress

from baton.errors import BatonError
from baton.rpc.server.connection import ConnectionSettings, ServerConnection
from baton.rpc.tls.contexts import ServerTls
from baton.rpc.transport.handshake import TlsHandshake
from baton.telemetry.logs import get_logger
from baton.telemetry.metrics import Counter, Gauge

log = get_logger(__name__)

OPEN = Gauge("baton_rpc_connections", "Open client connections.")
REFUSED = Counter(
    "baton_rpc_connections_refused_total",
    "Connections closed at once because `grpc.max_connections` were open.",
)
_CLOSE_SECONDS = 1.0
"""Time for clients to read the data written last."""


class Connections:
    """Accepts client connections, up to a limit. Owned by one server, on its event loop.

    A connection beyond the limit is closed before any byte is sent. A gRPC client handles that like
    an unavailable server: it backs off, and calls that wait for it fail with UNAVAILABLE and may be
    retried elsewhere. After a GOAWAY it would reconnect immediately.

    Args:
        settings: settings of each connection.
        limit: concurrent connections.
        tls: TLS of the server; None: plain text.
    """

    def __init__(self, settings: ConnectionSettings, limit: int, tls: ServerTls | None) -> None:
        self._settings = settings
        self._limit = limit
        self._tls = tls
        self._open: set[ServerConnection] = set()
        self._none_open = asyncio.Event()
        self._stopping = False
        self._full = False
        """Whether the limit was logged as reached."""

    def accept(self) -> asyncio.BaseProtocol:
        """Return the protocol of a new connection: the listener's factory of protocols."""
        if self._stopping:
            return _Closed()  # accepted while the listener was being closed
        if len(self._open) >= self._limit:
            REFUSED.inc()
            if not self._full:
                self._full = True
                log.warning("rpc.connection.rejected", setting="grpc.max_connections")
            return _Closed()
        connection = ServerConnection(self._settings, self._lost, self._tls)
        self._open.add(connection)
        OPEN.inc()
        return connection if self._tls is None else TlsHandshake(connection, self._tls)

    def retire(self) -> None:
        """Ask every client to open new calls on another connection; new connections are
        accepted."""
        for connection in list(self._open):
            connection.retire()

    def refuse_new(self) -> None:
        """Accept no more connections."""
        self._stopping = True

    def drain(self) -> None:
        """Accept no more connections, and no more calls on existing ones."""
        self._stopping = True
        for connection in list(self._open):
            connection.drain()

    def cancel_calls(self, error: BatonError) -> None:
        """End every call with an error."""
        for connection in list(self._open):
            connection.cancel_calls(error)

    async def close(self) -> None:
        """Close every connection; clients have a moment to read the data written last."""
        for connection in list(self._open):
            connection.close()
        if not await self.wait_none(_CLOSE_SECONDS):
            for connection in list(self._open):
                connection.abort()
            # The sockets are closed in the next iteration of the loop, which may be its last.
            await self.wait_none(_CLOSE_SECONDS)

    async def wait_none(self, seconds: float) -> bool:
        """Wait up to `seconds` for all connections to close; return whether they have."""
        if self._open:
            self._none_open.clear()
            with suppress(TimeoutError):
                async with asyncio.timeout(seconds):
                    await self._none_open.wait()
        return not self._open

    def _lost(self, connection: ServerConnection) -> None:
        if connection not in self._open:
            return  # TLS may report it twice
        self._open.discard(connection)
        OPEN.dec()
        self._full = self._full and len(self._open) >= self._limit
        if not self._open:
            self._none_open.set()


class _Closed(asyncio.Protocol):
    """Closes a connection as soon as it is made."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        transport.abort()
