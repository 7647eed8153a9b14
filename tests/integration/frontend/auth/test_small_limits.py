"""A minute's worth may be used in one moment: by a new key, after a router's death, in one body."""

import asyncio
from typing import Any

import httpx
import pytest

from baton.cluster.rendezvous import choose
from baton.internal.v1 import cluster_pb2
from baton.tenancy.admin.tenants import Administration
from baton.tenancy.limits.spec import LimitId, Measure, Subject
from tests.integration.frontend.auth.conftest import Keys, bearer
from tests.support.clock import within
from tests.support.wait import eventually


class Asker:
    """Asks with keys at the frontend, many requests at once."""

    def __init__(self, keys: Keys, client: httpx.AsyncClient) -> None:
        self.keys = keys
        self._client = client

    async def key(self, **limits: int) -> tuple[str, str]:
        return await self.keys.key(**limits)

    async def ask(self, secret: str, prompt: object = "hi") -> httpx.Response:
        body = {"model": self.keys.stage.model, "prompt": prompt, "max_tokens": 2}
        return await self._client.post("/v1/completions", json=body, headers=bearer(secret))

    async def at_once(self, secret: str, count: int) -> list[int]:
        """Return the status of each of so many requests in one moment."""
        answers = await asyncio.gather(*[self.ask(secret) for _ in range(count)])
        return [one.status_code for one in answers]


@pytest.fixture
async def asker(empty_stage: Any) -> Any:
    """Two real routers, a worker of each kind, and a frontend that wants keys."""
    stage = empty_stage
    stage.routers = [await stage.services("router", {}, f"router-{number}") for number in (0, 1)]
    for name, role in (("p0", cluster_pb2.ROLE_PREFILL), ("d0", cluster_pb2.ROLE_DECODE)):
        await stage.add(name, role)
    await stage.start_frontend({"auth.mode": "keys"})
    keys = Keys(stage, Administration(stage.client, stage.cluster))
    await keys.tenant("acme")
    async with httpx.AsyncClient(base_url=stage.http_url) as client:
        made = Asker(keys, client)
        _, free = await keys.key()

        async def served() -> bool:
            return (await made.ask(free)).status_code == 200

        await eventually(served)
        yield made


async def kill_owner(stage: Any, key: str) -> None:
    """Kill the router that owns a key's requests per minute."""
    by_incarnation = {one.instance.incarnation: one for one in stage.routers}
    digest = LimitId(Subject.KEY, key, Measure.REQUESTS).digest()
    owner = by_incarnation[choose(digest, by_incarnation)]
    await owner.stop(drain=False)
    stage.routers.remove(owner)


async def test_a_new_key_has_a_minutes_worth_at_once(asker: Asker) -> None:
    _, secret = await asker.key(requests_per_minute=10)
    statuses = await asker.at_once(secret, 12)
    assert sorted(statuses) == [200] * 10 + [429] * 2


@pytest.mark.parametrize("used", [0, 4])
async def test_after_its_owners_death_a_key_has_what_it_did_not_use(
    asker: Asker, used: int
) -> None:
    key, secret = await asker.key(requests_per_minute=10)
    assert await asker.at_once(secret, used) == [200] * used
    await kill_owner(asker.keys.stage, key)
    served = 0

    async def all_served() -> bool:
        nonlocal served
        served += (await asker.at_once(secret, 10 - used - served)).count(200)
        return served == 10 - used

    async with within(3):  # no request comes back in that time
        await eventually(all_served)
    assert 200 not in await asker.at_once(secret, 3)


async def test_prompts_of_one_body_fit_together_or_not_at_all(asker: Asker) -> None:
    _, secret = await asker.key(requests_per_minute=10)
    assert (await asker.ask(secret, ["a b"] * 8)).status_code == 200
    for _ in range(3):
        refused = await asker.ask(secret, ["a b"] * 3)
        assert refused.status_code == 429
        assert 1 <= int(refused.headers["retry-after"]) <= 6

    async def served() -> bool:
        return (await asker.ask(secret)).status_code == 200

    async with within(3):  # no request comes back in that time
        for _ in range(2):  # what is refused uses nothing up
            await eventually(served)
    assert not await served()


async def test_prompts_that_never_fit_are_told_so(asker: Asker) -> None:
    for limits, sentence in (
        (
            {"requests_per_minute": 10},
            "is limited to 10 requests per minute, and this request needs",
        ),
        ({"requests_at_once": 4}, "is limited to 4 concurrent requests, and this request needs"),
    ):
        key, secret = await asker.key(**limits)
        refused = await asker.ask(secret, ["a b"] * 11)
        assert refused.status_code == 429
        assert "retry-after" not in refused.headers
        assert refused.headers["x-should-retry"] == "false"
        assert refused.json()["error"]["message"] == (
            f"key '{key}' {sentence} 11: shorten the request"
        )


async def test_prompts_that_find_no_place_use_no_requests_up(asker: Asker) -> None:
    _, secret = await asker.key(requests_per_minute=10, requests_at_once=2, tokens_per_minute=30)
    for _ in range(6):
        refused = await asker.ask(secret, [[5] * 14] * 2)
        assert (refused.status_code, refused.json()["error"]["code"]) == (
            429,
            "rate_limit_exceeded",
        )

    async def served() -> bool:
        return (await asker.ask(secret)).status_code == 200

    async with within(3):  # no request comes back in that time
        await eventually(served)
