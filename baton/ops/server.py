"""The HTTP/1.1 server of the ops port, on a thread and event loop of its own.

It answers from the beginning of a process to its end, also while the process's own loop is stuck.
Connections, the time each may take and the work for /metrics are bounded: whoever reaches the port
can disturb other readers of it, not the process.
"""

import asyncio
import socket
from collections.abc import Sequence
from http import HTTPStatus
from urllib.parse import parse_qs

from baton.ops.checks import TICK_SECONDS, Liveness, Readiness, State
from baton.settings import OpsSettings, StartupError
from baton.telemetry.logs import get_logger
from baton.telemetry.metrics import render
from baton.telemetry.scope import scoped_thread

log = get_logger(__name__)

MAX_CONNECTIONS = 32
"""At a time; one more takes the place of the oldest, so that a probe always gets in."""
MAX_HEAD_BYTES = 8192
CONNECTION_SECONDS = 10.0
"""For a whole exchange; a connection that takes longer is closed."""
METRICS_PAUSE = 4.0
"""Times as long as rendering took, before metrics are rendered again: at most a fifth of a core."""
_ACCEPTED_AT_ONCE = MAX_CONNECTIONS // 2
_BACKLOG = 1024
_TEXT = "text/plain; charset=utf-8"


class OpsServer:
    """Serves /livez, /readyz and /metrics of the scope it is started in, until `close`.

    Args:
        settings: where to listen.
        liveness: what /livez says; its clock is ticked here.
        readiness: what /readyz says.
        advertise_host: the host of `address`; empty: the host it listens on.

    Raises:
        StartupError: the port is taken, or the address is not one of this machine's.
    """

    def __init__(
        self,
        settings: OpsSettings,
        liveness: Liveness,
        readiness: Readiness,
        advertise_host: str = "",
    ) -> None:
        self._socket = _bind(settings)
        host = (advertise_host or settings.host).strip("[]")
        port = self._socket.getsockname()[1]
        self.address = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
        """`host:port` for others."""
        self.liveness = liveness
        self.readiness = readiness
        self._loop = asyncio.new_event_loop()
        self._stop = asyncio.Event()
        self._rendering: dict[bool, asyncio.Task[tuple[bytes, str]]] = {}
        """By format: whether it is OpenMetrics."""
        self._render_at = 0.0
        self.connections: dict[_Connection, None] = {}
        """Open ones, the oldest first. For the connections."""
        self._thread = scoped_thread(self._run, "ops")
        self._thread.start()

    def close(self) -> None:
        """Stop; what is being answered is cut off."""
        self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join()

    def _run(self) -> None:
        with asyncio.Runner(loop_factory=lambda: self._loop) as runner:
            runner.run(self._serve())

    async def _serve(self) -> None:
        server = await self._loop.create_server(
            lambda: _Connection(self), sock=self._socket, backlog=_ACCEPTED_AT_ONCE
        )
        self._socket.listen(_BACKLOG)  # asyncio's backlog is also how many it accepts in a turn
        self._tick()
        await self._stop.wait()
        server.close()
        for connection in list(self.connections):
            connection.abort()

    def _tick(self) -> None:
        self.liveness.clock.tick()
        self._loop.call_later(TICK_SECONDS, self._tick)

    async def answer(self, method: str, target: str, accept: str = "") -> bytes:
        """Return the whole response to a request. For the connections."""
        path, _, query = target.partition("?")
        verbose = "verbose" in parse_qs(query, keep_blank_values=True)
        status, kind, body = HTTPStatus.OK, _TEXT, b""
        if path not in ("/livez", "/readyz", "/metrics"):
            status, body = HTTPStatus.NOT_FOUND, b"here are /livez, /readyz and /metrics\n"
        elif method not in ("GET", "HEAD"):
            status, body = HTTPStatus.METHOD_NOT_ALLOWED, b"use GET or HEAD\n"
        elif path == "/metrics":
            body, kind = await self._metrics("application/openmetrics-text" in accept)
        else:
            states = self.liveness.states() if path == "/livez" else self.readiness.states()
            status, body = _checked(path[1:], states, verbose)
        return _response(status, kind, body, with_body=method != "HEAD")

    async def _metrics(self, openmetrics: bool) -> tuple[bytes, str]:
        """Render the metrics, once for all that wait for them, and not too often."""
        rendering = self._rendering.get(openmetrics)
        if rendering is None:
            rendering = self._loop.create_task(self._render(openmetrics))
            self._rendering[openmetrics] = rendering
        return await asyncio.shield(rendering)

    async def _render(self, openmetrics: bool) -> tuple[bytes, str]:
        await asyncio.sleep(self._render_at - self._loop.time())
        del self._rendering[openmetrics]  # who asks from now on wants what is counted from now on
        began = self._loop.time()
        rendered = render(openmetrics=openmetrics)
        ended = self._loop.time()
        self._render_at = ended + METRICS_PAUSE * (ended - began)
        return rendered


