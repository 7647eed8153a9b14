"""TLS before HTTP/2: the handshake of a client's connection (RFC 9113, sections 3.2 and 9.2)."""

import asyncio
import os
import socket
import ssl
from functools import partial

from baton.rpc.tls.contexts import ServerTls
from baton.rpc.transport.socket_protocol import SocketProtocol
from baton.telemetry.logs import get_logger
from baton.telemetry.metrics import Counter

log = get_logger(__name__)

FAILED = Counter(
    "baton_rpc_tls_failures_total",
    "TLS handshakes that failed, by reason: `failed`, or `protocol` (the client does not offer "
    "HTTP/2 by ALPN).",
    ["reason"],
)
HANDSHAKE_SECONDS = 10.0
"""Time limit of a handshake: gRPC clients give up after 20 s."""


class TlsHandshake(asyncio.Protocol):
    """Performs the handshake of a new connection, then connects the protocol that reads it.

    The server counts the connection from its beginning, however its handshake ends. The socket is
    detached from the listener's transport: uvloop starts to read on it regardless of
    `connection_made`, and bytes that arrive before TLS reads them would be lost.

    Args:
        connection: receives the decrypted data; its `connection_lost` is called if the handshake
            fails.
        tls: TLS of the server.
    """

    def __init__(self, connection: SocketProtocol, tls: ServerTls) -> None:
        self._connection = connection
        self._tls = tls
        self._task: asyncio.Task[None] | None = None
        self._begun = False
        """Whether the loop owns the socket and closes it."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        taken = socket.socket(fileno=os.dup(transport.get_extra_info("socket").fileno()))
        taken.setblocking(False)
        peer = transport.get_extra_info("peername")
        transport.abort()
        loop = self._connection.loop
        self._task = loop.create_task(self._shake(taken), name="tls-handshake")
        self._task.add_done_callback(partial(self._ended, taken))
        self._connection.begin_tls(_Handshaking(self._task, peer))

    async def _shake(self, taken: socket.socket) -> None:
        connection, self._begun = self._connection, True
        try:
            await connection.loop.connect_accepted_socket(
                lambda: connection,
                taken,
                ssl=self._tls.server_context,
                ssl_handshake_timeout=HANDSHAKE_SECONDS,
            )
        except OSError as error:  # of which are SSLError and TimeoutError
            FAILED.labels("failed").inc()
            # A client that connects and sends nothing only checks whether the port is open.
            tell = log.info if isinstance(error, ssl.SSLError) else log.debug
            tell("rpc.tls.failed", peer=connection.peer, error=str(error))
            connection.connection_lost(error)

    def _ended(self, taken: socket.socket, task: "asyncio.Task[None]") -> None:
        if task.cancelled():  # the server stops
            if not self._begun:
                taken.close()
            self._connection.connection_lost(None)


class _Handshaking(asyncio.Transport):
    """Stands in for the socket until TLS is established."""

    def __init__(self, task: "asyncio.Task[None]", peer: object) -> None:
        super().__init__({"peername": peer})
        self._task = task

    def abort(self) -> None:
        self._task.cancel()
