"""Postgres answers what the records themselves do, in time, beside others."""

import asyncio
import random
from collections.abc import AsyncIterator
from typing import Any

import pytest

from baton.postgres.connecting import StateError, connected
from baton.postgres.database import Database
from baton.usage.record import UsageRecord
from baton.usage.report.question import Question, UsageGroup
from baton.usage.report.table import TooLongError, UsageTable
from baton.usage.report.totals import PRICE_COLUMNS
from tests.support.pairwise import pairwise
from tests.support.state.databases import Databases, state_settings
from tests.support.usage.random_records import DAYS, FIRST_DAY, bring, random_record

WAIT_SECONDS = 20.0
DAY = 86_400
BEGIN, END = FIRST_DAY * DAY, (FIRST_DAY + DAYS) * DAY
TENANTS = (("acme", ("proj_01", "proj_02", "")), ("other", ("proj_03", "proj_01")))


@pytest.fixture(scope="module")
def records() -> list[UsageRecord]:
    draw = random.Random(3)
    return [random_record(draw, TENANTS) for _ in range(400)]


@pytest.fixture
async def database(databases: Databases, records: list[UsageRecord]) -> AsyncIterator[Database]:
    url = await databases.migrated()
    await bring(url, records)
    async with Database(state_settings(url)) as database:
        await database.wait_available(WAIT_SECONDS)
        yield database


def known(groups: list[UsageGroup]) -> dict[Any, Any]:
    found = {(group.begin, group.labels): group.sums for group in groups}
    assert len(found) == len(groups)
    return found


async def test_the_answer_is_that_of_the_records(
    database: Database, records: list[UsageRecord]
) -> None:
    table = UsageTable(database)
    matrix = pairwise(
        ((0, 10**11), (BEGIN, END), (BEGIN + 4711, END - 4711), (END, END + DAY)),
        (0, 60, 3600, DAY),
        ((), ("project",), ("tenant", "key", "tier"), PRICE_COLUMNS),
        (None, "acme"),
        (None, ("proj_01", "proj_03"), ()),
        ({}, {"names": ("m", "tuned")}, {"line_items": ("tuned, batch", "n")}),
        (None, True, False),
        (None, ("key_010", "key_031")),
    )
    for (begin, end), width, by, tenant, projects, more, batch, keys in matrix:
        if (begin, width) == (0, 60):
            continue  # what a page may ask for is shorter
        question = Question(
            *(begin, end, width, by, tenant), projects=projects, batch=batch, keys=keys, **more
        )
        groups = await table.read(question, 10)
        assert [group.begin for group in groups] == sorted(group.begin for group in groups)
        assert known(groups) == known(question.answer(records)), question


async def test_the_first_groups_are_returned(
    database: Database, records: list[UsageRecord]
) -> None:
    question = Question(BEGIN, END, 3600, ("project",))
    table = UsageTable(database)
    whole, some = await table.read(question, 10), await table.read(question, 10, 7)
    assert some == whole[:7]


async def test_a_report_says_how_new_its_records_are(
    database: Database, records: list[UsageRecord]
) -> None:
    scope = Question(tenant="acme", projects=("proj_02",))
    groups, fresh = await UsageTable(database).report(Question(by=("tenant",)), scope, 10)
    assert sum(group.sums.requests for group in groups) == len(records)
    newest = max(one.began_ms for one in records if scope.wants(one))
    assert fresh.latest == newest / 1000
    assert fresh.now > newest / 1000
    _, none = await UsageTable(database).report(scope, Question(tenant="nobody"), 10)
    assert none.latest is None


async def test_what_takes_too_long_ends_and_leaves_the_database_available(
    database: Database, records: list[UsageRecord]
) -> None:
    table = UsageTable(database, at_once=1)
    async with connected(database._settings) as blocker, blocker.transaction():
        await blocker.execute("lock table usage_records in access exclusive mode")
        first = asyncio.ensure_future(table.read(Question(), 0.3))
        second = asyncio.ensure_future(table.read(Question(), 0.2))  # waits for its turn
        for one in (second, first):
            with pytest.raises(TooLongError):
                await one
        assert database.available
        assert await database.fetch("select 1") == [(1,)]
    assert await table.read(Question(by=("tenant",)), 10)


async def test_it_reads_only(database: Database) -> None:
    with pytest.raises(StateError, match="read-only"):
        async with UsageTable(database)._asking(5) as fetch:
            await fetch("delete from usage_records")
