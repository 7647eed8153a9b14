"""Who runs first: tenants by weight, then what expires first."""

import asyncio
from typing import Any

from baton.batches.records import parse_batch
from tests.integration.frontend.batches.conftest import Keyed
from tests.integration.frontend.batches.test_openai_batches import chat_line, ended
from tests.integration.frontend.batches.test_withdrawn import create, runs
from tests.support.clock import PATIENCE_SECONDS, within

EARLIER = "update batches set expires_at = expires_at - interval '1 hour' where id = $1"
ENDED = "select tenant, completed + failed as ended from batches"
HEAVY = 60


def lines(count: int) -> list[dict[str, Any]]:
    return [chat_line(number, max_tokens=6, ignore_eos=True) for number in range(count)]


async def test_a_large_batch_does_not_stand_before_anothers(keyed: Keyed) -> None:
    """Of four places, three are a tenant's of the weight 3."""
    await keyed.cluster["frontend-1"].stop()
    await keyed.start(**{"batches.max_running": 4})
    _, large = await keyed.client("large")
    _, heavy = await keyed.client("heavy", weight=3)

    async def after(count: int) -> int:
        """Return how many lines of the large batch have ended once so many of the other's have."""
        while True:
            both = {row["tenant"]: row["ended"] for row in await keyed.database.fetch(ENDED)}
            if both.get("heavy", 0) >= count:
                return int(both["large"])
            await asyncio.sleep(0.01)

    first = await create(large, lines(1500))
    await runs(large, first.id)
    second = await create(heavy, lines(HEAVY))
    async with within(PATIENCE_SECONDS):
        begin, end = await after(1), await after(HEAVY)
    assert 5 < end - begin < 40  # a third of 60; 60 with equal shares
    assert (await ended(heavy, second.id)).status == "completed"
    assert (await large.batches.cancel(first.id)).status == "cancelling"  # most of it is left


async def test_of_a_tenants_batches_the_one_that_expires_first_runs_first(keyed: Keyed) -> None:
    _, client = await keyed.client("acme")
    first = await create(client, lines(600))
    await runs(client, first.id)
    second = await create(client, lines(30))
    await keyed.database.execute(EARLIER, parse_batch(second.id))
    assert (await ended(client, second.id)).status == "completed"
    found = await client.batches.cancel(first.id)
    assert found.status == "cancelling"
