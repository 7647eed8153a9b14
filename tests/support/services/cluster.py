"""Whole clusters in the test's own process: every service, composed in one event loop."""

import asyncio
import itertools
import secrets
from collections.abc import Callable, Mapping
from contextlib import AsyncExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any
from unittest.mock import patch

import grpc

from baton.client import AsyncClient, channels
from baton.cluster.etcd.client import Etcd
from baton.internal.v1 import kvstore_pb2, kvstore_pb2_grpc, worker_pb2, worker_pb2_grpc
from baton.rpc.channels import OPTIONS, open_channel
from baton.telemetry.scope import TelemetryScope
from tests.support.clock import within
from tests.support.engine.model import MODEL
from tests.support.processes.launcher import Launcher
from tests.support.processes.process import ServiceProcess, ServiceSpawner
from tests.support.services.baseline import wait_baseline
from tests.support.services.service import NO_SETTINGS, LocalService, LocalServices
from tests.support.services.settings import Settings, environment

MIB = 1024 * 1024
READY_SECONDS = 30.0
Service = LocalService | ServiceProcess


def patient_client(address: str, **options: Any) -> AsyncClient:
    """Return a client of a frontend in this process that tolerates a late event loop.

    gRPC's own threads send its pings and count seconds; the shared loop answers them.
    """
    patient = [
        (name, 600_000 if "keepalive" in name or "ping_timeout" in name else value)
        for name, value in channels.CHANNEL_OPTIONS
    ]
    with patch.object(channels, "CHANNEL_OPTIONS", patient):
        return AsyncClient(address, **{"timeout": 60, **options})


@dataclass(frozen=True)
class Shape:
    """The services of a cluster: one router, one frontend and these."""

    prefill: int = 1
    decode: int = 1
    combined: int = 0
    engine: str = "sim"
    family: str = "llama"
    """Family of the random checkpoint that is served."""
    model: Path | None = None
    """A checkpoint to serve instead."""
    far: bool = False
    """Whether decode workers have their own store and share no memory with prefill workers."""
    processes: tuple[str, ...] = ()
    """Instances that are processes of their own, for tests that kill them."""
    launchers: Mapping[str, Launcher] = field(default_factory=dict)
    """Launchers of the instances that run another version of Baton."""
    settings: Settings = field(default_factory=dict)
    """Settings of all services, by dotted names."""
    certificates: Path | None = None
    """Directory of certificates of `baton certs`, with which the services use TLS among
    themselves."""

    @property
    def key(self) -> str:
        """Equal for equal shapes."""
        return repr((replace(self, settings={}), sorted(self.settings.items())))


