"""A free tenant behind many requests of a pro tenant has its first token in its tier's turn."""

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from baton.client import AsyncClient
from baton.tenancy.admin.tenants import Administration
from baton.tenancy.records.tenants import Tier
from tests.support.engine.model import MODEL
from tests.support.services.service import LocalServices
from tests.support.wait import eventually

HOG = 60
"""Requests of the pro tenant, of 40 ms each: in the worker are three or four of them at a time."""
PROMPT_TOKENS = 400
SETTINGS = {"engine.sim_prefill_tokens_per_second": 10_000.0}


@pytest.mark.parametrize(("order", "behind"), [("weighted", 25), ("strict", HOG)])
async def test_a_free_tenant_is_not_behind_all_of_a_pro_tenant(
    local_cluster: Callable[..., Any], tmp_path: Path, order: str, behind: int
) -> None:
    settings = {**SETTINGS, "queue.tier_order": order}
    running = await local_cluster(engine="sim", prefill=0, decode=0, combined=1, settings=settings)
    services = LocalServices(running.etcd, running.name, tmp_path)
    admin, secrets = Administration(running.etcd, running.name), {}
    for tenant, tier in (("pro", Tier.PRO), ("free", Tier.FREE)):
        await admin.create_tenant(tenant, tier)
        _, secrets[tenant] = await admin.create_key(await admin.find_project(tenant, "default"))
    try:
        frontend = await services("frontend", {"auth.mode": "keys"})
        first_tokens: list[str] = []

        async def ask(client: AsyncClient, tenant: str, number: int) -> None:
            prompt = [5 + number % 90, 5 + number // 90] + [7] * (PROMPT_TOKENS - 2)
            async for _ in client.generate(prompt, model=MODEL, max_tokens=1):
                pass
            first_tokens.append(tenant)

        async with (
            AsyncClient(frontend.address, api_key=secrets["pro"], timeout=120) as pro,
            AsyncClient(frontend.address, api_key=secrets["free"], timeout=120) as free,
        ):
            await ask(pro, "pro", 9_000)
            await ask(free, "free", 9_001)
            first_tokens.clear()
            hog = [asyncio.create_task(ask(pro, "pro", number)) for number in range(HOG)]
            await eventually(lambda: len(first_tokens) >= 3)
            before = len(first_tokens)
            await ask(free, "free", 9_002)
            await asyncio.gather(*hog)
        gone_before = first_tokens.index("free") - before
        # Four of the pro tenant, as its weight says, and what was in the worker.
        assert gone_before <= behind
        if order == "strict":
            assert gone_before >= 40
    finally:
        await services.close()
