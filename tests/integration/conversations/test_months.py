"""Months of rows: which ones statements read, and what becomes of old ones."""

import json
from collections.abc import AsyncIterator
from datetime import UTC, date, datetime, timedelta
from typing import Any
from uuid import UUID

import asyncpg
import pytest

from baton.conversations import statements
from baton.conversations.by_month import month_bounds
from baton.conversations.ids import RESPONSE, draw_block, text_of
from baton.conversations.managed.statements import HISTORY_OF_CONVERSATION
from baton.conversations.partitions import MONTHS_AHEAD, TABLES, maintain, month_after
from baton.conversations.records import StateScope, Turn
from baton.conversations.store import ConversationStore
from baton.errors import BatonError, Reason
from baton.postgres.connecting import connected
from baton.postgres.database import Database
from baton.postgres.uuid7 import first_id
from baton.settings import ConversationSettings
from tests.support.state.databases import Databases, state_settings

OURS = StateScope("acme", "")
MONTHS = [date(2026, month, 1) for month in range(1, 6)]


def milliseconds(day: date) -> int:
    return int(datetime(day.year, day.month, day.day, 12, tzinfo=UTC).timestamp() * 1000)


@pytest.fixture
async def url(databases: Databases) -> str:
    """A database with months, and a conversation that lived in March and April."""
    url = await databases.migrated()
    async with connected(state_settings(url)) as connection:
        await maintain(connection, MONTHS[2])
    return url


@pytest.fixture
async def store(url: str) -> AsyncIterator[ConversationStore]:
    async with Database(state_settings(url)) as database:
        await database.wait_available(20)
        yield ConversationStore(database, ConversationSettings(enabled=True))


async def write(store: ConversationStore, day: date, follows: UUID | None = None) -> UUID:
    path = None if follows is None else await store.path(OURS, text_of(RESPONSE, follows))
    block = draw_block(milliseconds(day))
    await store.write(OURS, Turn(block, ['{"in":1}', '{"out":1}'], 1, "completed", "{}", path))
    return block


@pytest.mark.parametrize("plan", ["force_generic_plan", "force_custom_plan"])
async def test_statements_read_only_the_months_between_their_bounds(
    url: str, store: ConversationStore, plan: str
) -> None:
    first = await write(store, date(2026, 3, 30))
    second = await write(store, date(2026, 4, 2), first)
    branch = await write(store, date(2026, 4, 3), first)
    path = await store.path(OURS, text_of(RESPONSE, second))
    path_of_branch = await store.path(OURS, text_of(RESPONSE, branch))
    assert len(path_of_branch.parts) == 2
    assert [(await store.history(OURS, text_of(RESPONSE, one)))[1] for one in (second, branch)] == [
        None
    ] * 2
    managed = await store.managed.create(OURS, "{}", lambda _: ["{}"], 1, milliseconds(MONTHS[2]))
    async with connected(state_settings(url)) as connection:
        await connection.execute(f"set plan_cache_mode = {plan}")

        async def months(statement: str, *values: object) -> list[str]:
            return await _scanned(connection, statement, *values)

        bounds = path.conversation, path.last_item
        assert await months(statements.ITEMS_BETWEEN, "acme", path.conversation, *bounds) == [
            "items_202603",
            "items_202604",
        ]
        assert await months(statements.RESPONSE, *OURS, second) == ["responses_202604"]
        assert await months(statements.PATH_OF_RESPONSE, *OURS, first) == ["responses_202603"]
        most = 4096, 1 << 20
        assert await months(
            statements.HISTORY_OF_RESPONSE, *OURS, first, *month_bounds(first), *most
        ) == ["items_202603", "responses_202603"]
        assert await months(
            statements.HISTORY_OF_RESPONSE, *OURS, second, *month_bounds(second), *most
        ) == ["responses_202604"]
        bounds = month_bounds(managed.id)
        assert await months(HISTORY_OF_CONVERSATION, *OURS, managed.id, *bounds, *most) == [
            "items_202603"
        ]
        conversations, last = zip(*path_of_branch.parts, strict=True)
        assert await months(
            statements.ITEMS_OF_PARTS, "acme", conversations, last, min(conversations), max(last)
        ) == ["items_202603", "items_202604"]


