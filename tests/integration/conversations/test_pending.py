"""Turns and completions that end while Postgres is away are stored once it is back: all, once."""

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from uuid import UUID

import pytest

from baton.conversations.completions.records import StoredCompletion, completion_text
from baton.conversations.ids import CONVERSATION, RESPONSE, draw_block, text_of
from baton.conversations.opening import open_conversations
from baton.conversations.partitions import maintain
from baton.conversations.pending.notices import PendingNotices
from baton.conversations.pending.record import PendingRecord
from baton.conversations.records import StateScope, StoredPath, Turn
from baton.conversations.store import ConversationStore
from baton.errors import BatonError, Reason
from baton.postgres.connecting import connected
from baton.postgres.local.server import LocalPostgres
from baton.settings import ConversationSettings
from services.frontend.openai.conversations.operations import ConversationOperations
from services.frontend.openai.responses.input.sealing import ItemSeals
from tests.integration.conversations.test_away import frozen, is_open
from tests.support.clock import Stopwatch
from tests.support.state.databases import Databases, state_settings
from tests.support.wait import eventually

OURS = StateScope("acme", "proj_1")
STATEMENT_SECONDS = 60.0


@asynccontextmanager
async def opened(
    url: str, spool: Path, notices: PendingNotices | None = None, **fields: object
) -> AsyncIterator[ConversationStore]:
    state = state_settings(url, connect_seconds=0.5)
    given = {"enabled": True, "statement_seconds": 3.0, "spool_path": spool, **fields}
    settings = ConversationSettings.model_validate(given)
    async with open_conversations(state, settings, notices) as store:
        assert store is not None
        yield store


async def with_months(server: LocalPostgres) -> str:
    url = await Databases(server).migrated()
    async with connected(state_settings(url)) as connection:
        await maintain(connection, datetime.now(UTC).date())
    return url


def turn(number: int, follows: StoredPath | None = None) -> Turn:
    block = draw_block(int(time.time() * 1000), None if follows is None else follows.last_item)
    items = [f'{{"in":{number}}}', f'{{"out":"{number}\\u0000{"x" * 300_000}"}}']
    return Turn(block, items, 1, "completed", f'{{"turn":{number}}}', follows)


def name(ident: UUID) -> str:
    return text_of(RESPONSE, ident)


async def is_stored(store: ConversationStore, ident: UUID) -> bool:
    try:
        await store.path(OURS, name(ident))
    except BatonError as error:
        assert error.reason in (Reason.UNAVAILABLE, Reason.NOT_FOUND)
        return False
    return True


async def count(url: str, table: str) -> int:
    async with connected(state_settings(url)) as connection:
        found: int = await connection.fetchval(f"select count(*) from {table}")
        return found


class NoSalts:
    """Salts of tenants that seal nothing."""

    async def get(self, tenant: str) -> bytes:
        raise AssertionError(tenant)


