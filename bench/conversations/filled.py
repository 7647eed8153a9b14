"""A Postgres with conversations of 24 months, for benchmarks."""

import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, date, datetime
from pathlib import Path

from pydantic import SecretStr

from baton.conversations.partitions import maintain, month_after
from baton.postgres import schema
from baton.postgres.connecting import connected
from baton.postgres.local.programs import remove_data
from baton.postgres.local.server import LocalPostgres
from baton.settings import StateSettings

MONTHS, EACH, TENANTS = 24, 20, 100
FIRST = date(2024, 11, 1)
SECONDS = 1800.0
BUFFERS = "128MB"
"""The default of Postgres."""

UUID7 = """
create function uuid7(milliseconds bigint, number bigint) returns uuid immutable language sql
return (lpad(to_hex(milliseconds), 12, '0') || '7' || substr(md5(number::text), 1, 3) || '8'
    || substr(md5(number::text), 4, 10) || '00000')::uuid
"""
CONVERSATIONS = """
create table made as
select number, 'tenant-' || number % $4 as tenant, uuid7(began, number) as id, began,
    uuid7(began + $5 * 60000, number) as last_item
from (select number, $1::bigint + number * ($2::bigint / $3::bigint) as began
    from generate_series(0, $3::bigint - 1) as number) as drawn
"""
ITEMS = """
insert into items
select tenant, id, uuid7(began + at * 60000, number), repeat(md5(number::text), 32)
from made, generate_series(1, $1::bigint) as at
"""
RESPONSES = """
insert into responses
select tenant, '', last_item, id, last_item, 1, $1::bigint, $1::bigint * 1024,
    'completed', repeat('x', 600)
from made
"""
PARENTS = """
insert into conversations
select tenant, '', id, true, 1, 1, last_item, $1::bigint, $1::bigint * 1024, '{}', '{}', '{}'
from made
"""


@asynccontextmanager
async def filled(items: int, buffers: str = BUFFERS) -> AsyncIterator[StateSettings]:
    """Start a Postgres with this many items, and this much memory for its buffers."""
    with tempfile.TemporaryDirectory(prefix="baton-bench-") as scratch:
        directory = Path(scratch) / "postgres"
        try:
            async with LocalPostgres(directory, options={"shared_buffers": buffers}) as server:
                settings = StateSettings(url=SecretStr(server.url), statement_seconds=SECONDS)
                await schema.upgrade(settings)
                async with connected(settings) as connection:
                    for month in range(MONTHS):
                        await maintain(connection, month_after(FIRST, month))
                    await maintain(connection, datetime.now(UTC).date())
                    began, end = (
                        int(datetime(day.year, day.month, 1, tzinfo=UTC).timestamp() * 1000)
                        for day in (FIRST, month_after(FIRST, MONTHS))
                    )
                    await connection.execute(UUID7)
                    count = items // EACH
                    await connection.execute(
                        CONVERSATIONS, began, end - began, count, TENANTS, EACH, timeout=SECONDS
                    )
                    for statement in (ITEMS, RESPONSES, PARENTS):
                        await connection.execute(statement, EACH, timeout=SECONDS)
                    await connection.execute("vacuum analyze", timeout=SECONDS)
                yield settings
        finally:
            remove_data(directory)
