"""A store whose Postgres is away, frozen, slow for some, or of another release."""

import asyncio

import pytest

from baton.conversations.opening import open_conversations
from baton.conversations.records import StateScope
from baton.conversations.store import ConversationStore
from baton.errors import BatonError, Reason
from baton.postgres.connecting import connected
from baton.postgres.database import Database
from baton.postgres.local.server import LocalPostgres
from baton.settings import ConversationSettings, StartupError, StateSettings
from baton.usage.record import encode
from baton.usage.sinks.postgres import PostgresSink
from tests.support.clock import Stopwatch
from tests.support.state.databases import Databases, state_settings
from tests.support.state.frozen import frozen
from tests.support.usage.records import begun
from tests.support.wait import eventually

OURS = StateScope("acme", "")
UNKNOWN = f"resp_{0:032x}"


async def reason_of(store: ConversationStore) -> Reason:
    with pytest.raises(BatonError) as caught:
        await store.path(OURS, UNKNOWN)
    if caught.value.reason is Reason.UNAVAILABLE:
        assert caught.value.retry_after == 1.0
    return caught.value.reason


async def is_open(store: ConversationStore) -> bool:
    return await reason_of(store) is Reason.NOT_FOUND


async def test_what_needs_a_frozen_or_dead_database_fails_soon_until_it_is_back(
    own_postgres: LocalPostgres, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Statements end at their time, not when their connections have ended.
    monkeypatch.setattr("baton.postgres.pool.CLOSE_SECONDS", 60.0)
    state = state_settings(await Databases(own_postgres).migrated(), connect_seconds=2.0)
    settings = ConversationSettings(enabled=True, statement_seconds=0.5, connections=2)
    async with open_conversations(state, settings) as store:
        assert store is not None
        await eventually(lambda: is_open(store))
        with frozen(own_postgres):
            watch = Stopwatch()
            reasons = await asyncio.gather(*(reason_of(store) for _ in range(20)))
            assert set(reasons) == {Reason.UNAVAILABLE}
            assert watch.remaining(20.0)
        await eventually(lambda: is_open(store))
        await own_postgres.kill()
        assert await reason_of(store) is Reason.UNAVAILABLE
        await own_postgres.start()
        await eventually(lambda: is_open(store))


async def test_a_slow_statement_fails_alone(databases: Databases) -> None:
    async with Database(state_settings(await databases.migrated(), connections=2)) as database:
        await database.wait_available(20)
        store = ConversationStore(database, ConversationSettings(enabled=True))
        for _ in range(3):
            with pytest.raises(Exception, match="did not respond in time"):
                await database.fetch("select pg_sleep(60)", seconds=0.05)
            assert database.available
            assert await reason_of(store) is Reason.NOT_FOUND


async def test_a_release_runs_on_the_schema_before_its_own(databases: Databases) -> None:
    url = await databases.migrated()
    async with connected(state_settings(url)) as connection:
        await connection.execute(
            "drop table responses, items, conversations, baton_schema_oldest cascade; "
            "update baton_schema set version_num = '0003'"
        )
    async with Database(state_settings(url)) as usage:
        await usage.wait_available(20)
        await PostgresSink(usage).write([encode(begun())])
    settings = ConversationSettings(enabled=True)
    async with open_conversations(state_settings(url), settings) as store:
        assert store is not None
        assert await reason_of(store) is Reason.UNAVAILABLE


async def test_a_store_needs_a_database() -> None:
    async with open_conversations(StateSettings(), ConversationSettings()) as store:
        assert store is None
    with pytest.raises(StartupError, match="needs a database"):
        async with open_conversations(StateSettings(), ConversationSettings(enabled=True)):
            pass
