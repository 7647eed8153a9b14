"""Frontends of the sim engine's model with a real Postgres and a directory of files."""

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest
from pydantic import SecretStr

from baton.postgres.database import Database
from baton.tenancy.admin.tenants import Administration
from baton.tenancy.records.tenants import Scope, Tier
from tests.support.clock import DEADLINE_SECONDS
from tests.support.engine.model import MODEL
from tests.support.services.baseline import wait_baseline
from tests.support.services.cluster import READY_SECONDS, LocalCluster
from tests.support.state.databases import Databases, state_settings
from tests.support.state.frontends import Frontends
from tests.support.wait import eventually

SCOPES = (Scope.INFERENCE, Scope.STATE_READ, Scope.STATE_WRITE)


@pytest.fixture
async def frontends(
    local_cluster: Callable[..., Awaitable[LocalCluster]], databases: Databases, tmp_path: Path
) -> AsyncIterator[Frontends]:
    import openai  # takes a second

    url = await databases.migrated()
    cluster = await local_cluster(
        own=True,
        prefill=0,
        decode=0,
        combined=1,
        settings={
            "engine.model_name": MODEL,
            "state.url": SecretStr(url),
            "state.statement_seconds": 20.0,
            "files.url": (tmp_path / "files").as_uri(),
            "webhooks.enabled": True,
            "webhooks.allow": ("127.0.0.0/8",),
            "files.sweep_seconds": 0.1,
            "files.max_file_bytes": 4_000_000,
            "usage.spool_path": tmp_path / "usage",
        },
    )
    second = await cluster.start("frontend-1")
    urls = cluster.http, f"http://{second.instance.http_address}"
    async with AsyncExitStack() as stack:
        http: list[Any] = []
        clients: list[Any] = []
        for one in urls:
            http.append(
                await stack.enter_async_context(
                    httpx.AsyncClient(base_url=one, timeout=DEADLINE_SECONDS)
                )
            )
            client = openai.AsyncOpenAI(base_url=f"{one}/v1", api_key="none", max_retries=0)
            clients.append(await stack.enter_async_context(client))
        for one in http:
            await _wait_database(one)
        yield Frontends(cluster, url, tuple(http), tuple(clients))
        await wait_baseline(cluster, READY_SECONDS)


async def _wait_database(http: httpx.AsyncClient) -> None:
    async def found() -> Any:
        return (await http.get("/v1/files")).status_code == 200

    assert await eventually(found)


@dataclass
class Keyed:
    """A frontend that wants keys and runs two lines at once, one worker, and their database."""

    cluster: LocalCluster
    url: str
    """Of the database."""
    directory: Path
    """Of the files."""
    database: Database
    stack: AsyncExitStack

    @property
    def admin(self) -> Administration:
        return Administration(self.cluster.etcd, self.cluster.name)

    async def client(self, tenant: str, **limits: Any) -> tuple[str, Any]:
        """Return the id of a new key of a tenant, which is made if it is new, and its client."""
        import openai  # takes a second

        if tenant not in {one.id for one in await self.admin.tenants()}:
            await self.admin.create_tenant(tenant, Tier.PRO, **limits)
        project = await self.admin.find_project(tenant, "default")
        key, secret = await self.admin.create_key(project, SCOPES)
        base = f"http://{self.cluster['frontend-1'].instance.http_address}/v1"
        made = openai.AsyncOpenAI(
            base_url=base, api_key=secret, max_retries=0, timeout=DEADLINE_SECONDS
        )
        client: Any = await self.stack.enter_async_context(made)

        async def serves() -> bool:
            try:
                await client.files.list()
            except (openai.AuthenticationError, openai.InternalServerError):
                return False  # it does not know the key, or its database, yet
            return True

        await eventually(serves)
        return key.id, client

    async def start(self, **settings: Any) -> None:
        """Start the frontend."""
        given = {
            "auth.mode": "keys",
            "state.url": SecretStr(self.url),
            "state.statement_seconds": 20.0,
            "files.url": self.directory.as_uri(),
            "files.sweep_seconds": 0.1,
            "batches.max_running": 2,
            "limits.wait_for_worker_seconds": 0.5,
            "usage.spool_path": self.directory.with_name("usage"),
            "usage.prices": f"{MODEL}=1/5",
        }
        await self.cluster.start("frontend-1", given | settings)


@pytest.fixture
async def keyed(
    local_cluster: Callable[..., Awaitable[LocalCluster]], databases: Databases, tmp_path: Path
) -> AsyncIterator[Keyed]:
    url = await databases.migrated()
    cluster = await local_cluster(
        own=True,
        prefill=0,
        decode=0,
        combined=1,
        settings={"engine.sim_decode_step_seconds": 0.005},
    )
    async with AsyncExitStack() as stack:
        database = await stack.enter_async_context(Database(state_settings(url)))
        await database.wait_available(DEADLINE_SECONDS)
        made = Keyed(cluster, url, tmp_path / "files", database, stack)
        await made.start()
        yield made
