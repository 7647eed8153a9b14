"""The HTTP server: uvicorn in this process's own loop."""

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
"""Between two looks for connections that are idle, while they are closed."""

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
            app: what is served.
            settings: where to listen, and limits.
            stall_seconds: clients that do not read for so long are cut.
            tls: to serve TLS; None: plain text is served.
            max_age_seconds: of connections, 10 % more or less; 0: any.
            addresses: bounds the connections of each client address; None: nothing does.
            unfinished: bounds what is held of bodies that come; None: nothing does.
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
                transport.abort()  # what its client never read
        elif self._socket is not None:
            self._socket.close()

    @property
    def port(self) -> int:
        """Where it listens, also if a free port was asked for; after `bind`."""
        if self._socket is None:
            raise RuntimeError("the server is not listening yet")
        return int(self._socket.getsockname()[1])

    @property
    def connections(self) -> list[asyncio.Transport]:
        """Those that are open."""
        return [one.transport for one in self._open]

    def retire_connections(self) -> None:
        """Let each answer be the last one of its connection (`connection: close`): clients go on
        to others, while all that they ask is answered."""
        self._ending.retiring = True
        for one in self._open:
            one.retire()

    async def close_connections(self, idle_seconds: float) -> None:
        """Close each connection once no request was on it for so long; return when none is left.

        A client that was not told before that its connection ends has its next request served.
        Connections that come now are refused: their requests fail with DRAINING. Where others
        listen on the same port, they get them instead.

        Args:
            idle_seconds: for a request that is on its way.
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
        """Take the port; clients are refused before `start`.

        Raises:
            StartupError: the port is taken, or the address is not one of this machine's.
        """
        settings = self._settings
        try:
            bound = bind(settings.host, settings.port, reuse_port=settings.reuse_port)
        except OSError as error:
            raise _cannot_listen(settings, error) from error
        # Accepted connections inherit these: small events leave at once, and a client that does
        # not read is noticed before megabytes wait in the kernel.
        bound.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _SEND_BUFFER_BYTES)
        self._socket = bound

    async def start(self) -> None:
        """Listen and serve, on a port that is taken now unless it was before.

        Raises:
            StartupError: as of `bind`.
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
    """Record a request that no application sees, and return the answer to it."""
    record, identity = begin("http"), identify()
    record.error = error
    finish(record, str(error.http_status))
    return refusal(error, identity)


class _Server(uvicorn.Server):
    """uvicorn's server, for which signals are the process's own business."""

    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self.up = asyncio.Event()

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Listen. uvicorn would have clients take a minute for the handshake of TLS."""
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
