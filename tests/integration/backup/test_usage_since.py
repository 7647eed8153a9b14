"""What was spent since a backup, by the usage records in Postgres: as by those in files."""

import asyncio
from pathlib import Path
from typing import Any

from baton.backup.usage_since import UsageSince
from baton.host.bundled import root
from baton.postgres import schema
from baton.postgres.database import Database
from baton.postgres.local.programs import find_programs
from baton.postgres.revisions import problem_of
from baton.settings import StateSettings
from baton.usage.record import UsageRecord, encode
from baton.usage.sinks.postgres import PostgresSink
from tests.support.state.databases import Databases, state_settings
from tests.support.usage.records import begun

CREATED = 1_795_000_000
MONTH_SECONDS = 31 * 86_400


def request(number: int, **fields: Any) -> UsageRecord:
    """Return a request of one of six keys, that began in one of three months."""
    began = CREATED + (number % 3 - 1) * MONTH_SECONDS - number
    ended = began + number % 7 * 2
    known = {
        "tenant": f"tenant-{number % 2}",
        "project": f"proj_{number % 3}",
        "key": f"key_{number % 6}",
        "began_ms": began * 1000,
        "ended_ms": ended * 1000,
        "cost_nanodollars": 10**9 + number,
        "outcome": "ok",
    }
    return begun(**{**known, **fields})


async def test_sums_in_postgres_are_those_of_the_same_records_in_files(
    databases: Databases, tmp_path: Path
) -> None:
    records = [request(number) for number in range(60)]
    records += [request(3, cost_nanodollars=None), request(4, ended_ms=None, cost_nanodollars=None)]
    file = tmp_path / "usage-1.jsonl"
    _write(file, records)
    settings: StateSettings = state_settings(await databases.migrated())
    async with Database(settings) as database:
        await database.wait_available(20)
        sink = PostgresSink(database)
        await sink.write([encode(one) for one in records])
    stored, written = UsageSince(CREATED), UsageSince(CREATED)
    await stored.read_postgres(settings)
    written.read_files(tmp_path)
    assert set(stored.names()) == set(written.names())
    assert len(set(stored.names())) == 10, "of two months, and not of the one before"
    for _, name in written.names():
        for saved in (0, 1, 10**9, 10**11):
            assert stored.spent(name, saved) == written.spent(name, saved), name


def _write(path: Path, records: list[UsageRecord]) -> None:
    path.write_bytes(b"".join(encode(one) + b"\n" for one in records))


DUMP = "pg_dump --format=custom --no-owner --file=usage.dump"
RESTORE = "pg_restore --clean --if-exists --no-owner --exit-on-error --dbname"


async def test_a_dump_of_postgres_brings_back_records_and_schema(
    databases: Databases, tmp_path: Path
) -> None:
    """With the commands of docs/backup.md."""
    page = (root() / "docs" / "backup.md").read_text()
    assert f'{DUMP} "$BATON_STATE_URL"' in page
    assert f'{RESTORE}="$BATON_STATE_URL" usage.dump' in page
    source, target = await databases.migrated(), await databases.empty()
    async with Database(state_settings(source)) as database:
        await database.wait_available(20)
        await PostgresSink(database).write([encode(request(number)) for number in range(20)])
    for command, url in (
        ([*DUMP.split(), source], source),
        ([*RESTORE.split()[:-1], f"--dbname={target}", "usage.dump"], target),
        ([*RESTORE.split()[:-1], f"--dbname={target}", "usage.dump"], target),  # and again
    ):
        program = find_programs() / command[0]
        process = await asyncio.create_subprocess_exec(program, *command[1:], cwd=tmp_path)
        assert await process.wait() == 0, url
    assert problem_of(await schema.current(state_settings(target))) == ""
    stored, restored = UsageSince(CREATED), UsageSince(CREATED)
    await stored.read_postgres(state_settings(source))
    await restored.read_postgres(state_settings(target))
    assert {name: stored.spent(name, 0) for _, name in stored.names()} == {
        name: restored.spent(name, 0) for _, name in restored.names()
    }
    assert not stored.empty
