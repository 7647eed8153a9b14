"""Summaries in a real Postgres: each is written once, and deleted with what it says."""

import asyncio
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from baton.conversations.compactions.records import CompactedItems
from baton.conversations.records import StateScope, StoredPath
from baton.conversations.store import ConversationStore
from baton.errors import BatonError
from baton.postgres.database import Database
from baton.settings import ConversationSettings
from tests.integration.conversations.test_managed import made
from tests.integration.conversations.test_store import OURS, database, name, store, turn

__all__ = ["database", "store"]  # fixtures


async def chain(store: ConversationStore, turns: int) -> list[StoredPath]:
    """Return the paths of responses, each of which continues the one before."""
    paths: list[StoredPath] = []
    for number in range(turns):
        one = turn(number, paths[-1] if paths else None)
        await store.write(OURS, one)
        paths.append(await store.path(OURS, name(one.id)))
    return paths


def covering(path: StoredPath, **fields: Any) -> CompactedItems:
    """Return all items of a path."""
    conversations = [part.conversation for part in path.parts]
    first = conversations[0]
    items = CompactedItems(
        path.conversation, path.last_item, first, conversations, path.total_items, 9
    )
    return items._replace(**fields)


async def test_of_many_claims_one_wins_and_a_summary_is_written_once(
    store: ConversationStore,
) -> None:
    compactions, (first, last) = store.compactions, await chain(store, 2)
    items = covering(first)
    owners = [f"owner-{number}" for number in range(8)]
    claims = await asyncio.gather(
        *(compactions.claim(OURS, items, owner, 60.0) for owner in owners)
    )
    assert sorted(claims) == [False] * 7 + [True]
    winner = owners[claims.index(True)]
    (found,) = await compactions.latest(OURS, last)
    assert (found.body, found.running) == (None, True)
    assert not await compactions.write(OURS, items, "another", "{}")
    assert await compactions.write(OURS, items, winner, '{"a":1}')
    assert not await compactions.write(OURS, items, winner, '{"a":2}')
    assert not await compactions.claim(OURS, items, "late", 60.0)
    (found,) = await compactions.latest(OURS, last)
    assert (found.body, found.items, found.tokens) == ('{"a":1}', 2, 9)
    # It is no other tenant's, and of no path that ends before it.
    assert await compactions.latest(StateScope("other", ""), last) == []
    shorter = first._replace(last_item=first.conversation)
    assert await compactions.latest(OURS, shorter) == []


async def test_another_frontend_writes_what_one_could_not(store: ConversationStore) -> None:
    compactions, (path,) = store.compactions, await chain(store, 1)
    items = covering(path)
    assert await compactions.claim(OURS, items, "dead", 0.0)  # its lease has ended
    assert await compactions.claim(OURS, items, "failed", 60.0)
    assert not await compactions.write(OURS, items, "dead", "{}")
    await compactions.release(OURS, items, "failed", "no_worker", 60.0)
    (found,) = await compactions.latest(OURS, path)
    assert (found.body, found.error) == (None, "no_worker")
    assert not await compactions.claim(OURS, items, "early", 60.0)
    await compactions.release(OURS, items, "", "", 0.0)
    assert await compactions.claim(OURS, items, "next", 60.0)
    assert await compactions.write(OURS, items, "next", "{}")


async def test_a_summary_is_deleted_with_an_item_that_it_may_tell_of(
    store: ConversationStore, database: Database
) -> None:
    conversation = await made(store, '{"a":1}', '{"b":2}')
    path = conversation.end
    (first, second) = [item.id for item in await store.items(OURS, path)]
    early = covering(path, last_item=first, items=1)
    for items in (early, covering(path)):
        assert await store.compactions.claim(OURS, items, "mine", 60.0)
    with pytest.raises(BatonError):  # another project's
        await store.managed.delete_item(StateScope("acme", "b"), conversation.text, second, "")
    assert len(await store.compactions.latest(OURS, path)) == 2
    await store.managed.delete_item(OURS, conversation.text, second, "")
    assert not await store.compactions.write(OURS, covering(path), "mine", "{}")
    (found,) = await store.compactions.latest(OURS, path)
    assert found.last_item == first
    await store.managed.delete(OURS, conversation.text)
    assert await database.fetch("select 1 from compactions") == []
    assert not await store.compactions.claim(OURS, covering(path), "late", 60.0)


async def test_a_summary_is_dropped_with_the_month_of_its_first_item(
    store: ConversationStore, database: Database
) -> None:
    settings = ConversationSettings(enabled=True, retention_days=1)
    (path,) = await chain(store, 1)
    assert await store.compactions.claim(OURS, covering(path), "mine", 60.0)
    keeper = ConversationStore(database, settings)
    await keeper.maintain()
    assert len(await database.fetch("select 1 from compactions")) == 1
    await keeper.maintain(datetime.now(UTC) + timedelta(days=70))
    assert await database.fetch("select 1 from compactions") == []
