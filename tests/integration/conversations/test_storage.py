"""What tenants have stored is counted as rows come and go, and limited."""

import asyncio
import json
from contextlib import AsyncExitStack
from datetime import UTC, date, datetime, timedelta
from typing import Any
from uuid import UUID

import asyncpg
import pytest

from baton.cluster.etcd.client import Etcd
from baton.conversations.completions.records import StoredCompletion
from baton.conversations.forgetting import forget_tenant
from baton.conversations.ids import draw_block, item_text, nth
from baton.conversations.managed.records import ManagedConversation
from baton.conversations.partitions import maintain
from baton.conversations.records import StateScope, Turn
from baton.conversations.storage.records import StorageLimits, StorageUse
from baton.conversations.storage.storage import TenantStorage
from baton.conversations.store import ConversationStore
from baton.errors import BatonError, Reason
from baton.postgres.connecting import connected
from baton.postgres.database import Database
from baton.postgres.schema import upgrade
from baton.settings import ConversationSettings
from baton.tenancy.admin.tenants import Administration
from baton.tenancy.records.tenants import Tier
from tests.integration.conversations.test_compactions import chain, covering
from tests.integration.conversations.test_managed import bodies
from tests.integration.conversations.test_store import NOW, OURS, database, name, store, turn
from tests.support.command_line import invoke
from tests.support.state.databases import Databases, state_settings

__all__ = ["database", "store"]  # fixtures

THEIRS = StateScope("other", "proj_1")
_TRUE = """
select (select count(*) from conversations where tenant = $1 and not hidden) as conversations,
    (select coalesce(sum(octet_length(body)), 0) from items where tenant = $1)
    + (select coalesce(sum(octet_length(body)), 0) from responses where tenant = $1)
    + (select coalesce(sum(octet_length(body)), 0) from compactions where tenant = $1)
    + (select coalesce(sum(octet_length(body) + octet_length(messages)), 0) from completions
        where tenant = $1) as bytes
"""


async def made(store: ConversationStore, scope: StateScope = OURS) -> ManagedConversation:
    return await store.managed.create(scope, "{}", bodies("a", "bc"), 2, NOW)


async def used(store: ConversationStore, scope: StateScope = OURS) -> StorageUse:
    """Return what is counted, which is what there is."""
    found = await store.storage.use(scope.tenant)
    (row,) = await store.database.fetch(_TRUE, scope.tenant)
    assert found == tuple(row)
    return StorageUse(*found)


_COUNTED = "items", "responses", "completions", "compactions"


async def count_by_upgrade(url: str) -> None:
    """Take back the revision that counts, and upgrade: each month has what triggers had counted."""
    rows = """
        select tenant, month, sum(bytes) as bytes, sum(conversations) as conversations
        from tenant_storage group by 1, 2 order by 1, 2
    """
    async with connected(state_settings(url)) as connection:
        before = await connection.fetch(rows)
        functions = [f"baton_count_{table}()" for table in _COUNTED]
        await connection.execute(
            "drop table if exists batch_forecasts; "  # of a later revision
            f"drop function {', '.join(functions)}, baton_count_conversations() cascade; "
            "drop function baton_month(uuid); drop table tenant_storage; "
            "update baton_schema set version_num = '0009'"
        )
    await upgrade(state_settings(url))
    async with connected(state_settings(url)) as connection:
        assert await connection.fetch(rows) == before


async def test_what_is_counted_is_what_is_there(store: ConversationStore) -> None:
    await made(store, THEIRS)
    conversation = await made(store)
    assert await used(store) == (1, 3)
    first = turn(1, conversation.end)
    await store.write(OURS, first)
    branch = turn(2, await store.path(OURS, name(first.id)))
    path = branch.follows
    assert path is not None
    await store.write(OURS, branch._replace(follows=path._replace(extends=False)))
    await used(store)
    other = turn(3)
    async with store.database.connection() as connection, connection.transaction():
        await store.write(OURS, other, connection)  # triggers count
    whole = await used(store)
    assert whole.conversations == 1
    await store.managed.add(OURS, conversation.text, bodies("xyz"), 1, NOW)
    assert (await used(store)).bytes == whole.bytes + 3
    item = nth(conversation.id, 1)
    await store.managed.delete_item(OURS, conversation.text, item, item_text({}, item))
    assert (await used(store)).bytes == whole.bytes + 2
    completion = StoredCompletion(draw_block(NOW), "m", {}, "[]", "{}")
    for _ in range(2):
        await store.completions.write(OURS, completion)
    assert (await used(store)).bytes == whole.bytes + 6
    await store.managed.delete(OURS, conversation.text)
    assert (await used(store)).conversations == 0
    for response in (branch, other):
        await store.delete_response(OURS, name(response.id))
    assert await used(store) == (0, 4)
    assert (await used(store, THEIRS)).conversations == 1