async def _scanned(connection: asyncpg.Connection, statement: str, *values: object) -> list[str]:
    """Return the months that a statement with values scanned; of each one partition by tenant."""
    await connection.execute("deallocate all")
    prepared = f"prepare asked as {statement}"
    await connection.execute(prepared)
    shown = ", ".join(map(_literal, values))
    (row,) = await connection.fetch(f"explain (analyze, format json) execute asked({shown})")
    found = sorted(_relations(json.loads(row[0])[0]["Plan"]))
    tables = [name for name in found if name.startswith(TABLES)]
    months = sorted({name.rpartition("_")[0] for name in tables})
    assert len(tables) == len(months)
    return months


def _literal(value: Any) -> str:
    if isinstance(value, tuple):
        return "array[" + ", ".join(map(_literal, value)) + "]::uuid[]"
    return f"'{value}'"


def _relations(plan: dict[str, Any]) -> set[str]:
    """Return the tables that a plan scanned."""
    found = (
        {plan["Relation Name"]} if plan.get("Actual Loops") and "Relation Name" in plan else set()
    )
    for inner in plan.get("Plans", ()):
        found |= _relations(inner)
    return found


async def test_months_are_made_ahead_once_and_dropped_when_they_are_old(
    databases: Databases,
) -> None:
    async with connected(state_settings(await databases.migrated())) as connection:
        wanted = MONTHS_AHEAD + 2
        assert await maintain(connection, date(2026, 5, 31)) == (wanted * len(TABLES), 0)
        assert await maintain(connection, date(2026, 5, 1)) == (0, 0)
        assert await maintain(connection, date(2026, 6, 1)) == (len(TABLES), 0)
        # April ended on the 30th: all of it is older than May 1st.
        assert await maintain(connection, date(2026, 6, 1), date(2026, 4, 30)) == (0, 0)
        assert await maintain(connection, date(2026, 6, 1), date(2026, 5, 1)) == (0, len(TABLES))
        assert await maintain(connection, date(2026, 6, 1), date(2026, 5, 31)) == (0, 0)


async def test_a_long_reader_delays_a_month_and_no_one_else(url: str) -> None:
    settings = state_settings(url)
    async with connected(settings) as reader, connected(settings) as connection:
        async with reader.transaction():
            await reader.fetch("select count(*) from items")
            with pytest.raises(asyncpg.LockNotAvailableError):
                await maintain(connection, MONTHS[-1], MONTHS[3])
            assert await connection.fetchval("select count(*) from items") == 0
        _, dropped = await maintain(connection, MONTHS[-1], MONTHS[3])
    assert dropped > 0


async def test_what_is_older_than_the_retention_is_gone(url: str, store: ConversationStore) -> None:
    old = await write(store, date(2026, 3, 30))
    longer = await write(store, date(2026, 4, 2), await write(store, date(2026, 3, 31)))
    days = store.settings.retention_days
    await store.maintain(datetime(2026, 4, 1, tzinfo=UTC) + timedelta(days=days))
    with pytest.raises(BatonError) as caught:
        await store.path(OURS, text_of(RESPONSE, old))
    assert caught.value.reason is Reason.NOT_FOUND
    path = await store.path(OURS, text_of(RESPONSE, longer))
    assert [item.id > first_id(MONTHS[3]) for item in await store.items(OURS, path)] == [True] * 2
    async with connected(state_settings(url)) as connection:
        rows = await connection.fetch("select id from conversations")
    assert [row["id"] for row in rows] == [path.conversation]


def test_months_follow_each_other() -> None:
    assert month_after(date(2026, 12, 31)) == date(2027, 1, 1)
    assert month_after(date(2026, 1, 15), -1) == date(2025, 12, 1)
    assert month_after(date(2026, 1, 15), 24) == date(2028, 1, 1)
