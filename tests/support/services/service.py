"""A service composed in the test's own process: real sockets and a record in etcd, no process."""

import asyncio
import itertools
import secrets
from collections.abc import Mapping
from contextlib import AsyncExitStack, suppress
from pathlib import Path
from types import MappingProxyType
from typing import Any

from baton.cluster import keys
from baton.cluster.etcd.client import Etcd, EtcdError
from baton.internal.v1.cluster_pb2 import Instance
from baton.process.lifecycle import Compose
from baton.process.process import Process
from baton.settings import (
    DecodeSettings,
    FrontendSettings,
    KvStoreSettings,
    PickerSettings,
    PrefillSettings,
    ProcessSettings,
    RouterSettings,
    WorkerSettings,
)
from baton.telemetry import metrics, tracing
from baton.telemetry.scope import TelemetryScope
from baton.worker.app import compose as compose_worker
from bench.harness.metrics import parse_metrics
from services.frontend.app import compose as compose_frontend
from services.kvstore.app import compose as compose_kvstore
from services.picker.app import compose as compose_picker
from services.router.app import compose as compose_router
from tests.support.clock import within
from tests.support.services.settings import Settings, parse
from tests.support.wait import eventually

KINDS: Mapping[str, tuple[type[ProcessSettings], Compose[Any]]] = {
    "frontend": (FrontendSettings, compose_frontend),
    "router": (RouterSettings, compose_router),
    "kvstore": (KvStoreSettings, compose_kvstore),
    "prefill": (PrefillSettings, compose_worker),
    "decode": (DecodeSettings, compose_worker),
    "combined": (WorkerSettings, compose_worker),
    "picker": (PickerSettings, compose_picker),
}
READY_SECONDS = 30.0
STOP_SECONDS = 15.0
NO_SETTINGS: Settings = MappingProxyType({})


class LocalService:
    """One service in this process's event loop, from `start` to `stop`.

    Its life cycle is that of `baton.process.lifecycle.main`, without signals: compose, serve,
    drain, unwind. It has its own logs, metrics and spans. If a part fails, the service ends;
    `failure` is the reason.

    Args:
        name: a key of KINDS.
        settings: by dotted names, including `instance_id`.
        compose: composes it instead of the function in KINDS, with a double of one of its parts.
    """

    def __init__(self, name: str, settings: Settings, compose: Compose[Any] | None = None) -> None:
        settings_type, usual = KINDS[name]
        self._compose = compose or usual
        self._settings = parse(settings_type, settings)
        self.name = name
        self.instance_id = self._settings.instance_id
        self.instance = Instance()
        """Its registered record, once its cluster has read it."""
        self.scope = TelemetryScope(name, self.instance_id)
        self._process: Process | None = None
        self._up = asyncio.Event()
        self._draining = True
        self._task: asyncio.Task[None] | None = None

    @property
    def address(self) -> str:
        """The address of its gRPC server."""
        return self.instance.address

    @property
    def process(self) -> Process:
        assert self._process is not None, "it was not started"
        return self._process

    @property
    def running(self) -> bool:
        return self._task is not None and not self._task.done()

    @property
    def failure(self) -> str | None:
        """Why it ended; None if it did not fail."""
        return None if self._process is None else self._process.failure

    async def start(self) -> None:
        """Compose it; return once it serves.

        Raises:
            Exception: raised by its composition.
        """
        with self.scope.entered():
            self._task = asyncio.create_task(self._live(), name=self.instance_id)
        up = asyncio.create_task(self._up.wait())
        try:
            await asyncio.wait([self._task, up], return_when=asyncio.FIRST_COMPLETED)
        finally:
            up.cancel()
        if self._task.done():
            self._task.result()

    async def stop(self, *, drain: bool = True) -> int:
        """End it; return its process's exit code. Without `drain`, running requests are cut off."""
        if self._task is None or self._process is None:
            return 0
        self._draining = drain
        self.process.stopping.set()
        if not self._up.is_set():
            self._task.cancel()
            await asyncio.wait([self._task])
            return 0
        async with within(STOP_SECONDS):
            await self._task
        return 0 if self.failure is None else 1

    def sample(self, name: str, **labels: str) -> float:
        """Return the current value of one metric; 0 before its first use."""
        return self.scope.registry.get_sample_value(name, labels) or 0.0

    async def metrics(self) -> dict[str, float]:
        """Return its metrics by name with labels, as in /metrics."""
        with self.scope.entered():
            return parse_metrics(metrics.render()[0].decode())

    async def _live(self) -> None:
        settings, identity = self._settings, self.instance_id
        tracing.configure(self.name, settings.telemetry, identity)
        try:
            async with AsyncExitStack() as stack:
                incarnation, stopping = secrets.token_hex(8), asyncio.Event()
                self._process = Process(self.name, identity, incarnation, stack, stopping)
                await self._compose(self._process, settings)
                self._process.composed()
                self._up.set()
                await stopping.wait()
                if self._draining and self.failure is None:
                    await self._process.drain(settings.drain_seconds)
                await self._process.end_tasks()
        finally:
            await asyncio.to_thread(tracing.shutdown)


