"""Envoy itself asks the picker, for frontends of a cluster that computes: `make interop-envoy`."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import httpx
import pytest

from baton.host.ports import held_port
from tests.integration.picker import envoy
from tests.support.clock import DEADLINE_SECONDS
from tests.support.engine.model import MODEL, TRAINED
from tests.support.services.service import LocalService, LocalServices
from tests.support.wait import eventually

pytestmark = pytest.mark.envoy

SIM = {
    "engine.kind": "sim",
    "engine.model": TRAINED,
    "engine.model_name": MODEL,
    "engine.sim_prefill_tokens_per_second": 1_000_000,
    "kv.connect_seconds": 0,
}
COMPLETION = {"model": MODEL, "prompt": "hello " * 200, "max_tokens": 8, "ignore_eos": True}


class Setup:
    """A gateway, its picker, and two frontends."""

    def __init__(
        self, client: httpx.AsyncClient, picker: LocalService, frontends: list[LocalService]
    ) -> None:
        self.client = client
        self.picker = picker
        self.frontends = frontends

    def served(self) -> list[float]:
        """The number of completions of each frontend."""
        name = "baton_frontend_requests_total"
        return [
            sum(
                sample.value
                for metric in one.scope.registry.collect()
                for sample in metric.samples
                if sample.name == name
            )
            for one in self.frontends
        ]


@pytest.fixture(
    params=[
        ("FULL_DUPLEX_STREAMED", "metadata"),
        ("FULL_DUPLEX_STREAMED", "header"),
        ("BUFFERED", "metadata"),
        ("BUFFERED", "header"),
    ],
    ids=lambda param: "-".join(param),
)
async def gateway(
    request: pytest.FixtureRequest, start_service: LocalServices, tmp_path: Path
) -> AsyncIterator[Setup]:
    mode, source = request.param
    await start_service("router")
    await start_service("combined", SIM)
    frontends = [await start_service("frontend") for _ in range(2)]
    with held_port() as port, held_port() as admin, held_port() as grpc:
        picker = start_service.make("picker", {"grpc.port": grpc, "picking.outlook_seconds": 0.01})
        await picker.start()
        config = envoy.configuration(
            port,
            admin,
            f"127.0.0.1:{grpc}",
            [one.instance.http_address for one in frontends],
            mode,
            source,
        )
        async with (
            envoy.running(config, tmp_path),
            httpx.AsyncClient(
                base_url=f"http://127.0.0.1:{port}", timeout=DEADLINE_SECONDS
            ) as client,
        ):
            yield Setup(client, picker, frontends)


async def test_completions_and_streams_pass(gateway: Setup) -> None:
    client = gateway.client
    answer = await client.post("/v1/completions", json=COMPLETION)
    assert answer.status_code == 200, answer.text
    assert answer.json()["usage"]["completion_tokens"] == 8
    assert (await client.get("/v1/models")).json()["data"][0]["id"] == MODEL
    lines = []
    async with client.stream("POST", "/v1/completions", json={**COMPLETION, "stream": True}) as it:
        async for line in it.aiter_lines():
            lines.append(line)
    assert "data: [DONE]" in lines
    unknown = await client.post("/v1/completions", json={**COMPLETION, "model": "other"})
    assert (unknown.status_code, unknown.json()["error"]["code"]) == (404, "model_not_found")
    garbage = await client.post(
        "/v1/completions", content=b"{", headers={"content-type": "application/json"}
    )
    assert garbage.status_code == 400
    picks = gateway.picker.sample("baton_picker_picks_total", outcome="picked")
    assert picks == 5
    await eventually(lambda: gateway.picker.sample("baton_picker_streams") == 0)


async def test_a_stream_counts_until_it_ends_or_its_client_leaves(gateway: Setup) -> None:
    picker, asked = gateway.picker, {**COMPLETION, "max_tokens": 200, "stream": True}
    for leaves in (False, True):
        counted, events, done = [], 0, False
        async with gateway.client.stream("POST", "/v1/completions", json=asked) as response:
            async for line in response.aiter_lines():
                done = line == "data: [DONE]"
                events += line.startswith("data: {")
                if events == 3 and not counted:
                    counted.append(picker.sample("baton_picker_streams"))
                    if leaves:
                        break
                if done:
                    break
        assert (counted, done) == ([1.0], not leaves)
        await eventually(lambda: picker.sample("baton_picker_streams") == 0)


async def test_both_frontends_are_used_and_one_that_drains_is_not(gateway: Setup) -> None:
    async def ask() -> None:
        answer = await gateway.client.post("/v1/completions", json=COMPLETION)
        assert answer.status_code == 200, answer.text

    await asyncio.gather(*(ask() for _ in range(20)))
    assert min(gateway.served()) >= 4
    await gateway.frontends[0].stop()
    for _ in range(10):
        await ask()


async def test_the_gateway_answers_when_there_is_no_frontend(gateway: Setup) -> None:
    for one in gateway.frontends:
        await one.stop()

    async def status() -> bool:
        answer = await gateway.client.post("/v1/completions", json=COMPLETION)
        return answer.status_code == 503 and answer.json()["error"]["code"] == "unavailable"

    await eventually(status)
