"""The order in which lines are claimed."""

import random
from itertools import groupby
from uuid import UUID

from baton.batches.lines import LineStore
from baton.batches.records import NewBatch, NewLine
from baton.batches.store import BatchStore
from baton.conversations.records import StateScope
from baton.postgres.database import Database
from baton.postgres.revisions import BATCHES
from tests.support.state.batches import start_batch
from tests.support.state.databases import Databases, state_settings

PREFIXES, EACH = 10, 8
OWNER, SECONDS = "frontend-1", 600.0


async def test_lines_that_begin_alike_are_claimed_one_after_the_other(
    databases: Databases,
) -> None:
    settings = state_settings(await databases.migrated())
    async with Database(settings, "batches", BATCHES) as database:
        await database.wait_available(20)
        batches = BatchStore(database, OWNER, SECONDS)
        lines = LineStore(database, OWNER, SECONDS)
        values = "key_1", "/v1/chat/completions", UUID(int=1), "24h", 86_400, None, "{}"
        await batches.create(NewBatch(StateScope("acme", "proj_1"), UUID(int=1), *values))
        lease = await batches.claim()
        assert lease is not None
        order = [at % PREFIXES for at in range(PREFIXES * EACH)]
        random.Random(1).shuffle(order)
        new = [NewLine(at, f"c{at}", b"%d" % one, bytes([one])) for at, one in enumerate(order, 1)]
        assert await start_batch(batches, lease, new)
        (active,) = await lines.active()
        found: list[str] = []
        while claimed := await lines.claim(active, EACH):
            found += sorted(line.body for line in claimed)
        assert [len(list(group)) for _, group in groupby(found)] == [EACH] * PREFIXES
