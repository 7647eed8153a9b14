"""A line that kills its workers fails alone."""

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from baton.postgres.database import Database
from tests.integration.frontend.batches.test_openai_batches import ended, lines_of, upload
from tests.support.clock import DEADLINE_SECONDS
from tests.support.engine.model import MODEL
from tests.support.services.cluster import LocalCluster
from tests.support.state.databases import Databases, state_settings
from tests.support.wait import eventually

COMPLETIONS = "/v1/completions"
# Outputs of one token: none is computed on, so that no line computes DEADLY but the one.
DEADLY, LINES, POISON, TOKENS = 400, 12, 5, 1
BILLED = "select count(*), sum(cost_nanodollars)::bigint from usage_records where batch"
WORKERS = "prefill-0", "prefill-1", "prefill-2"


def line(number: int) -> dict[str, Any]:
    body = {
        "model": MODEL,
        "prompt": [3, 4 + number, *[5] * 30, DEADLY if number == POISON else 6, *[7] * 40],
        "max_tokens": TOKENS,
        "ignore_eos": True,
    }
    return {"custom_id": f"c{number}", "method": "POST", "url": COMPLETIONS, "body": body}


async def test_a_line_that_kills_its_workers_fails_alone(
    local_cluster: Callable[..., Awaitable[LocalCluster]], databases: Databases, tmp_path: Path
) -> None:
    import openai  # takes a second

    url = await databases.migrated()
    cluster = await local_cluster(
        own=True,
        prefill=len(WORKERS),
        processes=WORKERS,
        settings={
            "state.url": url,
            "files.url": (tmp_path / "files").as_uri(),
            "usage.spool_path": tmp_path / "usage",
            "usage.prices": f"{MODEL}=1/5",
            "engine.sim_kill_token": DEADLY,
            "engine.sim_decode_step_seconds": 0.01,
        },
    )
    async with openai.AsyncOpenAI(
        base_url=f"{cluster.http}/v1", api_key="none", max_retries=8, timeout=DEADLINE_SECONDS
    ) as client:

        async def file() -> Any:
            try:
                return await upload(client, [line(number) for number in range(LINES)])
            except openai.APIStatusError:
                return None  # the database is not connected yet

        made = await client.batches.create(
            input_file_id=await eventually(file), endpoint=COMPLETIONS, completion_window="24h"
        )
        batch = await ended(client, made.id)
        assert (batch.status, batch.request_counts.failed) == ("completed", 1), batch
        output = await lines_of(client, batch.output_file_id)
        (error,) = await lines_of(client, batch.error_file_id)
    assert error["custom_id"] == f"c{POISON}" and error["error"]["code"] == "poison_request"
    others = [f"c{number}" for number in range(LINES) if number != POISON]
    assert [one["custom_id"] for one in output] == others
    usages = [one["response"]["body"]["usage"] for one in output]
    assert {usage["completion_tokens"] for usage in usages} == {TOKENS}
    assert batch.usage.output_tokens == TOKENS * len(output)
    said = sum(usage["prompt_tokens"] * 1000 + TOKENS * 5000 for usage in usages)
    async with Database(state_settings(url)) as database:
        await database.wait_available(DEADLINE_SECONDS)

        async def billed() -> Any:
            ((count, cost),) = await database.fetch(BILLED)
            return count == LINES and (cost,)

        assert await eventually(billed) == (said,)  # the line that failed costs nothing
    assert sum(not cluster[name].running for name in WORKERS) == 2
