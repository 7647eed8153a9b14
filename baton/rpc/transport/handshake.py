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
"""For a handshake: a client of grpc gives up after 20."""


class TlsHandshake(asyncio.Protocol):
    """Takes a new connection, and has what reads it connected once TLS stands.

    The server counts the connection from its beginning, however its handshake ends. The socket is
    taken from the transport that the listener made: uvloop begins to read on it whatever
    `connection_made` says, and what a client said before TLS was there to read it would be lost.

    Args:
        connection: takes what is decrypted; it hears `connection_lost` if TLS does not come to be.
        tls: the server's.
    """

    def __init__(self, connection: SocketProtocol, tls: ServerTls) -> None:
        self._connection = connection
        self._tls = tls
        self._task: asyncio.Task[None] | None = None
        self._begun = False
        """The socket is the loop's to close."""

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
            # Who connects and says nothing only looks whether the port is open.
            tell = log.info if isinstance(error, ssl.SSLError) else log.debug
            tell("rpc.tls.failed", peer=connection.peer, error=str(error))
            connection.connection_lost(error)

    def _ended(self, taken: socket.socket, task: "asyncio.Task[None]") -> None:
        if task.cancelled():  # the server stops
            if not self._begun:
                taken.close()
            self._connection.connection_lost(None)


class _Handshaking(asyncio.Transport):
    """Stands for the socket until TLS does."""

    def __init__(self, task: "asyncio.Task[None]", peer: object) -> None:
        super().__init__({"peername": peer})
        self._task = task

    def abort(self) -> None:
        self._task.cancel()
