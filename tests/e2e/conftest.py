"""Whole clusters of real processes."""

import asyncio
import itertools
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import httpx
import pytest

from baton.client import AsyncClient
from baton.engine.base import SequenceRequest
from baton.engine.factory import create_engine
from baton.engine.local import run_local
from baton.engine.testing.random_checkpoint import write_random_checkpoint
from baton.internal.v1 import kvstore_pb2, kvstore_pb2_grpc, worker_pb2, worker_pb2_grpc
from baton.kv.keys import chain_root
from baton.rpc.channels import open_channel
from baton.sampling import SamplingParams
from baton.settings import EngineSettings
from tests.support.process import ServiceProcess as Service
from tests.support.process import ServiceSpawner

MODEL = "tiny"
OUTPUT_TOKENS = 24
READY_SECONDS = 30


@dataclass
class Cluster:
    """A cluster under test, and what its processes say of themselves."""

    kvstore: Service
    router: Service
    prefills: list[Service]
    decodes: list[Service]
    frontend: Service
    arena_dir: Path
    client: AsyncClient
    http: str
    """Base URL of the HTTP surface."""
    far_kvstore: Service | None
    """The decode workers' store where they share no memory with the prefill workers."""
    spawn: Callable[..., Awaitable[Service]] = field(repr=False, default=None)

    @property
    def workers(self) -> list[Service]:
        return [*self.prefills, *self.decodes]

    async def load(self, worker: Service) -> worker_pb2.LoadReport:
        """A worker's own report."""
        async with open_channel(worker.address) as channel:
            stub = worker_pb2_grpc.WorkerServiceStub(channel)
            call = stub.WatchLoad(worker_pb2.WatchLoadRequest(), timeout=5)
            try:
                message = await call.read()
                assert isinstance(message, worker_pb2.WatchLoadResponse)
                return message.report
            finally:
                call.cancel()

    async def stat(self) -> kvstore_pb2.StatResponse:
        """The store's own report."""
        async with open_channel(self.kvstore.address) as channel:
            stub = kvstore_pb2_grpc.KvStoreServiceStub(channel)
            return await stub.Stat(kvstore_pb2.StatRequest(), timeout=5)

    async def metrics(self, service: Service) -> dict[str, float]:
        """What a process shows at /metrics, by name with labels."""
        async with httpx.AsyncClient() as http:
            text = (await http.get(f"http://{service.instance.http_address}/metrics")).text
        samples = (line.rsplit(" ", 1) for line in text.splitlines() if line[:1] != "#")
        return {name: float(value) for name, value in samples}

    async def computed_tokens(self) -> int:
        """Tokens through forward passes, counted in the engines, over all workers."""
        loads = await asyncio.gather(*(self.load(worker) for worker in self.workers))
        return sum(load.computed_tokens for load in loads)

    async def held(self) -> dict[str, int]:
        """Everything that requests can hold, by name; all 0 when there are none."""
        loads = await asyncio.gather(*(self.load(worker) for worker in self.workers))
        stat = await self.stat()
        front = await self.metrics(self.frontend) if self.frontend.running else {}
        return {
            "gRPC handlers": sum(
                int(value)
                for name, value in front.items()
                if name.startswith("baton_rpc_calls") and "InferenceService" in name
            ),
            "requests": int(front.get("baton_frontend_requests_active", 0)),
            "streams": sum(load.streams for load in loads),
            "running": sum(load.running for load in loads),
            "waiting": sum(load.waiting for load in loads),
            "pages": sum(load.total_pages - load.free_pages for load in loads),
            "tickets": sum(len(load.tickets) for load in loads),
            "worker leases": sum(load.leases for load in loads),
            "worker reservations": sum(load.reservations for load in loads),
            "store leases": stat.leases,
            "store reservations": stat.reservations,
            "store waiters": stat.waiters,
            "store quarantined": stat.quarantined,
        }

    async def at_baseline(self, seconds: float = 1.0) -> None:
        """Return once nothing is held; fails if something still is after `seconds`."""
        held: dict[str, int] = {}
        try:
            async with asyncio.timeout(seconds):
                while any((held := await self.held()).values()):
                    await asyncio.sleep(0.05)
        except TimeoutError:
            raise AssertionError(f"still held: {held}") from None


StartCluster = Callable[..., Awaitable[Cluster]]


@pytest.fixture(scope="session")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """Random checkpoints by family, written once."""
    written: dict[str, Path] = {}

    def get(family: str) -> Path:
        if family not in written:
            written[family] = tmp_path_factory.mktemp(family) / MODEL
            write_random_checkpoint(written[family], family=family, seed=7)
        return written[family]

    return get


