"""A process's gRPC server: health, reflection, keepalive, limits."""

import asyncio
from collections.abc import Callable
from typing import Any

import grpc
from grpc_health.v1 import health, health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection

from baton.rpc.interceptor import CallInterceptor, OnCallEnd
from baton.settings import GrpcSettings, StartupError
from baton.telemetry.logs import get_logger

log = get_logger(__name__)

LIVENESS = "liveness"
READINESS = "readiness"
INCARNATION_KEY = "baton-incarnation"
"""Trailing metadata of health checks: the incarnation of the process that answers."""
_WILDCARDS = ("0.0.0.0", "::", "[::]", "*")
_SERVING = health_pb2.HealthCheckResponse.SERVING
_NOT_SERVING = health_pb2.HealthCheckResponse.NOT_SERVING


class _Health(health.aio.HealthServicer):  # type: ignore[misc,name-defined]  # not in the stubs
    """Health that also says which process answers: an address may have a new owner."""

    def __init__(self, incarnation: str) -> None:
        super().__init__()
        self.closing = asyncio.Event()
        """Set when the server drains: watches end, which by themselves never would."""
        self._metadata = ((INCARNATION_KEY, incarnation),)

    async def Check(self, request: health_pb2.HealthCheckRequest, context: Any) -> Any:  # noqa: N802
        context.set_trailing_metadata(self._metadata)
        return await super().Check(request, context)

    async def Watch(self, request: health_pb2.HealthCheckRequest, context: Any) -> None:  # noqa: N802
        watching = asyncio.ensure_future(super().Watch(request, context))
        closing = asyncio.ensure_future(self.closing.wait())
        try:
            await asyncio.wait((watching, closing), return_when=asyncio.FIRST_COMPLETED)
            if watching.done():
                await watching
        finally:
            watching.cancel()
            closing.cancel()
            await asyncio.wait((watching, closing))


class Server:
    """A grpc.aio server with what every process of Baton has.

    Health (grpc.health.v1): `liveness` is SERVING from `start` to the end; `""`, `readiness` and
    each added service follow `set_ready`. Leaving the context cancels the calls that are left.

    Args:
        settings: where to listen, and limits.
        name: of the process, for people.
        advertise_host: the host of `address`; empty: the host it listens on.
        incarnation: `Process.incarnation`, for discovery to know this process by. With an empty
            one it takes any process that answers at the address for this one.
        on_call_end: called once for each call that ends, refused ones too.
    """

    def __init__(
        self,
        settings: GrpcSettings,
        name: str,
        advertise_host: str = "",
        incarnation: str = "",
        on_call_end: OnCallEnd | None = None,
    ) -> None:
        self._settings = settings
        self._name = name
        self._advertise_host = advertise_host
        self._health = _Health(incarnation)
        self._services: list[str] = []
        self._ready = False
        self._parts: dict[str, bool] = {}
        self._publishing: asyncio.Task[None] | None = None
        self._port = 0
        self._server = grpc.aio.server(
            interceptors=[
                CallInterceptor(settings.max_concurrent, settings.max_message_bytes, on_call_end)
            ],
            options=server_options(settings),
        )

    async def __aenter__(self) -> "Server":
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.drain(0)

    def add(self, register: Callable[[grpc.aio.Server], None], service_full_name: str) -> None:
        """Serve a service; before `start`.

        Args:
            register: adds the servicer, for example
                `lambda server: add_RouterServiceServicer_to_server(servicer, server)`.
            service_full_name: for health and reflection, for example `grpc.health.v1.Health`.
        """
        register(self._server)
        self._services.append(service_full_name)

    async def start(self) -> None:
        """Listen and serve; not ready yet.

        Raises:
            StartupError: the port is taken, or the address is not one of this machine's.
        """
        host = self._settings.host
        if host in _WILDCARDS and not self._advertise_host:
            raise StartupError(
                f"grpc.host is {host!r}, which others cannot call: set BATON_ADVERTISE_HOST or "
                "--advertise-host to a host that they reach this process at."
            )
        await self._publish(False)
        await self._health.set(LIVENESS, _SERVING)
        health_pb2_grpc.add_HealthServicer_to_server(self._health, self._server)
        if self._settings.reflection:
            names = [*self._services, health.SERVICE_NAME, reflection.SERVICE_NAME]
            reflection.enable_server_reflection(names, self._server)
        where = f"{_bracket(host)}:{self._settings.port}"
        try:
            self._port = self._server.add_insecure_port(where)
        except RuntimeError as error:
            raise StartupError(
                f"grpc.port {where} cannot be listened on (in use, or not an address of this "
                "machine): stop what uses it, or set BATON_GRPC_PORT or --grpc-port to another; "
                "0 takes a free one."
            ) from error
        await self._server.start()
        log.info("grpc server started", address=self.address, process=self._name)

    @property
    def address(self) -> str:
        """`host:port` for others to call; after `start`."""
        return f"{_bracket(self._advertise_host or self._settings.host)}:{self._port}"

    @property
    def ready(self) -> bool:
        return self._ready

    def set_ready(self, ready: bool) -> None:
        """Say in health whether new work is welcome."""
        if ready != self._ready:
            self._ready = ready
            self._publish_soon()

    def set_part(self, name: str, well: bool) -> None:
        """Say in health how a part of the process is that can fail without the process doing so."""
        self._parts[name] = well
        self._publish_soon()

    async def drain(self, grace: float) -> None:
        """Take no new call, let running ones end for `grace` seconds, then cancel them.

        A stream that lives as long as its client wants must be ended by its own service, or it
        holds this up for the whole grace.
        """
        self.set_ready(False)
        if self._publishing is not None:
            await self._publishing
        self._health.closing.set()
        await self._server.stop(grace)

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


def server_options(settings: GrpcSettings) -> list[tuple[str, int]]:
    return [
        # Unless it is wanted, a second process on the same port is an error.
        ("grpc.so_reuseport", int(settings.reuse_port)),
        ("grpc.max_receive_message_length", settings.max_message_bytes),
        ("grpc.max_send_message_length", -1),  # the receiver's limit counts
        ("grpc.keepalive_time_ms", round(settings.keepalive_seconds * 1000)),
        ("grpc.keepalive_timeout_ms", round(settings.keepalive_timeout_seconds * 1000)),
        ("grpc.keepalive_permit_without_calls", 1),
        ("grpc.http2.max_pings_without_data", 0),
        ("grpc.http2.min_ping_interval_without_data_ms", 5_000),
    ]
