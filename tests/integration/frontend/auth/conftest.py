"""A stage whose frontend wants API keys, and tenants with keys of it."""

from dataclasses import dataclass
from typing import Any

import httpx
import pytest

from baton.tenancy.admin.tenants import Administration
from baton.tenancy.records.tenants import Tier
from tests.support.wait import eventually


@dataclass
class Keys:
    """Makes keys in the stage's cluster; one that it returns is known to the frontend."""

    stage: Any
    admin: Administration

    async def tenant(self, name: str, tier: Tier = Tier.PRO) -> None:
        await self.admin.create_tenant(name, tier)

    async def key(self, tenant: str = "acme", **fields: Any) -> tuple[str, str]:
        """Return the id and the secret of a new key."""
        scopes = fields.pop("scopes", ("inference",))
        project = await self.admin.find_project(tenant, "default")
        key, secret = await self.admin.create_key(project, scopes, **fields)
        await self.known(secret)
        return key.id, secret

    async def known(self, secret: str) -> None:
        """Wait until a secret is not unknown."""
        headers = bearer(secret)
        async with httpx.AsyncClient(base_url=self.stage.http_url) as client:

            async def taken() -> bool:
                return (await client.get("/v1/models", headers=headers)).status_code != 401

            await eventually(taken)


def bearer(secret: str) -> dict[str, str]:
    return {"authorization": f"Bearer {secret}"}


@pytest.fixture
async def keys(empty_stage: Any) -> Keys:
    """The tenant acme on a stage that wants keys."""
    await empty_stage.set({"auth.mode": "keys"})
    made = Keys(empty_stage, Administration(empty_stage.client, empty_stage.cluster))
    await made.tenant("acme")
    return made
