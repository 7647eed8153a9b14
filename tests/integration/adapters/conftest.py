"""A cluster of torch workers to which adapters are added, and the tokens that they must yield."""

import asyncio
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest

from baton.client import AsyncClient
from baton.cluster.etcd.client import Etcd
from baton.engine.local import run_local
from baton.engine.testing.random_adapter import write_random_adapter
from baton.internal.v1 import worker_pb2, worker_pb2_grpc
from baton.models.adapters.register import register
from baton.rpc.channels import open_channel
from baton.tenancy.admin.adapters import AdapterAdministration
from tests.support.engine.contract import params, request
from tests.support.engine.lora import LAYERS, make_engine, merge
from tests.support.engine.model import prompt_of
from tests.support.wait import eventually

TORCH = {
    "engine.kind": "torch",
    "engine.native": "off",
    "engine.dtype": "float64",
    "engine.threads": 1,
    "engine.self_check": False,
    "engine.kv_bytes": 16 * 1024 * 1024,
    "engine.adapter_slots": 2,
    "engine.model_name": "base",
    "kv.store_id": "store",
    "kv.connect_seconds": 30,
    "store.arena_bytes": 16 * 1024 * 1024,
}


class AdapterCluster:
    """A store, a router, a frontend and workers: `prefill-0`, `decode-0`."""

    def __init__(self, start_service: Any, etcd: Etcd, cluster: str, model: Path, at: Path) -> None:
        self._start = start_service
        cache = {"engine.adapter_cache": at / "adapter-cache"}
        self.settings = {**TORCH, **cache, "engine.model": model}
        self.admin = AdapterAdministration(etcd, cluster)
        self.model = model
        self.at = at
        self.services: dict[str, Any] = {}
        self.client: AsyncClient

    async def start(self) -> None:
        """Start all."""
        await self.add_service("kvstore", "store")
        await self.add_service("router", "router")
        workers = (("prefill", "prefill-0"), ("decode", "decode-0"))
        await asyncio.gather(*(self.add_service(*one) for one in workers))
        frontend = await self.add_service("frontend", "frontend")
        self.client = AsyncClient(frontend.address, timeout=60)

    async def add_service(self, name: str, instance_id: str) -> Any:
        """Start a service."""
        service = await self._start(name, self.settings, instance_id)
        self.services[instance_id] = service
        return service

    def write(self, name: str, seed: int = 0, **options: Any) -> Path:
        """Write an adapter of all layers."""
        path = self.at / name
        return write_random_adapter(path, self.model, seed, modules=LAYERS, **options)

    async def add(self, name: str, path: Path, *, replace: bool = False) -> None:
        """Register an adapter and wait until it is served."""
        record = await register(self.admin, name, "base", str(path), replace=replace)
        await self.served(name, record.digest)

    async def served(self, name: str, digest: str, workers: int = 0) -> None:
        """Wait until so many workers serve an adapter, by default all, and the frontend knows."""
        count = workers or sum("code" in one or "fill" in one for one in self.services)

        async def known() -> bool:
            serving = await self.admin.serving()
            listed = {adapter for one in await self.client.models() for adapter in one.adapters}
            return serving.get((name, digest)) == count and name in listed

        await eventually(known)

    async def load(self, worker: str) -> worker_pb2.LoadReport:
        """Return a worker's load."""
        channel = open_channel(self.services[worker].address)
        call = worker_pb2_grpc.WorkerServiceStub(channel).WatchLoad(worker_pb2.WatchLoadRequest())
        try:
            message = await call.read()
            assert isinstance(message, worker_pb2.WatchLoadResponse)
            return message.report
        finally:
            call.cancel()
            await channel.close()

    async def ask(self, seed: int, tokens: int = 8, **options: Any) -> list[int]:
        """Return the tokens of an answer to a prompt of its own."""
        options = {"model": "base", "temperature": 0, "ignore_eos": True, **options}
        stream = self.client.generate(prompt_of(40, seed), max_tokens=tokens, **options)
        answer = await stream.answer()
        return list(answer.token_ids)

    def expected(self, seed: int, tokens: int = 8, adapter: Path | None = None) -> list[int]:
        """Return the tokens of the model alone, with an adapter merged into its weights."""
        model = self.model
        if adapter is not None:
            merged = self.at / f"merged-{adapter.name}"
            model = merged if merged.exists() else merge(model, adapter, merged)
        engine = make_engine(model)
        try:
            prompt, sampling = tuple(prompt_of(40, seed)), params(max_tokens=tokens)
            (output,) = run_local(engine, [request(1, prompt, sampling=sampling)])
            return output.tokens[0]
        finally:
            engine.close_engine()


@pytest.fixture
async def adapted(
    start_service: Any,
    etcd_client: Etcd,
    cluster: str,
    random_model: Callable[..., Path],
    tmp_path: Path,
) -> AsyncIterator[AdapterCluster]:
    """A running cluster."""
    made = AdapterCluster(start_service, etcd_client, cluster, random_model(), tmp_path)
    await made.start()
    yield made
    await made.client.close()
