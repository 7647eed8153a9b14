"""Adapters and draws that no other worker repeats: what an engine says, through to clients."""

from collections.abc import AsyncIterator, Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from baton.client import Answer, AsyncClient
from baton.rpc.channels import open_channel
from baton.settings import EngineSettings, StartupError
from baton.v1 import common_pb2, inference_pb2
from baton.v1.inference_pb2_grpc import InferenceServiceStub
from baton.worker.app import compose
from tests.integration.worker.conftest import SIM
from tests.support.doubles.engine import AdaptedEngine, digest_of
from tests.support.engine.model import prompt_of
from tests.support.wait import eventually

OLD = {"sql": digest_of("sql"), "chat": digest_of("chat")}
NEW = {"sql": digest_of("sql", "2")}


class Rig:
    """A store, a router, a frontend, and workers with the double of an engine."""

    def __init__(self, start_service: Any, model: Path) -> None:
        self._start = start_service
        self._settings = {**SIM, "engine.model": model, "engine.model_name": "base"}
        self.engines: dict[str, AdaptedEngine] = {}
        self.client: AsyncClient
        self.address = ""

    async def start(self, adapters: Mapping[str, bytes], **info: object) -> None:
        await self._start("kvstore", SIM, "store")
        await self._start("router", SIM, "router")
        for role in ("prefill", "decode"):
            await self.add(f"{role}-0", adapters, **info)
        self.address = (await self._start("frontend", SIM, "frontend")).address
        self.client = AsyncClient(self.address)

    async def add(self, name: str, adapters: Mapping[str, bytes], **info: object) -> Any:
        """Start a worker, whose name begins with its role."""
        model_name = info.pop("model_name", "base")

        def make(settings: EngineSettings) -> AdaptedEngine:
            self.engines[name] = AdaptedEngine(settings, adapters=adapters, **info)
            return self.engines[name]

        settings = {**self._settings, "engine.model_name": model_name}
        role = name.partition("-")[0]
        return await self._start(role, settings, name, partial(compose, make_engine=make))

    async def ask(self, seed: int, **options: Any) -> Answer:
        """Ask for 4 tokens after a prompt of its own."""
        prompt = prompt_of(100, seed)
        stream = self.client.generate(prompt, max_tokens=4, **{"model": "base", **options})
        return await stream.answer()

    def served(self) -> dict[str, int]:
        """How many sequences each decode worker had."""
        return {name: len(one.asked) for name, one in self.engines.items() if "decode" in name}


@pytest.fixture
async def rig(start_service: Any, random_model: Callable[..., Path]) -> AsyncIterator[Rig]:
    rig = Rig(start_service, random_model())
    yield rig
    await rig.client.close()


async def test_each_adapter_reaches_the_engine_and_has_kv_of_its_own(rig: Rig) -> None:
    await rig.start(OLD)
    assert [one.adapters for one in await rig.client.models()] == [("chat", "sql")]
    cached = [
        (await rig.ask(1, **options)).usage.cached_tokens
        for options in ({}, {"adapter": "sql"}, {"model": "chat"}, {"model": "sql"}, {})
    ]
    assert cached == [0, 0, 0, 96, 96]
    for engine in rig.engines.values():
        assert {one.adapter for one in engine.asked} <= {"", "sql", "chat"}
    asked = [one.adapter for one in rig.engines["decode-0"].asked]
    assert asked == ["", "sql", "chat", "sql", ""]


async def test_the_class_of_a_request_reaches_the_engine_as_a_number(rig: Rig) -> None:
    await rig.start({})
    channel = open_channel(rig.address)
    try:
        for name in ("BATCH", "INTERACTIVE", "PREMIUM", "UNSPECIFIED"):
            request = inference_pb2.GenerateRequest(text="x")
            request.context.model = "base"
            request.context.priority = common_pb2.PriorityClass.Value(f"PRIORITY_CLASS_{name}")
            request.sampling.max_tokens = 2
            await InferenceServiceStub(channel).Generate(request).read()
            await eventually(lambda: len(rig.engines["decode-0"].asked) > 0)
            (asked,) = rig.engines["decode-0"].asked
            expected = {"BATCH": 2, "PREMIUM": 0}
            assert asked.order.priority_class == expected.get(name, 1)
            rig.engines["decode-0"].asked.clear()
    finally:
        await channel.close()


async def test_while_workers_are_replaced_each_request_keeps_to_one_version(rig: Rig) -> None:
    await rig.start(OLD)
    await rig.add("decode-1", NEW)
    for seed in range(6):
        await rig.ask(seed, adapter="sql")
    assert rig.served() == {"decode-0": 6, "decode-1": 0}, "on a tie, the one in use"
    await rig.add("decode-2", NEW)

    async def moved() -> bool:
        before = rig.served()["decode-0"]
        await rig.ask(0, adapter="sql")
        return rig.served()["decode-0"] == before

    await eventually(moved)
    before = rig.served()
    for seed in range(6):
        answer = await rig.ask(seed + 50, adapter="sql")
        assert "prefill" not in {s.name for s in answer.steps if s.instance == "prefill-0"}
    assert rig.served()["decode-0"] == before["decode-0"]
    assert (await rig.ask(99, adapter="chat")).adapter == "chat"
    assert rig.served()["decode-0"] == before["decode-0"] + 1, "the only one that has it"


async def test_an_engine_of_other_draws_is_told_to_clients(rig: Rig) -> None:
    await rig.start({}, exact_continuation=False)
    assert [one.exact_continuation for one in await rig.client.models()] == [False]
    assert not (await rig.ask(1)).exact_continuation
    assert (await rig.ask(1, temperature=0)).exact_continuation


async def test_a_worker_whose_names_mean_something_else_does_not_start(rig: Rig) -> None:
    await rig.start(OLD)
    for model_name, adapters, word in (
        ("x", {"x": b"1"}, "have the same name"),
        ("chat", {}, "model 'chat'"),
        ("other", {"base": b"1"}, "adapter 'base'"),
        ("other", {"sql": b"1"}, "adapter 'sql'"),
    ):
        with pytest.raises(StartupError, match=word):
            await rig.add("decode-9", adapters, model_name=model_name)