class _Connection(asyncio.Protocol):
    """One exchange: reads a head, writes a response, closes."""

    def __init__(self, server: OpsServer) -> None:
        self._server = server
        self._head = b""
        self._answering: asyncio.Task[None] | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        self._timer = asyncio.get_running_loop().call_later(CONNECTION_SECONDS, self.abort)
        connections = self._server.connections
        if len(connections) >= MAX_CONNECTIONS:
            next(iter(connections)).abort()
        connections[self] = None

    def connection_lost(self, _: Exception | None) -> None:
        self.abort()

    def data_received(self, data: bytes) -> None:
        if self._answering is not None:
            return  # a body, or another request: this connection closes after one
        self._head += data
        end = self._head.find(b"\r\n\r\n")
        if end < 0 and len(self._head) <= MAX_HEAD_BYTES:
            return
        line, *_ = self._head.partition(b"\r\n")
        match line.decode("latin-1").split(" "):
            case [method, target, version] if version.startswith("HTTP/1.") and end >= 0:
                answer = self._answer(method, target, _accept(self._head[:end]))
            case _:
                answer = self._refuse(end < 0)
        self._answering = asyncio.get_running_loop().create_task(answer)

    def abort(self) -> None:
        """Close at once. Idempotent."""
        self._server.connections.pop(self, None)
        self._timer.cancel()
        if self._answering is not None:
            self._answering.cancel()
        self._transport.abort()

    async def _answer(self, method: str, target: str, accept: str) -> None:
        try:
            response = await self._server.answer(method, target, accept)
        except Exception:
            log.exception("ops.request.failed", target=target)
            status = HTTPStatus.INTERNAL_SERVER_ERROR
            response = _response(status, _TEXT, b"see the log of the process\n")
        self._finish(response)

    async def _refuse(self, too_long: bool) -> None:
        status = HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE if too_long else HTTPStatus.BAD_REQUEST
        self._finish(_response(status, _TEXT, f"{status.phrase.lower()}\n".encode()))

    def _finish(self, response: bytes) -> None:
        self._transport.write(response)
        self._transport.close()  # once it is written


def _checked(name: str, states: Sequence[State], verbose: bool) -> tuple[HTTPStatus, bytes]:
    """Return the status and the text of a check, as Kubernetes' API server writes it."""
    failed = any(reason for _, reason in states)
    if not failed and not verbose:
        return HTTPStatus.OK, b"ok\n"
    lines = [f"[-]{part}: {reason}" if reason else f"[+]{part} ok" for part, reason in states]
    lines.append(f"{name} check {'failed' if failed else 'passed'}")
    status = HTTPStatus.SERVICE_UNAVAILABLE if failed else HTTPStatus.OK
    return status, "".join(f"{line}\n" for line in lines).encode()


def _response(status: HTTPStatus, kind: str, body: bytes, *, with_body: bool = True) -> bytes:
    head = (
        f"HTTP/1.1 {status.value} {status.phrase}\r\n"
        f"content-type: {kind}\r\n"
        f"content-length: {len(body)}\r\n"
        "cache-control: no-store\r\n"
        "x-content-type-options: nosniff\r\n"
        "connection: close\r\n\r\n"
    )
    return head.encode() + (body if with_body else b"")


def _bind(settings: OpsSettings) -> socket.socket:
    host, port = settings.host.strip("[]"), settings.port
    try:
        family, _, _, _, address = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        return socket.create_server(address[:2], family=family)
    except OSError as error:
        raise StartupError(
            f"cannot bind ops.port {settings.host}:{port} ({error.strerror}): free the port, or "
            "set "
            "BATON_OPS_PORT or --ops-port to another (0: any free port)."
        ) from error


def _accept(head: bytes) -> str:
    """Return the `accept` header of a request; empty: it has none."""
    for line in head.split(b"\r\n")[1:]:
        name, _, value = line.partition(b":")
        if name.strip().lower() == b"accept":
            return value.decode("latin-1")
    return ""
