"""Connections of a process: lent, handed on, recovered, and opened again, in a real Postgres."""

import asyncio
import random
from typing import Any

import pytest

from baton.postgres.connecting import StateError
from baton.postgres.database import Database
from baton.postgres.pool import DatabasePool
from tests.support.clock import PATIENCE_SECONDS
from tests.support.state.databases import Databases, state_settings

PID = "select pg_backend_pid()"


async def test_a_statement_needs_no_task_and_no_other_statement(databases: Databases) -> None:
    async with Database(state_settings(await databases.migrated())) as database:
        await database.wait_available(20)
        asked: list[str] = []
        async with database.connection() as connection:
            connection.add_query_logger(lambda record: asked.append(record.query))
        loop, tasks, this = asyncio.get_running_loop(), 0, asyncio.current_task()

        def counted(loop: asyncio.AbstractEventLoop, work: Any, **options: Any) -> Any:
            nonlocal tasks
            tasks += asyncio.current_task() is this  # the database opens connections beside
            return asyncio.Task(work, loop=loop, **options)

        loop.set_task_factory(counted)
        try:
            for _ in range(3):
                await database.fetch("select 1")
                await database.execute("select $1::int", 2)
        finally:
            loop.set_task_factory(None)
        await asyncio.sleep(0)  # asyncpg tells of a statement later
        assert asked == ["select 1", "select $1::int"] * 3
        assert tasks == 0


async def test_a_transaction_that_was_cut_off_is_rolled_back(
    databases: Databases, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("baton.postgres.pool.CLOSE_SECONDS", PATIENCE_SECONDS)
    settings = state_settings(await databases.migrated(), connections=1)
    async with Database(settings) as database:
        await database.wait_available(20)
        await database.execute("create table made (a int)")
        async with database.connection() as connection:
            await connection.execute("begin; insert into made values (1)")
        assert await database.fetch("select a from made") == []
        with pytest.raises(ZeroDivisionError):
            async with database.connection() as connection:
                await connection.execute("begin; insert into made values (2); set search_path = x")
                raise ZeroDivisionError
        assert await database.fetch("select a from made") == []
        ((pid,),) = await database.fetch(PID)
        slow = asyncio.ensure_future(database.fetch("select pg_sleep(60), pg_backend_pid()"))
        await asyncio.sleep(0.05)
        slow.cancel()
        with pytest.raises(asyncio.CancelledError):
            await slow
        assert await database.fetch(PID) == [(pid,)]


async def test_who_waits_gets_the_next_connection_or_the_space_of_a_lost_one(
    databases: Databases,
) -> None:
    settings = state_settings(await databases.migrated(), connections=1, max_waiting=2)
    pool = DatabasePool(settings)
    assert pool.take() is None
    first: Any = await pool.wait()
    leaves, waits = (asyncio.ensure_future(pool.wait()) for _ in range(2))
    await asyncio.sleep(0)
    with pytest.raises(StateError, match="2 statements are waiting"):
        await pool.wait()
    leaves.cancel()
    await asyncio.wait([leaves])
    pool.release(first)
    assert pool.take() is None
    assert await waits is first

    late, waits = (asyncio.ensure_future(pool.wait()) for _ in range(2))
    await asyncio.sleep(0)
    pool.release(first)  # it is the turn of one that leaves now
    late.cancel()
    await asyncio.wait([late])
    assert await waits is first

    waits = asyncio.ensure_future(pool.wait())
    await asyncio.sleep(0)
    first.terminate()
    pool.release(first)
    second: Any = await waits
    assert second is not first

    late, waits = (asyncio.ensure_future(pool.wait()) for _ in range(2))
    await asyncio.sleep(0)
    pool.expire()
    pool.release(second)
    late.cancel()  # while it opens one
    await asyncio.wait([late])
    assert second.is_closed()
    third: Any = await waits
    pool.release(third)
    pool.close_idle(60.0)
    assert [pool.take()] == [third]
    pool.release(third)
    pool.close_idle()
    assert third.is_closed()
    await pool.close()


async def test_random_ends_leave_all_connections_usable(databases: Databases) -> None:
    settings = state_settings(await databases.migrated(), connections=3, max_waiting=1000)
    draw = random.Random(7)
    async with Database(settings) as database:
        await database.wait_available(20)

        async def use(number: int) -> int:
            if number % 3 == 0:
                async with database.connection() as connection, connection.transaction():
                    await connection.fetch("select pg_sleep($1)", draw.random() / 200)
                    return int(await connection.fetchval("select $1::int", number))
            if number % 7 == 0:
                await database.fetch("select pg_terminate_backend(pg_backend_pid())")
            ((found, _),) = await database.fetch(
                "select $1::int, pg_sleep($2)", number, draw.random() / 200
            )
            return int(found)

        uses = {number: asyncio.ensure_future(use(number)) for number in range(150)}
        for running in uses.values():
            if draw.random() < 0.3:
                await asyncio.sleep(draw.random() / 500)
                running.cancel()
        results = await asyncio.gather(*uses.values(), return_exceptions=True)
        expected = asyncio.CancelledError, StateError
        for number, result in zip(uses, results, strict=True):
            assert result == number or isinstance(result, expected), result
        await database.wait_available(20)
        async with (
            database.connection() as one,
            database.connection() as two,
            database.connection() as three,
        ):
            pids = [await each.fetchval(PID) for each in (one, two, three)]
            count = "select count(*) from pg_stat_activity where datname = current_database()"
            assert len(set(pids)) == 3
            assert await one.fetchval(f"{count} and state <> 'active' or pid = any($1)", pids) == 3
