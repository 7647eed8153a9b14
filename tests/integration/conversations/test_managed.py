"""Conversations that clients manage, in a real Postgres."""

import asyncio
from collections.abc import Sequence
from uuid import UUID

import pytest

from baton.conversations.ids import RESPONSE, draw_block, text_of
from baton.conversations.managed.conversations import Bodies
from baton.conversations.managed.records import ManagedConversation
from baton.conversations.records import StateScope, StoredPath, Turn
from baton.conversations.store import ConversationStore
from baton.errors import BatonError, Reason
from baton.postgres.database import Database
from baton.settings import ConversationSettings
from tests.integration.conversations.test_store import NOW, OURS, database, name, store, turn

__all__ = ["database", "store"]  # fixtures


def bodies(*texts: str) -> Bodies:
    def of_block(_: UUID) -> Sequence[str]:
        return texts

    return of_block


async def made(store: ConversationStore, *texts: str, later: int = 0) -> ManagedConversation:
    """Create a conversation, `later` milliseconds after others."""
    return await store.managed.create(OURS, "{}", bodies(*texts), len(texts), NOW + later)


async def texts(store: ConversationStore, conversation: ManagedConversation) -> list[str]:
    found = await store.managed.get(OURS, conversation.text)
    items = await store.items(OURS, found.end)
    assert await store.managed.history(OURS, conversation.text) == (found, items)
    return [item.body for item in items]


async def test_of_turns_at_once_one_is_written_and_others_name_it(
    store: ConversationStore,
) -> None:
    path = (await made(store, "a")).end
    turns = [turn(number, path) for number in range(1, 9)]
    results = await asyncio.gather(
        *(store.write(OURS, each) for each in turns), return_exceptions=True
    )
    (winner,) = [each for each, result in zip(turns, results, strict=True) if result is None]
    errors = [result for result in results if isinstance(result, BatonError)]
    assert [error.reason for error in errors] == [Reason.CONVERSATION_LOCKED] * 7
    assert all(name(winner.id) in error.message for error in errors)


async def test_additions_at_once_all_come_in_and_a_turn_that_does_not_know_them_does_not(
    store: ConversationStore,
) -> None:
    conversation = await made(store)
    before = conversation.end
    added = [f"{number}" for number in range(4)]
    await asyncio.gather(
        *(store.managed.add(OURS, conversation.text, bodies(one), 1, NOW) for one in added)
    )
    assert sorted(await texts(store, conversation)) == added
    with pytest.raises(BatonError, match="its items were changed") as caught:
        await store.write(OURS, turn(1, before))
    assert caught.value.reason is Reason.CONVERSATION_LOCKED


async def test_what_is_deleted_while_a_turn_is_computed_leaves_nothing(
    store: ConversationStore, database: Database
) -> None:
    conversation = await made(store, "a")
    first = turn(1, conversation.end)
    await store.write(OURS, first)
    # Without any item: it is found all the same.
    path = (await store.managed.get(OURS, conversation.text)).end
    empty = Turn(draw_block(NOW, path.last_item), [], 0, "completed", "{}", path)
    await store.write(OURS, empty)
    path = (await store.managed.get(OURS, conversation.text)).end
    await store.managed.delete(OURS, conversation.text)
    with pytest.raises(BatonError) as caught:
        await store.write(OURS, turn(3, path))
    assert caught.value.reason is Reason.NOT_FOUND
    for table in ("conversations", "items", "responses"):
        assert await database.fetch(f"select count(*) from {table}") == [(0,)], table


async def test_limits_are_of_items_and_bytes(store: ConversationStore, database: Database) -> None:
    settings = ConversationSettings(enabled=True, max_items=3, max_conversation_bytes=1024)
    small = ConversationStore(database, settings)
    conversation = await made(small, "a", "b")
    for given, limit in ((("c", "d"), "max_items"), (("x" * 1023,), "max_conversation_bytes")):
        with pytest.raises(BatonError, match=limit) as caught:
            await small.managed.add(OURS, conversation.text, bodies(*given), len(given), NOW)
        assert caught.value.field == "items"
    await small.managed.add(OURS, conversation.text, bodies("c"), 1, NOW)
    assert await texts(store, conversation) == ["a", "b", "c"]
    for change in ({"max_items": 2}, {"max_conversation_bytes": 2}):  # they were larger before
        smaller = ConversationStore(database, settings.model_copy(update=change))
        assert (await smaller.managed.history(OURS, conversation.text))[1] is None


async def test_a_deleted_item_is_not_counted_and_pages_go_on(store: ConversationStore) -> None:
    conversation = await made(store, *"abcde")
    managed = store.managed
    page = await managed.page(OURS, conversation, 2, None, newest_first=False)
    left = await managed.delete_item(OURS, conversation.text, page[1].id, "msg_1")
    assert (left.total_items, left.total_bytes) == (4, 4)
    for newest_first, expected in ((False, "cde"), (True, "a")):
        rest = await managed.page(OURS, left, 9, page[1].id, newest_first=newest_first)
        assert [item.body for item in rest] == list(expected)


async def test_conversations_are_their_projects(store: ConversationStore) -> None:
    conversation = await made(store, "a")
    (item,) = await store.managed.page(OURS, conversation, 1, None, newest_first=True)
    await store.write(OURS, turn(0))  # a chain is no conversation of theirs
    assert [one.id for one in await store.managed.recent(OURS, 9)] == [conversation.id]
    for scope in (StateScope("acme", "proj_2"), StateScope("other", "proj_1")):
        assert await store.managed.recent(scope, 9) == []
        for calling in (
            store.managed.get(scope, conversation.text),
            store.managed.history(scope, conversation.text),
            store.managed.update(scope, conversation.text, "{}"),
            store.managed.delete(scope, conversation.text),
            store.managed.add(scope, conversation.text, bodies("b"), 1, NOW),
            store.managed.item(scope, conversation.text, item.id, "msg_1"),
            store.managed.delete_item(scope, conversation.text, item.id, "msg_1"),
        ):
            with pytest.raises(BatonError) as caught:
                await calling
            expected = f"conversation {conversation.text!r} does not exist"
            assert (caught.value.reason, caught.value.message) == (Reason.NOT_FOUND, expected)
    assert await texts(store, conversation) == ["a"]


async def test_the_last_response_is_found_behind_added_items(store: ConversationStore) -> None:
    conversation = await made(store)
    assert await store.managed.last_response(OURS, conversation) is None
    written = turn(1, conversation.end)
    await store.write(OURS, written)
    await store.managed.add(OURS, conversation.text, bodies("x"), 1, NOW)
    found = await store.managed.get(OURS, conversation.text)
    assert await store.managed.last_response(OURS, found) == written.body
    path: StoredPath = await store.path(OURS, text_of(RESPONSE, written.id))
    assert not path.extends
