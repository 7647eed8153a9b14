"""Two tenants of a cluster share no KV."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from baton.client import AsyncClient
from baton.tenancy.admin.tenants import Administration
from baton.tenancy.records.tenants import Tier
from tests.support.engine.model import MODEL
from tests.support.services.service import LocalServices

PROMPT = "what the two of them ask is the same to the letter, and longer than a few blocks are " * 4


async def test_the_same_prompt_of_two_tenants_has_nothing_cached(
    local_cluster: Callable[..., Any], tmp_path: Path
) -> None:
    running = await local_cluster(engine="sim")
    services = LocalServices(running.etcd, running.name, tmp_path)
    admin, secrets = Administration(running.etcd, running.name), {}
    for tenant in ("acme", "other"):
        await admin.create_tenant(tenant, Tier.PRO)
        _, secrets[tenant] = await admin.create_key(await admin.find_project(tenant, "default"))
    try:
        frontend = await services("frontend", {"auth.mode": "keys"})

        async def cached(tenant: str) -> int:
            async with AsyncClient(frontend.address, api_key=secrets[tenant]) as client:
                stream = client.generate(PROMPT, model=MODEL, max_tokens=2)
                async for _ in stream:
                    pass
                assert stream.finished is not None
                return stream.finished.usage.cached_tokens

        assert await cached("acme") == 0
        assert await cached("acme") > 100
        assert await cached("other") == 0
        assert await cached("other") > 100
    finally:
        await services.close()
