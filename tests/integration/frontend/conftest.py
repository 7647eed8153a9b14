"""A frontend in this process, and scripted doubles of what it speaks to."""

import asyncio
import secrets
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from baton.cluster.etcd.client import Etcd
from baton.cluster.members.registration import Registration
from baton.host.ports import held_port
from baton.internal.v1 import cluster_pb2, kvstore_pb2, router_pb2
from baton.rpc.channels import open_channel
from baton.rpc.protocol import PAUSE
from baton.rpc.server.server import Server
from baton.settings import GrpcSettings
from baton.v1.inference_pb2_grpc import InferenceServiceStub
from baton.worker.wire.tokenizer_files import TokenizerFiles
from tests.support.doubles.letters import CONTEXT, EOS, LAYOUT, MODEL, letter_id, said, write_model
from tests.support.doubles.router import ScriptedRouter
from tests.support.doubles.worker import ScriptedWorker
from tests.support.network.proxy import TcpProxy
from tests.support.services.service import NO_SETTINGS, LocalService, LocalServices
from tests.support.services.settings import Settings
from tests.support.wait import eventually


@dataclass
class Member:
    """A double in the cluster."""

    double: Any
    instance: cluster_pb2.Instance
    server: Server
    proxy: TcpProxy
    stack: AsyncExitStack

    @property
    def target(self) -> router_pb2.Target:
        return router_pb2.Target(
            instance_id=self.instance.id,
            incarnation=self.instance.incarnation,
            address=self.instance.address,
        )

    async def crash(self) -> None:
        """Its connections break; its record stays until its lease lapses."""
        await self.server.drain(0)


