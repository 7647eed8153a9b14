"""A process's gRPC server: health, reflection, keepalive, limits."""

import asyncio
import socket
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from grpc_health.v1 import health, health_pb2, health_pb2_grpc

from baton.errors import BatonError, Reason
from baton.rpc.http2.limits import DEFAULT_LIMITS, ConnectionLimits
from baton.rpc.server.connection import ConnectionSettings
from baton.rpc.server.connections import Connections
from baton.rpc.server.guard import CallGuard, OnCallEnd
from baton.rpc.server.health import LIVENESS, READINESS, Health
from baton.rpc.server.methods import MethodTable
from baton.rpc.tls.contexts import ServerTls
from baton.rpc.transport.client_addresses import ClientAddresses
from baton.rpc.transport.listener import bind
from baton.rpc.transport.unfinished import Unfinished
from baton.settings import GrpcSettings, LivenessSettings, StartupError
from baton.telemetry.logs import get_logger
from baton.telemetry.scope import detached_context

log = get_logger(__name__)

_WILDCARDS = ("0.0.0.0", "::", "[::]", "*")
_SERVING = health_pb2.HealthCheckResponse.SERVING
_NOT_SERVING = health_pb2.HealthCheckResponse.NOT_SERVING
_BACKLOG = 4096
STALL_SECONDS = 30.0


