"""A summary that may not be paid is not written, and answers say so."""

from typing import Any

import httpx

from baton.internal.v1 import cluster_pb2
from baton.postgres.connecting import connected
from baton.tenancy.admin.tenants import Administration
from baton.tenancy.records.tenants import Tier
from tests.integration.frontend.auth.conftest import Keys, bearer
from tests.support.clock import DEADLINE_SECONDS
from tests.support.state.databases import Databases, state_settings
from tests.support.wait import eventually

INPUT = 300
"""Characters of a turn, which are tokens: each costs 1,000 nano-dollars."""
ENOUGH = 1_100_000
"""For two turns, and not for a summary of the first one."""
MANAGED: Any = [{"type": "compaction", "compact_threshold": 512}]


async def test_answers_go_on_without_a_summary_and_say_why(
    empty_stage: Any, databases: Databases
) -> None:
    stage, url = empty_stage, await databases.migrated()
    await stage.services("router", {}, "router-0")
    for name, role in (("p0", cluster_pb2.ROLE_PREFILL), ("d0", cluster_pb2.ROLE_DECODE)):
        await stage.add(name, role)
    settings = {"auth.mode": "keys", "usage.prices": f"{stage.model}=1/5", "state.url": url}
    settings |= {"conversations.enabled": True, "conversations.statement_seconds": 20.0}
    await stage.start_frontend(settings)
    keys = Keys(stage, Administration(stage.client, stage.cluster))
    await keys.admin.create_tenant("small", Tier.PRO, budget_nanodollars_per_month=ENOUGH)
    scopes = ("inference", "state.read", "state.write")
    _, secret = await keys.key("small", scopes=scopes)
    body = {"model": stage.model, "input": "x" * INPUT, "max_output_tokens": 3}

    async with (
        httpx.AsyncClient(base_url=stage.http_url, timeout=DEADLINE_SECONDS) as client,
        connected(state_settings(url)) as connection,
    ):

        async def say(last: str | None) -> httpx.Response:
            sent = body | {"previous_response_id": last, "context_management": MANAGED}
            return await client.post("/v1/responses", json=sent, headers=bearer(secret))

        async def first() -> httpx.Response | None:
            answer = await say(None)  # while there is no connection to the database: 503
            return answer if answer.status_code == 200 else None

        one = await eventually(first)
        two = await say(one.json()["id"])
        assert two.status_code == 200, two.text
        await eventually(lambda: connection.fetch("select 1 from compactions where error <> ''"))
        (row,) = await connection.fetch("select error, body from compactions")
        assert tuple(row) == ("insufficient_quota", None)

        await keys.admin.update_tenant("small", budget_nanodollars_per_month=100 * ENOUGH)

        async def next_one() -> httpx.Response | None:
            answer = await say(two.json()["id"])
            return answer if answer.status_code == 200 else None

        three = await eventually(next_one)
    told = [(one["action"], one["reason"]) for one in three.json()["input_transformations"]]
    assert told == [("failed", "insufficient_quota")]
    assert three.json()["usage"]["input_tokens"] > 3 * INPUT
    assert three.headers["x-baton-truncated"].endswith("summary=false, error=insufficient_quota")
