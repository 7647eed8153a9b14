"""A process's connections to a real Postgres: away, back, slow, refusing, with another schema."""

import asyncio
import os
import signal
import sys
from pathlib import Path

import pytest

from baton.postgres.budget import wait_budget
from baton.postgres.connecting import DatabaseUnavailableError, RefusedError, StateError, connected
from baton.postgres.database import Database
from baton.postgres.local.programs import remove_data
from baton.postgres.local.server import LocalPostgres
from baton.usage.record import encode
from baton.usage.sinks.postgres import PostgresSink
from tests.support.clock import PATIENCE_SECONDS, Stopwatch
from tests.support.state.databases import Databases, state_settings
from tests.support.usage.records import begun
from tests.support.wait import eventually

WAIT_SECONDS = 20.0


async def test_its_first_attempt_is_waited_for(
    databases: Databases, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("baton.postgres.database.START_SECONDS", PATIENCE_SECONDS)
    there = state_settings(await databases.migrated(), connect_seconds=PATIENCE_SECONDS)
    async with Database(there) as database:
        await database.wait_tried()
        assert database.available
    async with Database(state_settings("postgresql://baton@127.0.0.1:1/none")) as database:
        await database.wait_tried()
        assert "is unreachable" in database.problem


async def test_it_is_entered_while_postgres_is_away_and_used_once_it_is_back(
    own_postgres: LocalPostgres,
) -> None:
    databases = Databases(own_postgres)
    settings = state_settings(await databases.migrated())
    await own_postgres.stop()
    async with Database(settings) as database:
        with pytest.raises(DatabaseUnavailableError):
            await database.fetch("select 1")
        await eventually(lambda: "is unreachable" in database.problem)
        await own_postgres.start()
        await database.wait_available(WAIT_SECONDS)
        assert await database.fetch("select $1::int + 1", 1) == [(2,)]

        slow = asyncio.ensure_future(database.fetch("select pg_sleep(60)"))
        await eventually(lambda: _runs(database, "pg_sleep"))
        await own_postgres.kill()
        with pytest.raises(DatabaseUnavailableError):
            await slow
        assert not database.available
        await own_postgres.start()
        await database.wait_available(WAIT_SECONDS)
        assert await database.fetch("select 1") == [(1,)]


async def _runs(database: Database, part: str) -> bool:
    rows = await database.fetch(
        "select from pg_stat_activity where query like '%' || $1 || '%' and state = 'active' "
        "and pid <> pg_backend_pid()",
        part,
    )
    return bool(rows)


async def test_statements_have_a_deadline_and_a_bounded_queue(databases: Databases) -> None:
    settings = state_settings(
        await databases.migrated(), connections=1, max_waiting=1, statement_seconds=30
    )
    async with Database(settings) as database:
        await database.wait_available(WAIT_SECONDS)
        with pytest.raises(DatabaseUnavailableError, match="did not respond in time"):
            await database.fetch("select pg_sleep(60)", seconds=0.05)
        await database.wait_available(WAIT_SECONDS)  # it was only one statement
        async with database.connection():
            waits = asyncio.ensure_future(database.fetch("select 1"))
            await asyncio.sleep(0)
            with pytest.raises(StateError, match="1 statements are waiting for a connection"):
                await database.fetch("select 1")
        assert await waits == [(1,)]
        assert database.available


async def test_statements_of_a_block_have_one_budget(databases: Databases) -> None:
    async with Database(state_settings(await databases.migrated())) as database:
        await database.wait_available(WAIT_SECONDS)
        with wait_budget(0.2), database.budget():  # the one that ends first holds
            with pytest.raises(DatabaseUnavailableError, match="did not respond in time"):
                await database.fetch("select pg_sleep(60)")
            with pytest.raises(DatabaseUnavailableError, match="did not respond in time"):
                await database.execute("select 1")
            assert await database.fetch("select 1", seconds=60) == [(1,)]
        assert await database.fetch("select 1") == [(1,)]


async def test_a_server_that_hangs_holds_nobody_up_and_is_used_once_it_goes_on(
    own_postgres: LocalPostgres,
) -> None:
    url = await Databases(own_postgres).migrated()
    settings = state_settings(url, statement_seconds=0.3, connect_seconds=0.3)
    async with Database(settings) as database:
        await database.wait_available(WAIT_SECONDS)
        assert await database.fetch("select 1") == [(1,)]
        processes = [own_postgres.pid, *_children(own_postgres.pid)]
        for pid in processes:
            os.kill(pid, signal.SIGSTOP)
        try:
            watch = Stopwatch()
            with pytest.raises(DatabaseUnavailableError, match="did not respond in time"):
                await database.fetch("select 1")
            assert watch.remaining(10.0)
            await eventually(lambda: not database.available)
            with pytest.raises(DatabaseUnavailableError):  # at once
                await database.fetch("select 1")
        finally:
            for pid in processes:
                os.kill(pid, signal.SIGCONT)
        await database.wait_available(WAIT_SECONDS)
        assert await database.fetch("select 1") == [(1,)]


def _children(pid: int | None) -> list[int]:
    text = Path(f"/proc/{pid}/task/{pid}/children").read_text()
    return [int(child) for child in text.split()]


async def test_a_role_needs_no_more_rights_than_it_uses(databases: Databases) -> None:
    url = await databases.migrated()
    async with connected(state_settings(url)) as connection:
        await connection.execute("create role frontend login")
        await connection.execute("grant select on baton_schema to frontend")
        await connection.execute("grant select, insert on usage_records to frontend")
    async with Database(state_settings(url.replace("baton@", "frontend@"))) as database:
        await database.wait_available(WAIT_SECONDS)
        await PostgresSink(database).write([encode(begun())])
        assert await database.fetch("select count(*) from usage_records") == [(1,)]
        with pytest.raises(StateError, match="permission denied"):
            await database.execute("delete from usage_records")
        assert database.available


async def test_what_postgres_refuses_is_told_apart(databases: Databases) -> None:
    async with Database(state_settings(await databases.migrated())) as database:
        await database.wait_available(WAIT_SECONDS)
        for query, value in (
            ("select $1::int2", 100_000),  # not written
            ("select $1::text", "\0"),  # not read
            ("insert into usage_records (id) values ($1)", "00000000-0000-7000-8000-000000000000"),
        ):
            with pytest.raises(RefusedError):
                await database.fetch(query, value)
        with pytest.raises(StateError, match="syntax error") as caught:
            await database.fetch("selec 1")
        assert not isinstance(caught.value, (RefusedError, DatabaseUnavailableError))
        assert database.available


async def test_another_schema_is_waited_for_by_name(databases: Databases) -> None:
    settings = state_settings(await databases.migrated())
    async with connected(settings) as connection:
        await connection.execute("update baton_schema set version_num = '9999'")
        async with Database(settings) as database:  # a newer one that only adds
            await database.wait_available(WAIT_SECONDS)
        await connection.execute("update baton_schema_oldest set revision = '9999'")
        async with Database(settings) as database:
            await eventually(lambda: "9999 is unknown to this release" in database.problem)
            await connection.execute("delete from baton_schema")
            await eventually(lambda: "run `baton db upgrade`" in database.problem)
            with pytest.raises(DatabaseUnavailableError, match="run `baton db upgrade`"):
                await database.fetch("select 1")


async def test_a_server_ends_with_who_started_it(tmp_path: Path) -> None:
    directory = tmp_path / "postgres"
    code = (
        "import asyncio, os, sys; from pathlib import Path; "
        "from baton.postgres.local.server import LocalPostgres\n"
        "async def main():\n"
        "    server = LocalPostgres(Path(sys.argv[1])); await server.start()\n"
        "    print(server.pid, flush=True); os.kill(os.getpid(), 9)\n"
        "asyncio.run(main())"
    )
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", code, str(directory), stdout=asyncio.subprocess.PIPE
    )
    try:
        out, _ = await process.communicate()
        assert process.returncode == -signal.SIGKILL
        assert await eventually(lambda: not _lives(int(out)))
        assert not list(directory.glob(".s.PGSQL.*"))
    finally:
        remove_data(directory)


def _lives(pid: int) -> bool:
    try:
        os.kill(pid, 0)
        return "Z" not in Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (ProcessLookupError, FileNotFoundError):
        return False