async def test_summaries_count_from_when_they_are_written(store: ConversationStore) -> None:
    paths = await chain(store, 3)
    before = await used(store)
    for path in paths[:2]:
        assert await store.compactions.claim(OURS, covering(path), "a", 60)
        assert await used(store) == before
        assert await store.compactions.write(OURS, covering(path), "a", "{...}")
        before = before._replace(bytes=before.bytes + 5)
        assert await used(store) == before
        assert not await store.compactions.write(OURS, covering(path), "b", "{}")
        await used(store)
    for path in paths:
        response = UUID(int=path.last_item.int - 2)
        await store.delete_response(OURS, name(response))  # the last one deletes summaries
    assert await used(store) == (0, 0)


async def test_months_are_counted_by_upgrades_and_go_when_dropped(databases: Databases) -> None:
    url = await databases.migrated()
    days = [date(2026, 3, 30), date(2026, 4, 2)]
    async with connected(state_settings(url)) as connection:
        await maintain(connection, days[0])
    async with Database(state_settings(url)) as database:
        await database.wait_available(20)
        store = ConversationStore(database, ConversationSettings(enabled=True))
        first, second = (datetime(d.year, d.month, d.day, tzinfo=UTC).timestamp() for d in days)
        conversation = await store.managed.create(OURS, "{}", bodies("abc"), 1, int(first * 1000))
        block = draw_block(int(second * 1000))
        later = Turn(block, ["{}", "{}"], 1, "completed", "{}", conversation.end)
        await store.write(OURS, later)
        await store.managed.create(THEIRS, "{}", bodies("abc"), 1, int(first * 1000))
        covers = covering(conversation.end, first_item=nth(conversation.id, 1))
        assert await store.compactions.claim(OURS, covers, "a", 60)
        assert await store.compactions.write(OURS, covers, "a", "{}")
        assert await used(store) == (1, 11)
        await count_by_upgrade(url)
        assert await used(store) == (1, 11)
        async with connected(state_settings(url)) as connection:
            await maintain(connection, days[1] + timedelta(days=30), oldest=days[1])
        assert await used(store) == (1, 6)
        assert await used(store, THEIRS) == (0, 0)


async def test_a_forgotten_tenant_has_nothing(databases: Databases) -> None:
    url = await databases.migrated()
    async with Database(state_settings(url)) as database:
        await database.wait_available(20)
        store = ConversationStore(database, ConversationSettings(enabled=True))
        await store.write(OURS, turn(1, (await made(store)).end))
        await made(store, THEIRS)
        await forget_tenant(state_settings(url), OURS.tenant)
        rows = await database.fetch("select distinct tenant from tenant_storage")
        assert [row["tenant"] for row in rows] == [THEIRS.tenant]
        assert await used(store) == (0, 0)
        assert (await used(store, THEIRS)).conversations == 1


async def test_conversations_created_at_once_exceed_a_limit_by_the_connections(
    databases: Databases,
) -> None:
    url, limit, frontends, connections = await databases.migrated(), 5, 2, 4
    settings = state_settings(url).model_copy(update={"connections": connections})
    async with AsyncExitStack() as stack:
        stores = []
        for _ in range(frontends):
            database = await stack.enter_async_context(Database(settings))
            await database.wait_available(20)
            stores.append(ConversationStore(database, ConversationSettings(enabled=True)))
        await stores[0].maintain()
        limits = StorageLimits(limit)
        results = await asyncio.gather(
            *(
                stores[at % frontends].managed.create(OURS, "{}", bodies("a"), 1, NOW, limits)
                for at in range(60)
            ),
            return_exceptions=True,
        )
        refused = [one for one in results if isinstance(one, BatonError)]
        created = len(results) - len(refused)
        assert limit <= created <= limit + frontends * connections - 1
        assert (await used(stores[0])).conversations == created
        assert {error.reason for error in refused} == {Reason.INSUFFICIENT_QUOTA}
        (told,) = {error.message for error in refused}
        assert told == (
            "tenant 'acme': the limit of 5 stored conversations is reached; delete some, or ask "
            "the operator for more (stored_conversations)"
        )
        quota = refused[0].quota
        assert quota is not None
        assert (quota.subject, quota.metric, quota.value) == (
            "tenant:acme",
            "stored_conversations",
            5,
        )


