"""Chat completions in a real Postgres: each once, for their project only, on any schema."""

import time
from collections.abc import AsyncIterator
from uuid import UUID

import pytest

from baton.conversations.completions.records import (
    CompletionFilter,
    StoredCompletion,
    completion_text,
)
from baton.conversations.completions.store import CompletionStore
from baton.conversations.ids import draw_block
from baton.conversations.records import StateScope
from baton.conversations.store import ConversationStore
from baton.errors import BatonError, Reason
from baton.postgres.database import Database
from baton.settings import ConversationSettings
from tests.support.state.databases import Databases, state_settings

OURS = StateScope("acme", "proj_1")
THEIRS = StateScope("acme", "proj_2"), StateScope("other", "proj_1")
NOW = int(time.time() * 1000)
ALL = CompletionFilter()


@pytest.fixture
async def database(databases: Databases) -> AsyncIterator[Database]:
    async with Database(state_settings(await databases.migrated())) as database:
        await database.wait_available(20)
        yield database


@pytest.fixture
def store(database: Database) -> ConversationStore:
    return ConversationStore(database, ConversationSettings(enabled=True))


def completion(number: int) -> StoredCompletion:
    ident = draw_block(NOW + number)
    return StoredCompletion(ident, "m", {"n": f"{number}"}, "[]", f'{{"n":{number}}}')


async def ids(store: CompletionStore, scope: StateScope = OURS) -> list[UUID]:
    return [one.id for one in await store.list(scope, ALL, 100)]


async def test_a_completion_is_stored_once_and_for_its_project_only(
    store: ConversationStore,
) -> None:
    made = [completion(number) for number in range(3)]
    for one in (*made, *made):
        await store.completions.write(OURS, one)  # the first one makes the months
    assert await ids(store.completions) == [one.id for one in made]
    name = completion_text(made[0].id)
    found = await store.completions.get(OURS, name)
    assert (found.body, found.metadata) == ('{"n":0}', '{"n":"0"}')
    for scope in THEIRS:
        assert await ids(store.completions, scope) == []
        for method in (
            store.completions.get(scope, name),
            store.completions.messages(scope, name),
            store.completions.update(scope, name, {}),
            store.completions.delete(scope, name),
        ):
            with pytest.raises(BatonError) as caught:
                await method
            assert caught.value.reason is Reason.NOT_FOUND
            assert caught.value.message == f"chat completion {name!r} does not exist"
    assert (await store.completions.get(OURS, name)) == found


async def test_a_database_that_is_not_upgraded_yet_serves_all_else(
    store: ConversationStore, database: Database
) -> None:
    await database.execute("drop table completions")
    assert (await store.maintain())[0]
    with pytest.raises(BatonError) as caught:
        await store.completions.write(OURS, completion(0))
    assert caught.value.reason is Reason.UNAVAILABLE
    assert "omit `store`" in caught.value.message
    assert database.available
