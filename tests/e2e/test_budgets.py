"""Many requests at once over several frontends and routers spend a budget to the nano-dollar."""

import asyncio
import time
from collections import Counter
from collections.abc import Callable, Sequence
from itertools import count
from pathlib import Path
from typing import Any

import httpx

from baton.cluster.rendezvous import choose
from baton.tenancy.admin.tenants import Administration
from baton.tenancy.limits.budget.month import month_of
from baton.tenancy.limits.spec import LimitId, Measure, Subject
from baton.tenancy.records.spending import Spent
from baton.tenancy.records.tenants import Tier
from tests.support.clock import within
from tests.support.engine.model import MODEL
from tests.support.services.service import LocalServices
from tests.support.wait import eventually

PROMPT, OUTPUT_TOKENS = list(range(3, 15)), 8
COST = len(PROMPT) * 1000 + OUTPUT_TOKENS * 5000
SETTINGS = {"auth.mode": "keys", "usage.prices": f"{MODEL}=1/5"}
REQUESTS, FIT = 40, 10


class Clients:
    """Ask frontends in turn, with one key."""

    def __init__(self, http: httpx.AsyncClient, urls: Sequence[str], secret: str) -> None:
        self.http = http
        self.urls = urls
        self.headers = {"authorization": f"Bearer {secret}"}

    async def ask(self, number: int) -> str:
        """Return `ran`, `later` or `never`."""
        body = {
            "model": MODEL,
            "prompt": PROMPT,
            "max_tokens": OUTPUT_TOKENS,
            "ignore_eos": True,
        }
        url = f"{self.urls[number % len(self.urls)]}/v1/completions"
        answer = await self.http.post(url, json=body, headers=self.headers)
        if answer.status_code == 200:
            usage = answer.json()["usage"]
            assert (usage["prompt_tokens"], usage["completion_tokens"]) == (
                len(PROMPT),
                OUTPUT_TOKENS,
            )
            return "ran"
        assert answer.status_code in (429, 503), answer.text
        return "later" if "retry-after" in answer.headers else "never"

    async def known(self) -> bool:
        """Return whether every frontend knows the key."""
        found = [await self.http.get(f"{one}/v1/models", headers=self.headers) for one in self.urls]
        return all(answer.status_code == 200 for answer in found)


async def test_a_budget_is_spent_exactly_also_while_its_owner_dies(
    local_cluster: Callable[..., Any], tmp_path: Path
) -> None:
    running = await local_cluster(own=True, engine="sim")
    services = LocalServices(running.etcd, running.name, tmp_path)
    admin = Administration(running.etcd, running.name)
    try:
        routers = {running.router.instance.incarnation}
        second = await services("router", {}, "router-1")
        routers.add(second.instance.incarnation)
        names = [f"frontend-{number}" for number in (1, 2, 3)]
        frontends = [await services("frontend", SETTINGS, name) for name in names]
        urls = [f"http://{one.instance.http_address}" for one in frontends]

        async def clients(tenant: str, http: httpx.AsyncClient) -> Clients:
            await admin.create_tenant(tenant, Tier.PRO, budget_nanodollars_per_month=FIT * COST)
            project = await admin.create_project(
                tenant, "search", budget_nanodollars_per_month=FIT * COST
            )
            _, secret = await admin.create_key(project)
            made = Clients(http, urls, secret)
            await eventually(made.known)
            return made

        async with httpx.AsyncClient() as http:
            asking = await clients("acme", http)
            ends = Counter(await asyncio.gather(*map(asking.ask, range(REQUESTS))))
            assert ends == {"ran": FIT, "never": REQUESTS - FIT} or ends["later"]
            while ends["later"]:
                again, ends["later"] = ends["later"], 0
                ends += Counter(await asyncio.gather(*map(asking.ask, range(again))))
            assert ends["ran"] == FIT

            def owned(tenant: str) -> bool:
                limit_id = LimitId(Subject.TENANT, tenant, Measure.COST, month_of(time.time()))
                return choose(limit_id.digest(), routers) == second.instance.incarnation

            tenant = next(name for number in count() if owned(name := f"tenant-{number}"))
            asking = await clients(tenant, http)
            first = [asyncio.create_task(asking.ask(one)) for one in range(REQUESTS)]
            await asyncio.sleep(0.02)
            await second.stop(drain=False)
            ends = Counter(await asyncio.gather(*first))
            assert ends["ran"] <= FIT
            async with within(8):
                while ends["ran"] < FIT:
                    await asyncio.sleep(0.1)
                    ends += Counter(await asyncio.gather(*map(asking.ask, range(3))))
            again = await asyncio.gather(*map(asking.ask, range(6)))
            assert "ran" not in again
            for name in ("acme", tenant):
                async with within(4):
                    await eventually(lambda name=name: _is_spent(admin, name))
    finally:
        await services.close()


async def _is_spent(admin: Administration, tenant: str) -> bool:
    """Return whether the budget was spent, and nothing is held of it."""
    return await admin.spending.of(Subject.TENANT, tenant) == Spent(FIT * COST, 0)