class LocalServices:
    """Starts services of one cluster in this process: `await start("decode", {...})`.

    Args:
        client: client of the cluster's etcd.
        cluster: the cluster's name there.
        directory: for arenas, unless the settings name another one.
    """

    def __init__(self, client: Etcd, cluster: str, directory: Path) -> None:
        self._client = client
        self._cluster = cluster
        self._directory = directory
        self._numbers = itertools.count()
        self.services: list[LocalService] = []

    async def __call__(
        self,
        name: str,
        settings: Settings = NO_SETTINGS,
        instance_id: str = "",
        compose: Compose[Any] | None = None,
    ) -> LocalService:
        """Start a service and return it once it serves and is registered.

        Args:
            name: frontend, router, prefill, decode, combined or kvstore.
            settings: by dotted names, beyond those that join the cluster.
            instance_id: the id of an earlier service to replace; empty: a new one.
            compose: as for `LocalService`.
        """
        service = self.make(name, settings, instance_id, compose)
        await service.start()
        key = keys.instance(self._cluster, service.instance_id)

        async def registered() -> bytes | None:
            # A machine that stalls for seconds loses its lease, and takes a new one.
            with suppress(EtcdError):
                return await self._client.get(key)
            return None

        service.instance = keys.decode(Instance, await eventually(registered))
        return service

    def make(
        self,
        name: str,
        settings: Settings = NO_SETTINGS,
        instance_id: str = "",
        compose: Compose[Any] | None = None,
    ) -> LocalService:
        """Return a service that is not started yet; arguments as for a call."""
        identity = instance_id or f"{name}-{next(self._numbers)}"
        joined = {
            "instance_id": identity,
            "grpc.port": 0,
            "http.port": 0,
            "etcd.endpoints": self._client.endpoints,
            "etcd.cluster": self._cluster,
            # The service is registered before it is used, however busy the machine is.
            "etcd.timeout_seconds": READY_SECONDS,
            "etcd.enter_seconds": READY_SECONDS,
            "store.arena_dir": self._directory,
        }
        if name == "frontend":
            joined["limits.drain_notice_seconds"] = 0  # there is no load balancer in front of it
        if name == "kvstore":
            joined["store.drain_quiet_seconds"] = 0
        service = LocalService(name, {**joined, **settings}, compose)
        self.services.append(service)
        return service

    async def close(self) -> None:
        """Stop all running services at once: none waits for another one's streams to end.

        Raises:
            AssertionError: some had failed before; the text names the reasons.
        """
        await asyncio.gather(*(service.stop(drain=False) for service in self.services))
        failures = {s.instance_id: s.failure for s in self.services if s.failure}
        assert not failures, f"died: {failures}"
