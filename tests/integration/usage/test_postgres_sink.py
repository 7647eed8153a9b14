"""Usage records in a real Postgres: each once, whatever breaks on the way."""

import asyncio
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any

import msgspec
import pytest
from structlog.testing import capture_logs

from baton.postgres.connecting import StateError, connected
from baton.postgres.database import Database
from baton.postgres.local.server import LocalPostgres
from baton.spool.delivery import Delivery
from baton.spool.sink import SinkError
from baton.spool.spool import Spool
from baton.usage.metrics import USAGE
from baton.usage.record import UsageRecord, encode
from baton.usage.retention import delete_before
from baton.usage.sinks.postgres import PostgresSink
from tests.support.state.databases import Databases, state_settings
from tests.support.usage.records import DAY_MS, begun, ended, usage_settings
from tests.support.wait import eventually

WAIT_SECONDS = 20.0
FAST = 0.005


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """What failed is tried again soon."""
    monkeypatch.setattr("baton.spool.delivery._FIRST_RETRY_SECONDS", FAST)
    monkeypatch.setattr("baton.spool.delivery._LONGEST_RETRY_SECONDS", 4 * FAST)
    monkeypatch.setattr("baton.postgres.database.FIRST_RETRY_SECONDS", FAST)
    monkeypatch.setattr("baton.postgres.database.LONGEST_RETRY_SECONDS", 4 * FAST)


@pytest.fixture
async def database(databases: Databases) -> AsyncIterator[Database]:
    async with Database(state_settings(await databases.migrated())) as database:
        await database.wait_available(WAIT_SECONDS)
        yield database


async def rows(database: Database) -> list[dict[str, Any]]:
    return [dict(row) for row in await database.fetch("select * from usage_records order by id")]


def row_of(record: UsageRecord) -> dict[str, Any]:
    """Return the row that a record becomes."""
    row = msgspec.structs.asdict(record)
    for name in ("began_ms", "ended_ms"):
        ms = row.pop(name)
        instant = None if ms is None else datetime.fromtimestamp(ms / 1000, UTC)
        row[name.removesuffix("_ms")] = instant
    return row | {"finish_reasons": list(record.finish_reasons)}


async def test_each_field_is_a_column_and_each_record_a_row(database: Database) -> None:
    whole = ended(
        begun("whole", batch=True, adapter="a", began_ms=1_795_413_600_123),
        ended_ms=1_795_413_601_999,
        queue_seconds=0.1,
        kv_byte_seconds=1e15,
        prompt_tokens=2**40,
        finish_reasons=("stop", "", 'a"b,{}\\ü'),
        cost_nanodollars=2**53 + 1,
    )
    lost = begun("lost", project="", key="")
    sink = PostgresSink(database)
    newer = encode(lost)[:-1] + b',"a field of a newer release":{"x":[1]}}'
    await sink.write([encode(whole), newer, encode(whole)])
    await sink.write([newer, encode(whole)])
    found = await rows(database)
    assert [row | {"id": str(row["id"])} for row in found] == [row_of(lost), row_of(whole)]


@pytest.mark.parametrize(
    "field",
    [
        {"prompt_tokens": 2**63},
        {"request_id": "nul \0"},
        {"id": "not-a-uuid"},
        {"began_ms": 2**62},
        {"tenant": None},
    ],
    ids=lambda field: next(iter(field)),
)
async def test_what_postgres_refuses_is_told_and_holds_up_no_other(
    database: Database, field: dict[str, Any]
) -> None:
    good = [ended(begun(f"good-{number}")) for number in range(9)]
    lines = [encode(record) for record in good]
    bad = msgspec.json.encode(msgspec.json.decode(encode(begun("bad"))) | field)
    lines.insert(random.randrange(10), bad)
    with capture_logs() as logs:
        await PostgresSink(database).write(lines)
    assert [row["request_id"] for row in await rows(database)] == [r.request_id for r in good]
    (told,) = [line for line in logs if line["event"] == "usage.record.refused"]
    assert (told["log_level"], told["record"]) == ("error", bad.decode())
    assert database.available


async def test_a_database_that_is_not_ready_is_an_error_with_its_reason(
    databases: Databases, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("baton.usage.sinks.postgres.WAIT_SECONDS", FAST)
    async with Database(state_settings(await databases.empty())) as database:
        await eventually(lambda: "run `baton db upgrade`" in database.problem)
        with pytest.raises(SinkError, match="run `baton db upgrade`"):
            await PostgresSink(database).write([encode(begun())])


async def test_old_records_are_deleted_by_the_day_they_began(databases: Databases) -> None:
    settings = state_settings(await databases.migrated())
    day = date(2026, 11, 23)
    midnight = int(datetime(2026, 11, 23, tzinfo=UTC).timestamp() * 1000)
    kept = [begun("new", began_ms=midnight), begun("newer", began_ms=midnight + DAY_MS)]
    old = [begun(str(number), began_ms=midnight - 1 - number) for number in range(3)]
    async with Database(settings) as database:
        await database.wait_available(WAIT_SECONDS)
        await PostgresSink(database).write([encode(record) for record in (*old, *kept)])
        assert await delete_before(settings, day) == 3
        assert [row["request_id"] for row in await rows(database)] == ["new", "newer"]
        assert await delete_before(settings, day) == 0


@asynccontextmanager
async def delivering(path: Path, database: Database) -> AsyncIterator[Spool]:
    sink = PostgresSink(database)
    async with (
        Spool(path, usage_settings(path), [sink.name], USAGE) as spool,
        Delivery(spool, sink, FAST),
    ):
        yield spool


async def test_all_is_there_once_though_postgres_is_killed_again_and_again(
    own_postgres: LocalPostgres, tmp_path: Path
) -> None:
    settings = state_settings(await Databases(own_postgres).migrated())
    records = [begun(str(number)) for number in range(6000)]
    async with Database(settings) as database, delivering(tmp_path / "spool", database) as spool:
        await database.wait_available(WAIT_SECONDS)
        # In the middle of a transaction: its rows are in, and its commit waits.
        async with connected(settings) as holder:
            await holder.execute(
                "create function wait() returns trigger language plpgsql as "
                "$$ begin perform pg_advisory_xact_lock(1); return null; end $$"
            )
            await holder.execute(
                "create trigger wait after insert on usage_records execute function wait()"
            )
            await holder.execute("select pg_advisory_lock(1)")
            bring(spool, records[:500])
            await eventually(lambda: _waits(holder))
            await own_postgres.kill()
            await eventually(lambda: not database.available)
            await own_postgres.start()
        for part in range(500, 6000, 500):
            bring(spool, records[part : part + 500])
            await asyncio.sleep(random.random() / 20)
            if part % 1500 == 0:
                await own_postgres.kill()
                await own_postgres.start()
        await eventually(lambda: _has(database, len(records)))
        counted = await database.fetch(
            "select count(*), sum(output_tokens)::bigint, count(distinct request_id) "
            "from usage_records"
        )
        assert counted == [(6000, 6000 * 5, 6000)]
    assert not [path for path in (tmp_path / "spool").iterdir() if path.is_dir()]


def bring(spool: Spool, records: list[UsageRecord]) -> None:
    for record in records:
        assert spool.begin(record)
        spool.end(ended(record))


async def _waits(connection: Any) -> bool:
    query = "select count(*) from pg_locks where locktype = 'advisory' and not granted"
    return bool(await connection.fetchval(query))


async def _has(database: Database, count: int) -> bool:
    if not database.available:
        return False
    try:
        return await database.fetch("select count(*) from usage_records") == [(count,)]
    except StateError:
        return False