class LocalCluster:
    """A running cluster. Services have ids: `prefill-0`, `kvstore-0`, `router-0`…

    It owns a directory that contains its stores' arenas and disks. Leaving the context stops all
    services at once.

    Args:
        endpoints: endpoints of an etcd, in which the cluster gets its own name.
        launcher: forks the services that are processes.
        directory: empty, and removed by the caller.
        models: random checkpoints by family.
    """

    def __init__(
        self,
        endpoints: tuple[str, ...],
        launcher: Launcher,
        directory: Path,
        models: Callable[[str], Path],
        shape: Shape,
    ) -> None:
        self.shape = shape
        self.name = f"test-{secrets.token_hex(6)}"
        self.services: dict[str, Service] = {}
        self.client: AsyncClient
        self.http: str
        """Base URL of the HTTP surface."""
        self._endpoints = endpoints
        self._launcher = launcher
        self._directory = directory
        self._model = shape.model or models(shape.family)
        self._stack = AsyncExitStack()
        self._channels: dict[str, grpc.aio.Channel] = {}
        self._spawners: dict[Launcher, ServiceSpawner] = {}
        self._scope = TelemetryScope("cluster", self.name)

    async def __aenter__(self) -> "LocalCluster":
        with self._scope.entered():  # its tasks are not those of a test
            return await self._started()

    async def _started(self) -> "LocalCluster":
        try:
            self.etcd = await self._stack.enter_async_context(Etcd(self._endpoints))
            self._local = LocalServices(self.etcd, self.name, self._directory)
            self._stack.push_async_callback(self._local.close)
            shape = self.shape
            ids = ["kvstore-0", *(["kvstore-1"] if shape.far else []), "router-0"]
            for pool in ("prefill", "decode", "combined"):
                ids += [f"{pool}-{number}" for number in range(getattr(shape, pool))]
            await asyncio.gather(*map(self.start, [*ids, "frontend-0"]))
            self.client = await self._stack.enter_async_context(
                patient_client(self.frontend.address)
            )
            self.http = f"http://{self.frontend.instance.http_address}"
            await self._wait_routed()
        except BaseException:
            await self._stack.aclose()
            raise
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._stack.aclose()

    def __getitem__(self, instance_id: str) -> Service:
        return self.services[instance_id]

    @property
    def frontend(self) -> Service:
        return self.services["frontend-0"]

    @property
    def router(self) -> Service:
        return self.services["router-0"]

    @property
    def kvstore(self) -> Service:
        return self.services["kvstore-0"]

    @property
    def stores(self) -> list[Service]:
        return self._named("kvstore")

    @property
    def prefills(self) -> list[Service]:
        return self._named("prefill")

    @property
    def decodes(self) -> list[Service]:
        return self._named("decode")

    @property
    def workers(self) -> list[Service]:
        return [*self.prefills, *self.decodes, *self._named("combined")]

    def directory_of(self, instance_id: str) -> Path:
        """Return the directory of a store's arena and disk, and of its workers."""
        away = self.shape.far and instance_id.startswith(("decode", "kvstore-1"))
        path = self._directory / ("kvstore-1" if away else "kvstore-0")
        path.mkdir(exist_ok=True)
        return path

    async def start(
        self,
        instance_id: str,
        settings: Settings = NO_SETTINGS,
        launcher: Launcher | None = None,
    ) -> Service:
        """Start a service, new or stopped before, with settings in addition to the shape's.

        Args:
            instance_id: the service's id.
            settings: by dotted names.
            launcher: forks it instead of the shape's launcher.
        """
        name = instance_id.rpartition("-")[0]
        settings = {**self._settings_of(instance_id), **self.shape.settings, **settings}
        launcher = launcher or self.shape.launchers.get(instance_id)
        if launcher is None and instance_id in self.shape.processes:
            launcher = self._launcher
        if launcher is not None:
            spawn = self._spawner(launcher)
            service: Service = await spawn(name, environment(settings), instance_id)
        else:
            service = await self._local(name, settings, instance_id)
        self.services[instance_id] = service
        return service

    async def restart(self, *instance_ids: str) -> None:
        """Stop services in order and start them again with their ids: they keep no state."""
        for instance_id in instance_ids:
            assert await self.services[instance_id].stop() == 0
            await self.start(instance_id)

    async def empty_engines(self) -> None:
        """Restart all workers, so that only the stores keep KV."""
        await self.restart(*(worker.instance_id for worker in self.workers))

    async def load(self, worker: Service) -> worker_pb2.LoadReport:
        """Return a worker's own report."""
        stub = worker_pb2_grpc.WorkerServiceStub(self._channel(worker))
        call = stub.WatchLoad(worker_pb2.WatchLoadRequest(), timeout=READY_SECONDS)
        try:
            message = await call.read()
            assert isinstance(message, worker_pb2.WatchLoadResponse)
            return message.report
        finally:
            call.cancel()

    async def stat(self, store: Service | None = None) -> kvstore_pb2.StatResponse:
        """Return a store's own report, by default the first store's."""
        stub = kvstore_pb2_grpc.KvStoreServiceStub(self._channel(store or self.kvstore))
        return await stub.Stat(kvstore_pb2.StatRequest(), timeout=READY_SECONDS)

    async def computed_tokens(self) -> int:
        """Return the number of tokens in forward passes, as the engines count, over all workers."""
        loads = await asyncio.gather(*map(self.load, self.workers))
        return sum(load.computed_tokens for load in loads)

    async def at_baseline(self, seconds: float = 30.0) -> None:
        """Return once no request holds anything; raise AssertionError after `seconds`."""
        await wait_baseline(self, seconds)

    def _named(self, name: str) -> list[Service]:
        return [service for service in self.services.values() if service.name == name]

    def _spawner(self, launcher: Launcher) -> ServiceSpawner:
        if launcher not in self._spawners:
            spawner = ServiceSpawner(launcher, self.etcd, self.name, self._directory)
            self._spawners[launcher] = spawner
            self._stack.push_async_callback(spawner.close)
        return self._spawners[launcher]

    def _channel(self, service: Service) -> grpc.aio.Channel:
        address = service.address
        if address not in self._channels:
            channel = self._channels[address] = self._open_channel(address)
            self._stack.push_async_callback(channel.close, None)
        return self._channels[address]

    def _open_channel(self, address: str) -> grpc.aio.Channel:
        if self.shape.certificates is None:
            return open_channel(address)
        own = self.shape.certificates / "operator"
        ca, key, cert = ((own / name).read_bytes() for name in ("ca.crt", "tls.key", "tls.crt"))
        role = next(s.name for s in self.services.values() if s.address == address)
        name = ("grpc.ssl_target_name_override", f"{role}.baton")
        credentials = grpc.ssl_channel_credentials(ca, key, cert)
        return grpc.aio.secure_channel(address, credentials, [*OPTIONS, name])

    def _tls_of(self, role: str) -> dict[str, object]:
        if self.shape.certificates is None:
            return {}
        own = self.shape.certificates / ("decode" if role == "combined" else role)
        files = {"cert": "tls.crt", "key": "tls.key", "ca": "ca.crt"}
        paths: dict[str, object] = {f"tls.{part}": own / name for part, name in files.items()}
        return {**paths, "etcd.plaintext": True}

    def _settings_of(self, instance_id: str) -> dict[str, object]:
        directory = self.directory_of(instance_id)
        return {
            **self._tls_of(instance_id.rpartition("-")[0]),
            "placement.disaggregation": "always",
            "engine.kind": self.shape.engine,
            "engine.model": self._model,
            "engine.model_name": MODEL,
            "engine.threads": 1,
            "engine.kv_bytes": 64 * MIB,
            "kv.store_id": directory.name,
            "kv.connect_seconds": READY_SECONDS,
            "store.arena_dir": directory,
            "store.arena_bytes": 64 * MIB,
            "store.disk_path": directory / "kv.disk",
        }

    async def _wait_routed(self) -> None:
        """Wait until the router knows the load of every pool, after requests have run on it."""
        apart = self.shape.settings.get("placement.disaggregation", "always") == "always"
        layouts = {worker.instance.layout_id for worker in self.decodes} if apart else set()
        pool = {one.instance_id for one in self.prefills if one.instance.layout_id in layouts}
        async with within(READY_SECONDS):
            while not await self.client.models():
                await asyncio.sleep(0.02)
            for number in itertools.count(3):
                stream = self.client.generate(
                    [number] * 3, model=MODEL, max_tokens=2, ignore_eos=True
                )
                steps = (await stream.answer()).steps
                if not pool or pool & {step.instance for step in steps if step.name == "prefill"}:
                    return
