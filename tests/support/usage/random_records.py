"""Random usage records of several tenants, and their import into a database."""

import random
from collections.abc import Sequence

from pydantic import SecretStr

from baton.postgres.database import Database
from baton.settings import StateSettings
from baton.usage.record import UsageRecord, encode
from baton.usage.sinks.postgres import PostgresSink
from tests.support.usage.records import DAY_MS, begun, ended

FIRST_DAY = 20_000
"""First day of random records, since the Unix epoch."""
DAYS = 3
_WAIT_SECONDS = 20.0


def random_record(
    draw: random.Random, tenants: Sequence[tuple[str, Sequence[str]]], days: int = DAYS
) -> UsageRecord:
    """Return the record of a request.

    Args:
        draw: the source of randomness.
        tenants: tenants with their projects.
        days: it began on one of this many days, from FIRST_DAY on.
    """
    tenant, projects = draw.choice(tenants)
    project = draw.choice(projects)
    record = begun(
        began_ms=FIRST_DAY * DAY_MS + draw.randrange(days * DAY_MS),
        tenant=tenant,
        project=project,
        key=f"key_{project[-2:]}{draw.randrange(2)}",
        model=draw.choice(("m", "n")),
        adapter=draw.choice(("", "", "tuned")),
        tier=draw.choice(("free", "pro")),
        batch=draw.random() < 0.3,
        prompt_tokens=draw.randrange(10, 10**6),
    )
    if draw.random() < 0.1:
        return record
    return ended(
        record,
        cached_tokens=draw.randrange(10),
        output_tokens=draw.randrange(10**5),
        first_token_seconds=draw.choice((None, 0.5, 0.5)),
        cost_nanodollars=draw.choice((None, *(draw.randrange(10**12) for _ in range(4)))),
    )


async def bring(url: str, records: Sequence[UsageRecord]) -> None:
    """Insert records into the database at a URL."""
    async with Database(StateSettings(url=SecretStr(url))) as database:
        await database.wait_available(_WAIT_SECONDS)
        await PostgresSink(database).write([encode(record) for record in records])