class Server:
    """A gRPC server on HTTP/2 with what every process of Baton has.

    Health (grpc.health.v1): `liveness` is SERVING from `start` to the end; `""`, `readiness` and
    each added service follow `set_ready`. Leaving the context cancels the remaining calls.

    Args:
        settings: where to listen, and limits.
        name: name of the process, for messages.
        advertise_host: the host of `address`; empty: the host it listens on.
        incarnation: `Process.incarnation`, by which discovery identifies this process. If it is
            empty, discovery accepts any process that answers at the address.
        on_call_end: called once for each call that ends, including rejected ones.
        stall_seconds: a client that leaves waiting data unread for this long is disconnected.
        tls: enables TLS; it offers `h2` (ALPN), which clients must accept. With mutual TLS, each
            client may make only the calls of its role.
        limits: limits of each connection, except those in `settings`.
        max_fields: most fields in a long message from a client, checked before it is parsed. None:
            any number.
        max_connection_age_seconds: after this time, ±10 %, a client is asked to use another
            connection; 0: never.
        max_connection_grace_seconds: time for the calls on it to end after that.
        liveness: if the clients are processes of the cluster: when they count as gone. They send
            pings, so this side need not while they are alive.
        addresses: limits the connections of each client address; None: no limit.
        unfinished: limits the memory for incomplete messages; None: only the limit of each
            connection applies.
    """

    def __init__(
        self,
        settings: GrpcSettings,
        name: str,
        advertise_host: str = "",
        incarnation: str = "",
        on_call_end: OnCallEnd | None = None,
        stall_seconds: float = STALL_SECONDS,
        tls: ServerTls | None = None,
        limits: ConnectionLimits = DEFAULT_LIMITS,
        max_fields: int | None = None,
        max_connection_age_seconds: float = 0.0,
        max_connection_grace_seconds: float = 0.0,
        liveness: LivenessSettings | None = None,
        addresses: ClientAddresses | None = None,
        unfinished: Unfinished | None = None,
    ) -> None:
        keepalive, timeout = settings.keepalive_seconds, settings.keepalive_timeout_seconds
        if liveness is not None:
            seconds = liveness.patience_seconds
            keepalive, timeout = min(keepalive, seconds * 2 / 3), min(timeout, seconds / 3)
        self._settings = settings
        self._name = name
        self._advertise_host = advertise_host
        self._health = Health(incarnation)
        self._services: list[str] = []
        self._ready = False
        self._parts: dict[str, bool] = {}
        self._publishing: asyncio.Task[None] | None = None
        self._port = 0
        self._methods = MethodTable(max_fields)
        self._guard = CallGuard(settings.max_concurrent, on_call_end)
        self._socket: socket.socket | None = None
        self._listener: asyncio.Server | None = None
        connection_settings = ConnectionSettings(
            methods=self._methods,
            guard=self._guard,
            context=detached_context(),
            limits=replace(
                limits,
                max_streams=settings.max_streams_per_connection,
                unfinished_seconds=settings.frame_seconds,
                reset_burst=settings.reset_burst,
                resets_per_second=settings.resets_per_second,
            ),
            max_message_bytes=settings.max_message_bytes,
            stall_seconds=stall_seconds,
            keepalive_seconds=keepalive,
            keepalive_timeout_seconds=timeout,
            max_age_seconds=max_connection_age_seconds,
            max_age_grace_seconds=max_connection_grace_seconds,
            addresses=addresses,
            unfinished=unfinished or Unfinished(0),
        )
        self._connections = Connections(connection_settings, settings.max_connections, tls)

    async def __aenter__(self) -> "Server":
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.drain(0)

    def add(self, register: Callable[[Any], None], service_full_name: str) -> None:
        """Register a service; before `start`.

        Args:
            register: adds the servicer, for example
                `lambda server: add_RouterServiceServicer_to_server(servicer, server)`.
            service_full_name: for health and reflection, for example `grpc.health.v1.Health`.
        """
        register(self._methods)
        self._services.append(service_full_name)

    def bind(self) -> None:
        """Bind the port; connections are refused before `start`.

        Raises:
            StartupError: the port is taken, or the address is not one of this machine's.
        """
        settings = self._settings
        if settings.host in _WILDCARDS and not self._advertise_host:
            raise StartupError(
                f"grpc.host is {settings.host!r}, which other processes cannot connect to: set "
                "BATON_ADVERTISE_HOST or --advertise-host to a host at which they reach this "
                "process."
            )
        host = settings.host.strip("[]")
        try:
            self._socket = bind(host, settings.port, reuse_port=settings.reuse_port)
        except OSError as error:
            raise self._cannot_listen() from error
        self._port = self._socket.getsockname()[1]

    async def start(self) -> None:
        """Listen and serve, on the port bound before or else bound now; not ready yet.

        Raises:
            StartupError: as of `bind`.
        """
        if self._socket is None:
            self.bind()
        assert self._socket is not None
        await self._publish(False)
        await self._health.set(LIVENESS, _SERVING)
        health_pb2_grpc.add_HealthServicer_to_server(self._health, self._methods)
        if self._settings.reflection:
            from baton.rpc.server.reflection import add_reflection  # few processes need it

            add_reflection(self._methods, [*self._services, health.SERVICE_NAME])
        try:
            self._listener = await asyncio.get_running_loop().create_server(
                self._connections.accept, sock=self._socket, backlog=_BACKLOG
            )
        except OSError as error:  # another process bound the same port, and listened first
            raise self._cannot_listen() from error
        log.info("rpc.server.started", address=self.address, process=self._name)

    @property
    def address(self) -> str:
        """`host:port` for other processes to call; after `bind`."""
        host = self._advertise_host or self._settings.host
        return f"{_bracket(host)}:{self._settings.advertise_port or self._port}"

    @property
    def ready(self) -> bool:
        return self._ready

    def set_ready(self, ready: bool) -> None:
        """Report in health whether new work is accepted."""
        if ready != self._ready:
            self._ready = ready
            self._publish_soon()

    def set_part(self, name: str, well: bool) -> None:
        """Report in health the state of a part of the process that can fail on its own."""
        self._parts[name] = well
        self._publish_soon()

    def retire_connections(self) -> None:
        """Ask every client to open new calls on another connection (GOAWAY); no call is lost.

        The server still listens: connections made from now on are served, and not asked.
        """
        self._connections.retire()

    def stop_listening(self) -> None:
        """Accept no more connections; existing ones are retired. Idempotent."""
        if self._listener is not None:
            self._listener.close()
        self._connections.refuse_new()
        self._connections.retire()

    async def wait_left(self, seconds: float) -> None:
        """Wait up to `seconds` for every client to leave, after `stop_listening`."""
        await self._connections.wait_none(seconds)

    async def drain(self, grace: float) -> None:
        """Accept no new calls, let running ones end for `grace` seconds, then cancel them.

        A stream that lives as long as its client wants must be ended by its service; otherwise this
        takes the whole grace period.
        """
        self.set_ready(False)
        if self._publishing is not None:
            await self._publishing
        self._health.closing.set()
        if self._listener is None:
            if self._socket is not None:
                self._socket.close()
            return
        self._listener.close()
        self._connections.drain()
        try:
            async with asyncio.timeout(grace):
                await self._guard.idle.wait()
        except TimeoutError:
            stopping = BatonError(Reason.DRAINING, "this process is stopping", retry_after=1.0)
            self._connections.cancel_calls(stopping)
            await self._guard.idle.wait()
        await self._connections.close()

    def _cannot_listen(self) -> StartupError:
        settings = self._settings
        return StartupError(
            f"cannot bind grpc.port {_bracket(settings.host)}:{settings.port} (in use, or not an "
            "address of this machine): free the port, or set BATON_GRPC_PORT or --grpc-port to "
            "another (0: any free port)."
        )

    def _publish_soon(self) -> None:
        if self._publishing is None or self._publishing.done():
            self._publishing = asyncio.create_task(self._publish_all())

    async def _publish_all(self) -> None:
        published: tuple[bool, dict[str, bool]] | None = None
        while published != (self._ready, self._parts):
            published = (self._ready, dict(self._parts))
            await self._publish(self._ready)
            for name, well in published[1].items():
                await self._health.set(name, _SERVING if well else _NOT_SERVING)

    async def _publish(self, ready: bool) -> None:
        for service in ("", READINESS, *self._services):
            await self._health.set(service, _SERVING if ready else _NOT_SERVING)


def _bracket(host: str) -> str:
    return f"[{host}]" if ":" in host and not host.startswith("[") else host
