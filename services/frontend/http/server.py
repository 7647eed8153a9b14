"""The HTTP server: uvicorn in this process's own loop."""

import asyncio
import contextlib
import socket
from collections.abc import Iterator
from http import HTTPStatus

import uvicorn

from baton.errors import BatonError
from baton.settings import HttpSettings, StartupError
from baton.telemetry.logs import get_logger
from services.frontend.http.asgi import ASGIApp
from services.frontend.http.connection import Connection
from services.frontend.http.responses import encode
from services.frontend.requests.record import begin, finish
from services.frontend.requests.request_id import identify

_BACKLOG = 2048
_SEND_BUFFER_BYTES = 256 * 1024

log = get_logger(__name__)


class HttpServer:
    """Serves an application from `start` until the context is left."""

    def __init__(self, app: ASGIApp, settings: HttpSettings, stall_seconds: float) -> None:
        """Serve `app`; clients that do not read for `stall_seconds` are cut."""
        self._settings = settings
        self._socket: socket.socket | None = None
        self._task: asyncio.Task[None] | None = None
        self._server = _Server(
            uvicorn.Config(
                app,
                http=Connection.limited(_refuse, settings, stall_seconds),
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

    @property
    def port(self) -> int:
        """Where it listens, also if a free port was asked for; after `start`."""
        if self._socket is None:
            raise RuntimeError("the server has not been started")
        return int(self._socket.getsockname()[1])

    @property
    def connections(self) -> list[asyncio.Transport]:
        """Those that are open."""
        return [one.transport for one in self._server.server_state.connections]

    async def start(self) -> None:
        """Listen and serve.

        Raises:
            StartupError: the port is taken, or the address is not one of this machine's.
        """
        self._socket = _listen(self._settings)
        self._task = asyncio.create_task(self._server.serve([self._socket]), name="http")
        await self._server.up.wait()
        log.info("http.server.started", host=self._settings.host, port=self.port)


def _refuse(error: BatonError) -> bytes:
    """Record a request that no application sees, and return the answer to it."""
    record, identity = begin("http"), identify()
    record.error = error
    finish(record, str(error.http_status))
    body = encode(error.to_openai())
    head = (
        f"HTTP/1.1 {error.http_status} {HTTPStatus(error.http_status).phrase}\r\n"
        f"content-type: application/json\r\ncontent-length: {len(body)}\r\n"
        f"x-request-id: {identity}\r\nconnection: close\r\n\r\n"
    )
    return head.encode() + body


class _Server(uvicorn.Server):
    """uvicorn's server, for which signals are the process's own business."""

    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self.up = asyncio.Event()

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self.up.set()


def _listen(settings: HttpSettings) -> socket.socket:
    host, port = settings.host, settings.port
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        listener = socket.socket(family, kind, protocol)
    except OSError as error:
        raise _cannot_listen(host, port, error) from error
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, int(settings.reuse_port))
        # Accepted connections inherit these: small events leave at once, and a client that does
        # not read is noticed before megabytes wait in the kernel.
        listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _SEND_BUFFER_BYTES)
        listener.bind(address)
        listener.listen(_BACKLOG)
    except OSError as error:
        listener.close()
        raise _cannot_listen(host, port, error) from error
    listener.setblocking(False)
    return listener


def _cannot_listen(host: str, port: int, error: OSError) -> StartupError:
    return StartupError(
        f"http.port {host}:{port} cannot be listened on ({error.strerror}): stop what uses it, or "
        "set BATON_HTTP_PORT or --http-port to another; 0 takes a free one."
    )