@dataclass
class Stage:
    """A cluster of doubles around one frontend. Everything in it ends with the test."""

    client: Etcd
    cluster: str
    services: LocalServices
    stack: AsyncExitStack
    model_dir: Path
    inexact_continuation: bool = False
    """Of workers that are added from now on."""
    adapters: Mapping[str, bytes] = field(default_factory=dict)
    """Digests by name, of workers that are added from now on."""
    features: tuple[str, ...] = ("logprobs", "penalties", "logit_bias", "min_p")
    """Of the engines of workers that are added from now on."""
    pauses: bool = True
    """Whether workers that are added from now on take Pause and Resume."""
    members: dict[str, Member] = field(default_factory=dict)
    frontend: LocalService = field(init=False)
    grpc_address: str = ""
    http_url: str = ""

    model = MODEL
    context = CONTEXT
    eos = EOS
    said = staticmethod(said)
    letter_id = staticmethod(letter_id)

    @property
    def router(self) -> ScriptedRouter:
        double = self.members["router"].double
        assert isinstance(double, ScriptedRouter)
        return double

    def worker(self, name: str) -> ScriptedWorker:
        double = self.members[name].double
        assert isinstance(double, ScriptedWorker)
        return double

    @property
    def workers(self) -> list[ScriptedWorker]:
        return [m.double for m in self.members.values() if isinstance(m.double, ScriptedWorker)]

    async def add(
        self,
        name: str,
        role: cluster_pb2.Role.ValueType,
        tokenizer: TokenizerFiles | None = None,
        model: str = MODEL,
    ) -> Member:
        """Start a double and register it; workers with the stage's tokenizer or another one."""
        worker = role != cluster_pb2.ROLE_ROUTER
        instance = cluster_pb2.Instance(
            id=name,
            incarnation=secrets.token_hex(4),
            role=role,
            model=model if worker else "",
            layout_id=LAYOUT if worker else b"",
        )
        double = ScriptedWorker(name) if worker else ScriptedRouter(instance.incarnation)
        tokenizer = tokenizer or TokenizerFiles.read(self.model_dir)
        if isinstance(double, ScriptedWorker):
            double.tokenizer = tokenizer
            instance.tokenizer_digest = tokenizer.digest
            instance.features.extend([PAUSE] if self.pauses else [])
            instance.inexact_continuation = self.inexact_continuation
            for adapter, digest in self.adapters.items():
                instance.adapters.add(name=adapter, digest=digest)
        stack = await self.stack.enter_async_context(AsyncExitStack())
        server = await stack.enter_async_context(
            Server(GrpcSettings(port=0), name, incarnation=instance.incarnation)
        )
        service = "WorkerService" if worker else "RouterService"
        server.add(double.register, f"baton.internal.v1.{service}")
        await server.start()
        proxy = await stack.enter_async_context(TcpProxy(server.address))
        instance.address = proxy.address
        card = cluster_pb2.ModelCard(
            name=model,
            weights_digest=b"W" * 16,
            layout_id=LAYOUT,
            block_tokens=16,
            block_bytes=4096,
            context_tokens=CONTEXT,
            vocab_tokens=257,
            eos_token_ids=[EOS],
            features=self.features,
            engine="torch",
            dtype="bfloat16",
            inexact_reason="it has AMX",
            tokenizer_digest=tokenizer.digest,
            tokenizer_bytes=tokenizer.size,
        )
        await stack.enter_async_context(
            Registration(self.client, self.cluster, instance, [card] if worker else [])
        )
        member = self.members[name] = Member(double, instance, server, proxy, stack)
        return member

    def place(self, decode: str, prefill: str | None = None) -> router_pb2.Placement:
        placement = router_pb2.Placement(
            decode=self.members[decode].target,
            sources=[kvstore_pb2.KvSource(store_id=f"store-of-{prefill}", address="127.0.0.1:1")],
            prediction=router_pb2.Prediction(cached_tokens=16, reason="scripted"),
        )
        if prefill is not None:
            placement.prefill.CopyFrom(self.members[prefill].target)
        return placement

    async def set(self, settings: Settings = NO_SETTINGS) -> None:
        """Add a router, prefill workers p0 and p1, decode workers d0 and d1, and a frontend.

        Requests are placed on p0 and d0, or on p1 and d1 where the first are excluded.
        """
        await self.add("router", cluster_pb2.ROLE_ROUTER)
        for name, role in (
            ("p0", cluster_pb2.ROLE_PREFILL),
            ("p1", cluster_pb2.ROLE_PREFILL),
            ("d0", cluster_pb2.ROLE_DECODE),
            ("d1", cluster_pb2.ROLE_DECODE),
        ):
            await self.add(name, role)

        def place(query: router_pb2.PlaceQuery) -> router_pb2.Placement:
            excluded = set(query.excluded_instances)
            decode = "d1" if "d0" in excluded else "d0"
            if query.output_tokens:
                return self.place(decode)
            return self.place(decode, "p1" if "p0" in excluded else "p0")

        self.router.place = place
        await self.start_frontend(settings)

    async def start_frontend(self, settings: Settings = NO_SETTINGS) -> None:
        """Start the frontend; it knows the doubles that were added before."""
        self.frontend = await self.services("frontend", settings, "frontend")
        self.grpc_address = self.frontend.address
        self.http_url = f"http://{self.frontend.instance.http_address}"

    async def begin_frontend(self, settings: Settings = NO_SETTINGS) -> None:
        """Let a frontend start; it serves at `http_url` once there is a model that can be asked."""
        port = self.stack.enter_context(held_port())
        self.http_url = f"http://127.0.0.1:{port}"
        self.frontend = self.services.make("frontend", {"http.port": port, **settings}, "frontend")
        starting = asyncio.create_task(self.frontend.start())
        self.stack.callback(starting.cancel)

    def stub(self) -> Any:
        """A gRPC client of the frontend."""
        channel = open_channel(self.grpc_address)
        self.stack.push_async_callback(channel.close, None)
        return InferenceServiceStub(channel)

    async def quiet(self, seconds: float = 1.0) -> None:
        """Wait until nobody holds anything of any request, at most `seconds`."""

        def nothing_held() -> bool:
            return not (any(worker.streams for worker in self.workers) or self.router.tickets)

        await eventually(nothing_held, seconds)


@pytest.fixture(scope="session")
def model_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_model(tmp_path_factory.mktemp("models") / "letters")


@pytest.fixture
async def empty_stage(
    etcd_client: Etcd, cluster: str, start_service: LocalServices, model_dir: Path
) -> AsyncIterator[Stage]:
    """A cluster with nobody in it."""
    async with AsyncExitStack() as stack:
        yield Stage(etcd_client, cluster, start_service, stack, model_dir)


@pytest.fixture
async def stage(empty_stage: Stage) -> Stage:
    """A stage that was set."""
    await empty_stage.set()
    return empty_stage