async def test_a_tenant_at_its_bytes_stores_no_more_until_some_are_deleted(
    store: ConversationStore,
) -> None:
    conversation = await made(store)
    limits = StorageLimits(bytes=3)
    refused = (
        store.storage.check_bytes(OURS.tenant, limits),
        store.managed.create(OURS, "{}", bodies("a"), 1, NOW, limits),
        store.managed.add(OURS, conversation.text, bodies("a"), 1, NOW, limits),
    )
    for one in refused:
        with pytest.raises(BatonError, match="3 bytes of items, responses, summaries") as told:
            await one
        assert told.value.reason is Reason.INSUFFICIENT_QUOTA
    await store.storage.check_bytes(OURS.tenant, StorageLimits(bytes=4))
    await store.storage.check_bytes(THEIRS.tenant, limits)
    await store.managed.delete(OURS, conversation.text)
    await store.storage.check_bytes(OURS.tenant, limits)


async def test_a_turn_does_not_wait_for_another_one_of_the_tenant(databases: Databases) -> None:
    url = await databases.migrated()
    async with AsyncExitStack() as stack:
        database = await stack.enter_async_context(Database(state_settings(url)))
        await database.wait_available(20)
        store = ConversationStore(database, ConversationSettings(enabled=True))
        paths = [(await made(store)).end for _ in range(2)]
        connections: dict[int, asyncpg.Connection] = {}
        while len(connections) < 2:  # of different slots
            connection = await stack.enter_async_context(connected(state_settings(url)))
            connections[await connection.fetchval("select pg_backend_pid() % 16")] = connection
        first, second = connections.values()
        async with first.transaction():
            await store.write(OURS, turn(1, paths[0]), first)
            await asyncio.wait_for(store.write(OURS, turn(2, paths[1]), second), 20)
        assert (await used(store)).conversations == 2


async def test_an_earlier_schema_does_not_count(databases: Databases) -> None:
    url = await databases.migrated()
    async with connected(state_settings(url)) as connection:
        for table in ("conversations", "items", "responses", "completions", "compactions"):
            await connection.execute(f"alter table {table} disable trigger user")
        await connection.execute("drop table tenant_storage")
        await maintain(connection, date(2026, 5, 1), oldest=date(2026, 4, 1))
    async with Database(state_settings(url)) as database:
        await database.wait_available(20)
        store = ConversationStore(database, ConversationSettings(enabled=True))
        for _ in range(2):
            await store.managed.create(OURS, "{}", bodies("a"), 1, NOW, StorageLimits(1, 1))
        await store.write(OURS, turn(1))
        assert await TenantStorage(database).use(OURS.tenant) is None


async def test_use_is_shown_beside_limits(
    databases: Databases, etcd_client: Etcd, etcd: Any, cluster: str
) -> None:
    url = await databases.migrated()
    async with Database(state_settings(url)) as database:
        await database.wait_available(20)
        store = ConversationStore(database, ConversationSettings(enabled=True))
        await made(store)
    admin = Administration(etcd_client, cluster)
    await admin.create_tenant("acme", Tier.PRO)
    at = ["--etcd-endpoint", ",".join(etcd.endpoints), "--cluster", cluster]
    limits = ["--stored-conversations", "5", "--stored-bytes", "1KiB"]
    show = ["tenants", "show", "acme", *at, "--state-url", url]
    for words in (
        ["tenants", "set", "acme", *limits, *at, "--before-start"],
        show,
        [*show, "--json"],
    ):
        done = await asyncio.to_thread(invoke, words)
        assert done.exit_code == 0, done.output
    told = json.loads(done.output)
    assert told["stored"] == {"conversations": 1, "bytes": 3}
    assert (told["stored_conversations"], told["stored_bytes"]) == (5, 1024)
    shown = (await asyncio.to_thread(invoke, show)).output
    assert "1 of 5" in shown
    assert "3 of 1024" in shown
    words = ["tenants", "set", "acme", "--stored-bytes", "x", *at, "--before-start"]
    wrong = await asyncio.to_thread(invoke, words)
    assert "--stored-bytes 'x' is not a size in bytes" in str(wrong.exception)