async def test_a_request_is_refused_within_a_second_whatever_it_waited_for(
    own_postgres: LocalPostgres, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # A second in all, where each statement alone would take a minute.
    monkeypatch.setattr("baton.postgres.database.BUDGET_SECONDS", 0.9 - STATEMENT_SECONDS)
    # Connections to a frozen server succeed: the database counts as slow, not as away.
    state = state_settings(await with_months(own_postgres), connect_seconds=60)
    settings = ConversationSettings(
        enabled=True, statement_seconds=STATEMENT_SECONDS, spool_path=tmp_path
    )
    async with open_conversations(state, settings) as store:
        assert store is not None
        pending, operations = store.pending, ConversationOperations(store, ItemSeals(NoSalts()))
        assert pending is not None
        await eventually(lambda: is_open(store))
        managed = await store.managed.create(OURS, "{}", lambda _: [], 0, int(time.time() * 1000))
        named = text_of(CONVERSATION, managed.id)
        asks = (
            lambda late: store.path(OURS, name(late)),
            lambda _: operations.page(OURS, named, "", 20, newest_first=True),
            lambda late: store.delete_response(OURS, name(late)),
        )
        with frozen(own_postgres):
            for ask in asks:
                late = turn(1, managed.end)
                await pending.add_turn(OURS, late)
                watch, request = Stopwatch(), asyncio.ensure_future(ask(late.id))
                await asyncio.sleep(0.3)
                assert not request.done()
                # The request goes on as if the turn were stored, to a statement that hangs.
                pending.done(PendingRecord(late.id.hex, 0, *OURS, turn=late))
                with pytest.raises(BatonError) as caught:
                    await request
                assert watch.remaining(1.0)
                assert watch.elapsed < STATEMENT_SECONDS
                assert (caught.value.reason, caught.value.retry_after) == (Reason.UNAVAILABLE, 1.0)
                assert store.database.available


async def test_what_ended_meanwhile_is_stored_once_and_before_it_is_continued(
    own_postgres: LocalPostgres, tmp_path: Path
) -> None:
    url = await with_months(own_postgres)
    async with opened(url, tmp_path / "spool") as store:
        await eventually(lambda: is_open(store))
        managed = await store.managed.create(OURS, "{}", lambda _: [], 0, int(time.time() * 1000))
        name_of_managed = text_of(CONVERSATION, managed.id)
        first = turn(0)
        await store.keep(OURS, first)
        path = await store.path(OURS, name(first.id))
        ours = (await store.managed.get(OURS, name_of_managed)).end
        completion = StoredCompletion(draw_block(int(time.time() * 1000)), "m", {}, "[]", "{}")
        late = [turn(1, path), turn(2, path), turn(3), turn(4, ours)]
        with frozen(own_postgres):
            # Some of these are committed all the same, once Postgres goes on.
            await asyncio.gather(*(store.keep(OURS, each) for each in late))
            await store.completions.keep(OURS, completion)
            for wait in (
                store.path(OURS, name(late[0].id)),
                store.response(OURS, name(late[0].id)),
                store.delete_response(OURS, name(late[0].id)),
                store.completions.get(OURS, completion_text(completion.id)),
            ):
                with pytest.raises(BatonError) as caught:
                    await wait
                assert caught.value.reason is Reason.UNAVAILABLE
        for each in late:
            await eventually(partial(is_stored, store, each.id))
            path = await store.path(OURS, name(each.id))
            stored = await store.items(OURS, path)
            assert [item.body for item in stored][-2:] == list(each.items)
        moved = (await store.managed.get(OURS, name_of_managed)).end
        assert (moved.version, moved.total_items) == (ours.version + 1, 2)
        assert (await store.completions.get(OURS, completion_text(completion.id))).body == "{}"
        await store.write_late(OURS, late[3])  # once more changes nothing
        assert (await store.managed.get(OURS, name_of_managed)).end == moved
    assert await count(url, "responses") == 5
    assert await count(url, "items") == 10
    assert await count(url, "completions") == 1
    assert [path.name for path in (tmp_path / "spool").iterdir()] == ["lock"]


async def test_the_next_process_stores_what_one_left(
    own_postgres: LocalPostgres, tmp_path: Path
) -> None:
    url = await with_months(own_postgres)
    left = turn(0)
    async with opened(url, tmp_path / "spool") as store:
        await eventually(lambda: is_open(store))
        await own_postgres.kill()
        await store.keep(OURS, left)
    await own_postgres.start()
    async with (
        opened(url, tmp_path / "spool") as store,
        opened(url, tmp_path / "other") as elsewhere,
    ):
        await eventually(lambda: is_stored(elsewhere, left.id))
        assert (await store.response(OURS, name(left.id))).body == left.body


async def test_without_space_nothing_begins(own_postgres: LocalPostgres, tmp_path: Path) -> None:
    url = await with_months(own_postgres)
    async with opened(url, tmp_path, spool_bytes=1024 * 1024) as store:
        pending = store.pending
        assert pending is not None
        with pending.room(600 * 1024):
            with pytest.raises(BatonError) as caught, pending.room(600 * 1024):
                """Not reached."""
            assert caught.value.reason is Reason.UNAVAILABLE
        with pending.room(600 * 1024):
            """There is space again."""
