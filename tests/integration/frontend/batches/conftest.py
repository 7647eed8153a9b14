"""Two frontends of the sim engine's model that share a real Postgres and a directory of files."""

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import httpx
import pytest
from pydantic import SecretStr

from tests.support.clock import DEADLINE_SECONDS
from tests.support.engine.model import MODEL
from tests.support.services.baseline import wait_baseline
from tests.support.services.cluster import READY_SECONDS, LocalCluster
from tests.support.state.databases import Databases
from tests.support.state.frontends import Frontends
from tests.support.wait import eventually


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
