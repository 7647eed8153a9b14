"""A frontend that drains gives its lines back at once, and another one runs them."""

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from baton.postgres.database import Database
from tests.integration.frontend.batches.test_openai_batches import (
    CHAT,
    chat_line,
    ended,
    lines_of,
    upload,
)
from tests.support.clock import DEADLINE_SECONDS, within
from tests.support.engine.model import MODEL
from tests.support.services.cluster import LocalCluster
from tests.support.state.databases import Databases, state_settings
from tests.support.wait import eventually

LINES = 6
HELD = """
select number from batch_lines where owner = $1 and state = 0 and attempt = $2 and failures = 0
    order by number
"""


async def test_lines_of_a_frontend_that_drains_go_on_elsewhere_within_a_second(
    local_cluster: Callable[..., Awaitable[LocalCluster]], databases: Databases, tmp_path: Path
) -> None:
    import openai  # takes a second

    url = await databases.migrated()
    cluster = await local_cluster(
        own=True,
        prefill=0,
        decode=0,
        combined=1,
        settings={
            "engine.model_name": MODEL,
            "engine.sim_decode_step_seconds": 0.02,
            "state.url": url,
            "state.statement_seconds": 20.0,
            "files.url": (tmp_path / "files").as_uri(),
            "batches.max_running": LINES,
            "batches.lease_seconds": 600.0,
        },
    )
    async with (
        openai.AsyncOpenAI(
            base_url=f"{cluster.http}/v1", api_key="none", max_retries=8, timeout=DEADLINE_SECONDS
        ) as client,
        Database(state_settings(url)) as database,
    ):
        await database.wait_available(DEADLINE_SECONDS)
        lines = [chat_line(number, max_tokens=200, ignore_eos=True) for number in range(LINES)]

        async def file() -> Any:
            try:
                return await upload(client, lines)
            except openai.APIStatusError:
                return None  # the database is not connected yet

        made = await client.batches.create(
            input_file_id=await eventually(file), endpoint=CHAT, completion_window="24h"
        )

        async def run_at(frontend: str, attempt: int) -> bool:
            return len(await database.fetch(HELD, frontend, attempt)) == LINES

        assert await eventually(lambda: run_at("frontend-0", 1))
        second = await cluster.start("frontend-1")
        http = f"http://{second.instance.http_address}/v1"
        other = client.with_options(base_url=http)

        async def serves() -> Any:
            try:
                return await other.batches.retrieve(made.id)
            except openai.APIStatusError:
                return None

        await eventually(serves)
        cluster["frontend-0"].process.stopping.set()  # type: ignore[union-attr]
        async with within(1):
            assert await eventually(lambda: run_at("frontend-1", 2))
        batch = await ended(other, made.id)
        assert batch.status == "completed" and batch.error_file_id is None
        assert len(await lines_of(other, batch.output_file_id)) == LINES
