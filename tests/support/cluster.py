"""Whole clusters in the test's own process: every service, composed in one event loop."""

import asyncio
import itertools
import secrets
from collections.abc import Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path

import grpc

from baton.client import AsyncClient
from baton.cluster.etcd import Etcd
from baton.internal.v1 import kvstore_pb2, kvstore_pb2_grpc, worker_pb2, worker_pb2_grpc
from baton.rpc.channels import open_channel
from baton.telemetry.scope import TelemetryScope
from tests.support.baseline import wait_baseline
from tests.support.model import MODEL
from tests.support.processes.launcher import Launcher
from tests.support.processes.process import ServiceProcess, ServiceSpawner
from tests.support.service import NO_SETTINGS, LocalService, LocalServices
from tests.support.settings import Settings, environment

MIB = 1024 * 1024
READY_SECONDS = 30.0
Service = LocalService | ServiceProcess


@dataclass(frozen=True)
class Shape:
    """What a cluster is made of: one router, one frontend and these."""

    prefill: int = 1
    decode: int = 1
    combined: int = 0
    engine: str = "sim"
    family: str = "llama"
    """Of the random checkpoint that is served."""
    model: Path | None = None
    """A checkpoint to serve instead."""
    far: bool = False
    """Decode workers have a store of their own and share no memory with prefill workers."""
    processes: tuple[str, ...] = ()
    """Instances that are processes of their own, for tests that kill them."""
    settings: Settings = field(default_factory=dict)
    """Of all services, by dotted names."""

    @property
    def key(self) -> str:
        """Equal for equal shapes."""
        return repr((replace(self, settings={}), sorted(self.settings.items())))


class LocalCluster:
    """A running cluster. Services are found by their ids: `prefill-0`, `kvstore-0`, `router-0`…

    It owns a directory: its stores' arenas and disks lie in there. Leaving the context stops all
    services at once.

    Args:
        endpoints: of an etcd, in which the cluster gets a name of its own.
        launcher: forks those services that are processes.
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
        self._scope = TelemetryScope("cluster", self.name)

    async def __aenter__(self) -> "LocalCluster":
        with self._scope.entered():  # its tasks are not those of a test
            return await self._started()

    async def _started(self) -> "LocalCluster":
        try:
            self.etcd = await self._stack.enter_async_context(Etcd(self._endpoints))
            self._spawner = ServiceSpawner(self._launcher, self.etcd, self.name, self._directory)
            self._stack.push_async_callback(self._spawner.close)
            self._local = LocalServices(self.etcd, self.name, self._directory)
            self._stack.push_async_callback(self._local.close)
            shape = self.shape
            ids = ["kvstore-0", *(["kvstore-1"] if shape.far else []), "router-0"]
            for pool in ("prefill", "decode", "combined"):
                ids += [f"{pool}-{number}" for number in range(getattr(shape, pool))]
            await asyncio.gather(*map(self.start, [*ids, "frontend-0"]))
            self.client = AsyncClient(self.frontend.address, timeout=60)
            self._stack.push_async_callback(self.client.close)
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
        """Where a store's arena and disk lie, and those of its workers."""
        away = self.shape.far and instance_id.startswith(("decode", "kvstore-1"))
        path = self._directory / ("kvstore-1" if away else "kvstore-0")
        path.mkdir(exist_ok=True)
        return path

    async def start(self, instance_id: str, settings: Settings = NO_SETTINGS) -> Service:
        """Start a service, also one that was stopped, with these settings beside the shape's."""
        name = instance_id.rpartition("-")[0]
        settings = {**self._settings_of(instance_id), **self.shape.settings, **settings}
        if instance_id in self.shape.processes:
            service: Service = await self._spawner(name, environment(settings), instance_id)
        else:
            service = await self._local(name, settings, instance_id)
        self.services[instance_id] = service
        return service

    async def restart(self, *instance_ids: str) -> None:
        """Stop services in order and start them again at their ids: they remember nothing."""
        for instance_id in instance_ids:
            assert await self.services[instance_id].stop() == 0
            await self.start(instance_id)

    async def empty_engines(self) -> None:
        """Restart all workers: only the stores remember."""
        await self.restart(*(worker.instance_id for worker in self.workers))

    async def load(self, worker: Service) -> worker_pb2.LoadReport:
        """Return a worker's own report."""
        stub = worker_pb2_grpc.WorkerServiceStub(self._channel(worker))
        call = stub.WatchLoad(worker_pb2.WatchLoadRequest(), timeout=5)
        try:
            message = await call.read()
            assert isinstance(message, worker_pb2.WatchLoadResponse)
            return message.report
        finally:
            call.cancel()

    async def stat(self, store: Service | None = None) -> kvstore_pb2.StatResponse:
        """Return a store's own report, the first one's by default."""
        stub = kvstore_pb2_grpc.KvStoreServiceStub(self._channel(store or self.kvstore))
        return await stub.Stat(kvstore_pb2.StatRequest(), timeout=5)

    async def computed_tokens(self) -> int:
        """Return the tokens through forward passes, counted in the engines, over all workers."""
        loads = await asyncio.gather(*map(self.load, self.workers))
        return sum(load.computed_tokens for load in loads)

    async def at_baseline(self, seconds: float = 30.0) -> None:
        """Return once nothing is held by any request; AssertionError after `seconds`."""
        await wait_baseline(self, seconds)

    def _named(self, name: str) -> list[Service]:
        return [service for service in self.services.values() if service.name == name]

    def _channel(self, service: Service) -> grpc.aio.Channel:
        address = service.address
        if address not in self._channels:
            channel = self._channels[address] = open_channel(address)
            self._stack.push_async_callback(channel.close, None)
        return self._channels[address]

    def _settings_of(self, instance_id: str) -> dict[str, object]:
        directory = self.directory_of(instance_id)
        return {
            "placement.disaggregation": "always",
            "engine.kind": self.shape.engine,
            "engine.model": self._model,
            "engine.model_name": MODEL,
            "engine.threads": 1,
            "engine.kv_bytes": 64 * MIB,
            "kv.store_id": directory.name,
            "store.arena_dir": directory,
            "store.arena_bytes": 64 * MIB,
            "store.disk_path": directory / "kv.disk",
        }

    async def _wait_routed(self) -> None:
        """Wait until the router knows every pool's load: requests went through them."""
        apart = self.shape.settings.get("placement.disaggregation", "always") == "always"
        pool = {worker.instance_id for worker in self.prefills} if apart else set()
        async with asyncio.timeout(READY_SECONDS):
            while not await self.client.models():
                await asyncio.sleep(0.02)
            for number in itertools.count(3):
                stream = self.client.generate(
                    [number] * 3, model=MODEL, max_tokens=2, ignore_eos=True
                )
                steps = (await stream.answer()).steps
                if not pool or pool & {step.instance for step in steps if step.name == "prefill"}:
                    return