@pytest.fixture(scope="session")
def reference(checkpoint):
    """Tokens per choice from one engine in this process, by family."""
    engines = {}

    def run(family, prompts, sampling, n=1):
        if family not in engines:
            settings = EngineSettings(model=checkpoint(family), dtype="float64", threads=1)
            engines[family] = create_engine(settings)
        engine = engines[family]
        engine.evict_blocks()
        root = chain_root(MODEL, engine.info.weights_digest, engine.info.layout.layout_id, b"", b"")
        params = SamplingParams(**sampling, max_tokens=OUTPUT_TOKENS, ignore_eos=True)
        requests = [
            SequenceRequest(i * n + choice, root, prompt, params, (choice,))
            for i, prompt in enumerate(prompts)
            for choice in range(n)
        ]
        outputs = run_local(engine, requests)
        return [
            [tuple(outputs[i * n + choice].tokens[choice]) for choice in range(n)]
            for i in range(len(prompts))
        ]

    return run


@pytest.fixture
async def start_cluster(
    spawn_service: ServiceSpawner, tmp_path: Path, checkpoint: Callable[[str], Path]
) -> AsyncIterator[StartCluster]:
    """Starts a cluster: `await start_cluster(engine="sim", prefill=1, decode=1, env={...})`.

    With `far=True` the decode workers have a store of their own, as on another host.
    """
    clients: list[AsyncClient] = []

    async def start(
        engine: str = "sim",
        family: str = "llama",
        prefill: int = 1,
        decode: int = 1,
        env: Mapping[str, str] = {},
        far: bool = False,
    ) -> Cluster:
        model = checkpoint(family)
        settings = {
            "BATON_ENGINE_KIND": engine,
            "BATON_ENGINE_MODEL": str(model),
            "BATON_ENGINE_THREADS": "1",
            "BATON_ENGINE_KV_BYTES": "256MiB",
            "BATON_MODELS": str(model),
            "BATON_KV_STORE_ID": "kvstore-0",
            "BATON_KV_ARENA_DIR": str(tmp_path),
            "BATON_KV_ARENA_BYTES": "256MiB",
            "BATON_KV_DISK_PATH": str(tmp_path / "kv.disk"),
            "BATON_DISAGGREGATION": "always",
            **env,
        }
        elsewhere = tmp_path / "elsewhere"
        elsewhere.mkdir()
        there = {
            "BATON_KV_STORE_ID": "kvstore-1",
            "BATON_KV_ARENA_DIR": str(elsewhere),
            "BATON_KV_DISK_PATH": str(elsewhere / "kv.disk"),
        }
        named = [
            *(("prefill", f"prefill-{i}", {}) for i in range(prefill)),
            *(("decode", f"decode-{i}", there if far else {}) for i in range(decode)),
            ("kvstore", "kvstore-0", {}),
            ("router", "router-0", {}),
            ("frontend", "frontend-0", {}),
            *([("kvstore", "kvstore-1", there)] if far else []),
        ]
        services = await asyncio.gather(
            *(
                spawn_service(name, {**settings, **more}, instance_id=identity)
                for name, identity, more in named
            )
        )
        kvstore, router, frontend = services[prefill + decode :][:3]
        client = AsyncClient(frontend.address, timeout=60)
        clients.append(client)
        own = {identity: more for _, identity, more in named}
        cluster = Cluster(
            kvstore,
            router,
            list(services[:prefill]),
            list(services[prefill : prefill + decode]),
            frontend,
            tmp_path,
            client,
            f"http://{frontend.instance.http_address}",
            services[-1] if far else None,
            lambda name, identity, **more: spawn_service(
                name, {**settings, **own.get(identity, {}), **more}, instance_id=identity
            ),
        )
        await _settled(cluster, apart=settings["BATON_DISAGGREGATION"] == "always")
        return cluster

    yield start
    for client in clients:
        await client.close()


async def _settled(cluster: Cluster, *, apart: bool) -> None:
    """Until the router knows every worker's load: a request went through, both pools if `apart`."""
    pool = {worker.instance_id for worker in cluster.prefills}
    async with asyncio.timeout(READY_SECONDS):
        while not await cluster.client.models():
            await asyncio.sleep(0.05)
        for number in itertools.count(3):
            stream = cluster.client.generate(
                [number] * 3, model=MODEL, max_tokens=2, ignore_eos=True
            )
            steps = (await stream.answer()).steps
            if not (pool and apart) or pool & {s.instance for s in steps if s.name == "prefill"}:
                return


async def empty_engines(cluster: Cluster) -> None:
    """Restart the workers: only the store remembers."""
    for i, worker in enumerate(cluster.workers):
        assert await worker.stop() == 0
        fresh = await cluster.spawn(worker.name, worker.instance_id)
        if i < len(cluster.prefills):
            cluster.prefills[i] = fresh
        else:
            cluster.decodes[i - len(cluster.prefills)] = fresh
