"""Baton Tiny behind two frontends that share a real Postgres."""

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack
from functools import partial
from typing import Any

import httpx
import pytest
from pydantic import SecretStr

from tests.support.clock import DEADLINE_SECONDS
from tests.support.engine.model import MODEL, TRAINED
from tests.support.services.baseline import wait_baseline
from tests.support.services.cluster import READY_SECONDS, LocalCluster, patient_client
from tests.support.state.databases import Databases
from tests.support.state.frontends import Frontends
from tests.support.wait import eventually


@pytest.fixture
async def frontends(
    local_cluster: Callable[..., Awaitable[LocalCluster]], databases: Databases
) -> AsyncIterator[Frontends]:
    import openai  # takes a second

    url = await databases.migrated()
    cluster = await local_cluster(
        own=True,
        engine="torch",
        model=TRAINED,
        prefill=0,
        decode=0,
        combined=1,
        settings={
            "engine.model_name": MODEL,
            "engine.threads": 1,
            "state.url": SecretStr(url),
            "conversations.enabled": True,
            "public.metrics": True,
            "conversations.statement_seconds": 20.0,
            "webhooks.enabled": True,
            "webhooks.allow": ("127.0.0.0/8",),
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
            await eventually(partial(_has_database, one))
        near = [
            await stack.enter_async_context(patient_client(frontend.address, retries=0))
            for frontend in (cluster.frontend, second)
        ]
        yield Frontends(cluster, url, tuple(http), tuple(clients), tuple(near))
        await wait_baseline(cluster, READY_SECONDS)


async def _has_database(http: httpx.AsyncClient) -> bool:
    return (await http.get(f"/v1/responses/resp_{0:032x}")).status_code == 404
