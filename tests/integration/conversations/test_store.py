"""Turns in a real Postgres: whole or not at all, in order, and for their project only."""

import asyncio
import time
from collections.abc import AsyncIterator
from uuid import UUID

import pytest

from baton.conversations.ids import RESPONSE, draw_block, text_of
from baton.conversations.records import StateScope, StoredPath, Turn
from baton.conversations.store import ConversationStore
from baton.errors import BatonError, Reason
from baton.postgres.database import Database
from baton.postgres.revisions import CONVERSATIONS
from baton.settings import ConversationSettings
from tests.support.state.databases import Databases, state_settings

OURS = StateScope("acme", "proj_1")
NOW = int(time.time() * 1000)


@pytest.fixture
async def database(databases: Databases) -> AsyncIterator[Database]:
    settings = state_settings(await databases.migrated())
    async with Database(settings, "conversations", CONVERSATIONS) as database:
        await database.wait_available(20)
        yield database


@pytest.fixture
def store(database: Database) -> ConversationStore:
    return ConversationStore(database, ConversationSettings(enabled=True))


def turn(number: int, follows: StoredPath | None = None) -> Turn:
    """Return a turn of one item in and one out."""
    block = draw_block(NOW + number, None if follows is None else follows.last_item)
    items = [f'{{"in":{number}}}', f'{{"out":{number}}}']
    return Turn(block, items, 1, "completed", f'{{"turn":{number}}}', follows)


def name(ident: UUID) -> str:
    return text_of(RESPONSE, ident)


async def texts(store: ConversationStore, response: UUID) -> list[str]:
    path = await store.path(OURS, name(response))
    items = await store.items(OURS, path)
    # A branch has items of several conversations.
    assert await store.history(OURS, name(response)) == (path, None if path.prefix else items)
    return [item.body for item in items]


def both(*numbers: int) -> list[str]:
    return [text for number in numbers for text in (f'{{"in":{number}}}', f'{{"out":{number}}}')]


async def test_a_path_has_all_turns_in_order_and_branches_share_what_is_before(
    store: ConversationStore, database: Database
) -> None:
    made = {0: turn(0)}
    await store.write(OURS, made[0])  # there is no month yet: it makes them
    # 3 and 5 branch off 1; 6 branches off 5, whose conversation moved on to 7.
    for number, before in ((1, 0), (2, 1), (3, 1), (4, 3), (5, 1), (7, 5), (6, 5), (8, 6)):
        path = await store.path(OURS, name(made[before].id))
        made[number] = turn(number, path)
        await store.write(OURS, made[number])
    expected = {2: (0, 1, 2), 4: (0, 1, 3, 4), 7: (0, 1, 5, 7), 8: (0, 1, 5, 6, 8)}
    for number, numbers in expected.items():
        assert await texts(store, made[number].id) == both(*numbers)
        path = await store.path(OURS, name(made[number].id))
        assert path.total_items == 2 * len(numbers)
        assert path.total_bytes == sum(map(len, both(*numbers)))
    found = await store.response(OURS, name(made[4].id))
    assert (found.status, found.body) == ("completed", '{"turn":4}')
    assert [item.body for item in await store.input_items(OURS, found)] == ['{"in":4}']
    assert [item.body for item in await store.output_items(OURS, found)] == ['{"out":4}']

    for number in (2, 4, 7, 8, 0, 3, 1, 6):
        await store.delete_response(OURS, name(made[number].id))
        with pytest.raises(BatonError) as caught:
            await store.response(OURS, name(made[number].id))
        assert caught.value.reason is Reason.NOT_FOUND
    # What 5 continues is there although its own response is not.
    assert await texts(store, made[5].id) == both(0, 1, 5)
    await store.delete_response(OURS, name(made[5].id))
    for table in ("conversations", "items", "responses"):
        assert await database.fetch(f"select count(*) from {table}") == [(0,)], table


async def test_of_turns_at_once_one_moves_the_conversation_on_and_others_branch(
    store: ConversationStore, database: Database
) -> None:
    first = turn(0)
    await store.write(OURS, first)
    path = await store.path(OURS, name(first.id))
    turns = [turn(number, path) for number in range(1, 9)]
    await asyncio.gather(*(store.write(OURS, each) for each in turns))
    for number, each in enumerate(turns, 1):
        assert await texts(store, each.id) == both(0, number)
    assert await database.fetch("select count(*) from conversations") == [(8,)]


async def test_ids_work_for_their_project_only(store: ConversationStore) -> None:
    written = turn(0)
    await store.write(OURS, written)
    ident = name(written.id)
    wrong = (ident, "resp_1", "", ident.upper(), ident.replace("resp", "conv"), "resp_" + "\0" * 32)
    for at, text in enumerate(wrong):
        for scope in (StateScope("acme", "proj_2"), StateScope("other", "proj_1"), OURS)[
            : 3 if at else 2
        ]:
            for method in (store.path, store.history, store.response, store.delete_response):
                with pytest.raises(BatonError) as caught:
                    await method(scope, text)
                assert caught.value.reason is Reason.NOT_FOUND
                assert caught.value.message == f"response {text!r} does not exist"
    assert await texts(store, written.id) == both(0)


async def test_what_was_deleted_between_read_and_write_is_not_continued(
    store: ConversationStore, database: Database
) -> None:
    first = turn(0)
    await store.write(OURS, first)
    path = await store.path(OURS, name(first.id))
    await store.delete_response(OURS, name(first.id))
    with pytest.raises(BatonError) as caught:
        await store.write(OURS, turn(1, path))
    assert caught.value.reason is Reason.ABORTED
    assert await database.fetch("select count(*) from items") == [(0,)]
