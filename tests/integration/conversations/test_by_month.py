"""Reads of a month by the name of its partition, and of what has no month."""

from typing import Any
from uuid import UUID

import pytest

from baton.conversations import statements
from baton.conversations.by_month import KEEP_PLANS, fetch_between
from baton.postgres.connecting import SlowStatementError, connected
from baton.postgres.database import Database
from baton.postgres.uuid7 import first_id
from tests.integration.conversations.test_months import MONTHS, OURS, milliseconds
from tests.support.clock import PATIENCE_SECONDS
from tests.support.state.databases import Databases, state_settings

DAYS = MONTHS[2], MONTHS[2].replace(day=31), MONTHS[3]


async def test_a_statement_between_two_ids_reads_their_month(
    databases: Databases, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []
    fetch = Database.fetch

    async def counted(self: Database, query: str, *values: object, **options: Any) -> Any:
        asked.append(query)
        return await fetch(self, query, *values, **options)

    monkeypatch.setattr(Database, "fetch", counted)
    settings = state_settings(await databases.migrated())
    async with connected(settings) as connection:
        for month in (3, 4):
            await connection.execute(
                f"create table items_20260{month} partition of items for values "
                f"from ('{first_id(MONTHS[month - 1])}') to ('{first_id(MONTHS[month])}')"
            )
        march, late, april = (UUID(int=milliseconds(day) << 80 | 7 << 76) for day in DAYS)
        for ident in (march, late, april):
            await connection.execute(
                "insert into items values ($1, $2, $3, '{}')", OURS.tenant, march, ident
            )
    async with Database(settings, session=KEEP_PLANS) as database:
        await database.wait_available(20)

        async def read(first: UUID, last: UUID) -> list[UUID]:
            rows = await fetch_between(
                database, statements.ITEMS_BETWEEN, first, last,
                OURS.tenant, march, first, last,
            )  # fmt: skip
            return [row["id"] for row in rows]

        whole, of_march = statements.ITEMS_BETWEEN, "from items_202603\n"
        assert await read(march, late) == [march, late]
        assert await read(late, april) == [late, april]
        assert [of_march in asked[0], asked[1]] == [True, whole]
        asked.clear()
        await database.execute("drop table items_202603")
        assert await read(march, late) == []
        assert [of_march in asked[0], asked[1]] == [True, whole]
        asked.clear()
        beyond = UUID(int=2**128 - 1)
        assert await read(beyond, beyond) == []
        assert asked == [whole]


async def test_connections_keep_their_plans_after_a_statement_that_was_cut_off(
    databases: Databases, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("baton.postgres.pool.CLOSE_SECONDS", PATIENCE_SECONDS)
    settings = state_settings(await databases.migrated(), connections=1)
    async with Database(settings, session=KEEP_PLANS) as database:
        await database.wait_available(20)
        with pytest.raises(SlowStatementError):
            await database.fetch("select pg_sleep(60)", seconds=0.05)
        assert await database.fetch("show plan_cache_mode") == [("force_generic_plan",)]
