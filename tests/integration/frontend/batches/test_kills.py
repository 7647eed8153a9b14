"""Two runners and Postgres killed while a batch runs: lines once, and billed for what they say."""

import asyncio
import random
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from baton.postgres.database import Database
from baton.postgres.local.server import LocalPostgres
from baton.request.prices import Price
from tests.integration.frontend.batches.test_openai_batches import (
    CHAT,
    chat_line,
    ended,
    lines_of,
    upload,
)
from tests.support.clock import DEADLINE_SECONDS
from tests.support.engine.model import MODEL
from tests.support.services.cluster import LocalCluster
from tests.support.state.databases import Databases, state_settings
from tests.support.wait import eventually

LINES, KILLS = 300, 3
PRICE = "0.1/0.01/0.3"
FRONTENDS = "frontend-1", "frontend-2"
BILLED = """
select count(*), sum(cost_nanodollars)::bigint, sum(output_tokens)::bigint
from usage_records where batch
"""


@pytest.mark.parametrize("seed", [1])
async def test_each_line_is_in_the_output_once_and_billed_for_what_it_says(
    local_cluster: Callable[..., Awaitable[LocalCluster]],
    own_postgres: LocalPostgres,
    tmp_path: Path,
    seed: int,
) -> None:
    import openai  # takes a second

    url = await Databases(own_postgres).migrated()
    settings = {
        "engine.model_name": MODEL,
        "state.url": url,
        "files.url": (tmp_path / "files").as_uri(),
        "batches.max_running": 16,
        "batches.lease_seconds": 2.0,
        "batches.retries": 20,
        "usage.spool_path": tmp_path / "usage",
        "usage.prices": f"{MODEL}=9/9/9,{MODEL}+batch={PRICE}",
    }
    cluster = await local_cluster(
        own=True, prefill=0, decode=0, combined=1, processes=FRONTENDS, settings=settings
    )
    for name in FRONTENDS:
        await cluster.start(name)
    async with openai.AsyncOpenAI(
        base_url=f"{cluster.http}/v1", api_key="none", max_retries=8, timeout=DEADLINE_SECONDS
    ) as client:

        async def file() -> Any:
            try:
                return await upload(client, [chat_line(number) for number in range(LINES)])
            except openai.APIStatusError:
                return None  # the database is not connected yet

        made = await client.batches.create(
            input_file_id=await eventually(file), endpoint=CHAT, completion_window="24h"
        )
        draw = random.Random(seed)
        for kill in range(KILLS):
            await asyncio.sleep(draw.uniform(0.2, 1.0))
            if kill == 2:
                await own_postgres.kill()
                await own_postgres.start()
                continue
            name = FRONTENDS[kill % 2]
            cluster[name].kill()  # type: ignore[union-attr]
            await cluster.start(name)
        batch = await ended(client, made.id)
        assert (batch.status, batch.error_file_id) == ("completed", None), batch
        lines = await lines_of(client, batch.output_file_id)
        assert [line["custom_id"] for line in lines] == [f"c{number}" for number in range(LINES)]
        price, usages = Price.parse(PRICE), [line["response"]["body"]["usage"] for line in lines]
        said = sum(
            price.cost(
                usage["prompt_tokens"],
                usage["prompt_tokens_details"]["cached_tokens"],
                usage["completion_tokens"],
            )
            for usage in usages
        )
        output_tokens = sum(usage["completion_tokens"] for usage in usages)
        assert batch.usage.output_tokens == output_tokens

        async with Database(state_settings(url)) as database:
            await database.wait_available(DEADLINE_SECONDS)
            billed: tuple[int, ...] = ()
            while billed[:1] < (LINES,):  # records are delivered after the end
                await asyncio.sleep(0.1)
                billed = tuple((await database.fetch(BILLED))[0])
        assert billed == (LINES, said, output_tokens)
    for name in FRONTENDS:
        assert await cluster[name].stop() == 0
