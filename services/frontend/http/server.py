"""The HTTP server: uvicorn in this process's event loop."""

import asyncio
import contextlib
import socket
import ssl
from collections.abc import Iterator
from typing import cast

import uvicorn

from baton.errors import BatonError
from baton.rpc.transport.client_addresses import ClientAddresses
from baton.rpc.transport.handshake import HANDSHAKE_SECONDS
from baton.rpc.transport.listener import bind
from baton.rpc.transport.unfinished import Unfinished
from baton.settings import HttpSettings, StartupError
from baton.telemetry.logs import get_logger
from services.frontend.http.asgi import ASGIApp
from services.frontend.http.ending import ServerEnding
from services.frontend.http.protocol.connection import HttpServerConnection
from services.frontend.http.protocol.refusals import refusal
from services.frontend.requests.record import begin, finish
from services.frontend.requests.request_id import identify

_BACKLOG = 2048
_SEND_BUFFER_BYTES = 256 * 1024
_LOOK_SECONDS = 0.1
"""Interval of checks for idle connections, while they are being closed."""

log = get_logger(__name__)


class HttpServer:
    """Serves an application from `start` until the context is left."""

    def __init__(
        self,
        app: ASGIApp,
        settings: HttpSettings,
        stall_seconds: float,
        tls: ssl.SSLContext | None = None,
        max_age_seconds: float = 0.0,
        addresses: ClientAddresses | None = None,
        unfinished: Unfinished | None = None,
    ) -> None:
        """Serve `app`, over TLS with `tls`.

        Args:
            app: the application.
            settings: where to listen, and limits.
            stall_seconds: clients that do not read for this long are disconnected.
            tls: to serve TLS; None: plain text.
            max_age_seconds: of connections, 10 % more or less; 0: unlimited.
            addresses: bounds the connections of each client address; None: unlimited.
            unfinished: bounds the memory of unfinished bodies; None: unlimited.
        """
        self._settings = settings
        self._ending = ServerEnding()
        self._socket: socket.socket | None = None
        self._task: asyncio.Task[None] | None = None
        self._server = _Server(
            uvicorn.Config(
                app,
                http=HttpServerConnection.limited(
                    _refuse,
                    settings,
                    stall_seconds,
                    max_age_seconds,
                    self._ending,
                    addresses,
                    unfinished,
                ),
                loop="none",
                ws="none",
                lifespan="off",
                log_config=None,
                access_log=False,
                proxy_headers=False,
                server_header=False,
                backlog=_BACKLOG,
                timeout_keep_alive=settings.idle_timeout_seconds,
                timeout_graceful_shutdown=settings.close_seconds,
                ssl_context_factory=None if tls is None else lambda *_: tls,
            )
        )

    async def __aenter__(self) -> "HttpServer":
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._task is not None:
            self._server.should_exit = True
            await asyncio.wait([self._task])
            for transport in self.connections:
                transport.abort()  # data that its client never read
        elif self._socket is not None:
            self._socket.close()

    @property
    def port(self) -> int:
        """The bound port, also if port 0 was configured; after `bind`."""
        if self._socket is None:
            raise RuntimeError("the server is not listening yet")
        return int(self._socket.getsockname()[1])

    @property
    def connections(self) -> list[asyncio.Transport]:
        """The open connections."""
        return [one.transport for one in self._open]

    def retire_connections(self) -> None:
        """Make each response the last one of its connection (`connection: close`): clients move to
        other servers, while all their requests are served."""
        self._ending.retiring = True
        for one in self._open:
            one.retire()

    async def close_connections(self, idle_seconds: float) -> None:
        """Close each connection once it was idle for a given time; return when none is left.

        A client without an earlier notice that its connection ends has its next request served. New
        connections are rejected: their requests fail with DRAINING. If other processes listen on
        the same port, they receive these connections instead.

        Args:
            idle_seconds: covers a request that is in flight.
        """
        self._ending.refusing = True
        if self._settings.reuse_port:
            for listener in self._server.servers:
                listener.close()
        while there := [one for one in self._open if not one.late]:
            for one in there:
                one.close_if_idle(idle_seconds)
            await asyncio.sleep(_LOOK_SECONDS)

    @property
    def _open(self) -> list[HttpServerConnection]:
        return [
            one
            for one in self._server.server_state.connections
            if isinstance(one, HttpServerConnection)
        ]

    def bind(self) -> None:
        """Bind the port; clients are rejected before `start`.

        Raises:
            StartupError: the port is in use, or the address is not one of this machine's.
        """
        settings = self._settings
        try:
            bound = bind(settings.host, settings.port, reuse_port=settings.reuse_port)
        except OSError as error:
            raise _cannot_listen(settings, error) from error
        # Accepted connections inherit these: small events are sent immediately, and a client that
        # does not read is noticed before megabytes wait in the kernel.
        bound.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _SEND_BUFFER_BYTES)
        self._socket = bound

    async def start(self) -> None:
        """Listen and serve; binds the port unless `bind` was called.

        Raises:
            StartupError: as for `bind`.
        """
        if self._socket is None:
            self.bind()
        assert self._socket is not None
        try:
            self._socket.listen(_BACKLOG)
        except OSError as error:  # another process took the same port, and listened first
            raise _cannot_listen(self._settings, error) from error
        self._task = asyncio.create_task(self._server.serve([self._socket]), name="http")
        await self._server.up.wait()
        log.info("http.server.started", host=self._settings.host, port=self.port)


def _refuse(error: BatonError) -> bytes:
    """Record a request that no application sees, and return its response."""
    record, identity = begin("http"), identify()
    record.error = error
    finish(record, str(error.http_status))
    return refusal(error, identity)


class _Server(uvicorn.Server):
    """uvicorn's server, without its signal handling, which is the process's own."""

    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self.up = asyncio.Event()

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Listen. uvicorn's default would allow clients a minute for the TLS handshake."""
        tls = self.config.ssl
        self.servers = [
            await asyncio.get_running_loop().create_server(
                self._connect,
                sock=bound,
                backlog=self.config.backlog,
                ssl=tls,
                ssl_handshake_timeout=None if tls is None else HANDSHAKE_SECONDS,
            )
            for bound in sockets or ()
        ]
        self.started = True
        self.up.set()

    def _connect(self) -> asyncio.Protocol:
        kind = cast(type[HttpServerConnection], self.config.http_protocol_class)
        return kind(self.config, self.server_state, {})


def _cannot_listen(settings: HttpSettings, error: OSError) -> StartupError:
    return StartupError(
        f"cannot bind http.port {settings.host}:{settings.port} ({error.strerror}): free the port, "
        "or set BATON_HTTP_PORT or --http-port to another (0: any free port)."
    )
