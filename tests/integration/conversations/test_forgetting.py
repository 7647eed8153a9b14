"""A tenant that is deleted leaves nothing, and others keep all of theirs."""

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from functools import partial
from pathlib import Path

from baton.cluster import keys
from baton.cluster.etcd.client import Etcd
from baton.cluster.follow import follow
from baton.cluster.forgotten import ForgottenTenants
from baton.cluster.tenants import CacheSalts
from baton.conversations.ids import RESPONSE, draw_block, text_of
from baton.conversations.opening import open_conversations
from baton.conversations.records import StateScope, Turn
from baton.conversations.store import ConversationStore
from baton.postgres.connecting import connected
from baton.postgres.database import Database
from baton.postgres.local.server import LocalPostgres
from baton.settings import ConversationSettings, UsageSettings
from baton.spool.spool import Spool
from baton.usage.recording import recording
from tests.integration.conversations.test_pending import with_months
from tests.support.clock import PATIENCE_SECONDS
from tests.support.command_line import invoke
from tests.support.state.databases import Databases, state_settings
from tests.support.usage.random_records import bring
from tests.support.usage.records import begun, ended
from tests.support.wait import eventually


def files_with(directory: Path, marker: bytes) -> list[str]:
    """Return the files that contain bytes, except of Postgres' log of changes.

    One that is deleted meanwhile has none.
    """
    found = []
    for path in directory.rglob("*"):
        if path.is_file() and "pg_wal" not in path.parts:
            with suppress(FileNotFoundError):
                found += [str(path)] if marker in path.read_bytes() else []
    return found


async def test_no_byte_of_a_forgotten_tenant_stays(
    own_postgres: LocalPostgres, etcd_client: Etcd, etcd: object, cluster: str, tmp_path: Path
) -> None:
    url = await Databases(own_postgres).migrated()
    marked = {"acme": "marker-of-acme-4711", "other": "marker-of-other-0815"}
    written = {}
    async with Database(state_settings(url)) as database:
        await database.wait_available(20)
        store = ConversationStore(database, ConversationSettings(enabled=True))
        for tenant, marker in marked.items():
            block = draw_block(int(time.time() * 1000))
            body = f'{{"text":"{marker}"}}'
            turn = Turn(block, [body, body], 1, "completed", body)
            await store.write(StateScope(tenant, ""), turn)
            written[tenant] = text_of(RESPONSE, block)
    await bring(url, [begun(tenant=tenant, request_id=marked[tenant]) for tenant in marked])
    salts = CacheSalts(etcd_client, cluster)
    before = {tenant: await salts.get(tenant) for tenant in marked}

    data = tmp_path / "postgres"
    async with connected(state_settings(url)) as connection:
        await connection.execute("checkpoint")
    assert files_with(data, marked["acme"].encode())

    endpoints = ",".join(etcd.endpoints)  # type: ignore[attr-defined]
    words = ["db", "forget", "acme", "--rewrite", "--state-url", url]
    at = ["--etcd-endpoint", endpoints, "--cluster", cluster]
    done = await asyncio.to_thread(invoke, [*words, *at])
    assert done.exit_code == 0, done.output
    for told in ("1 of conversations", "2 of items", "1 of responses", "1 of usage_records"):
        assert told in done.output
    assert f"Replaced the salt of its KV (cluster {cluster})." in done.output

    fresh = CacheSalts(etcd_client, cluster)
    assert await fresh.get("acme") != before["acme"]
    assert await fresh.get("other") == before["other"]
    async with connected(state_settings(url)) as connection:
        await connection.execute("checkpoint")
        for table in ("conversations", "items", "responses", "usage_records"):
            rows = await connection.fetch(f"select distinct tenant from {table}")
            assert [row["tenant"] for row in rows] == ["other"], table
    assert files_with(data, marked["other"].encode())
    assert not files_with(data, marked["acme"].encode())


async def test_frontends_forget_what_they_keep_of_a_tenant(
    own_postgres: LocalPostgres, etcd_client: Etcd, etcd: object, cluster: str, tmp_path: Path
) -> None:
    """What waits on a dead frontend's disk is not stored; what a running one stored is removed."""
    url = await with_months(own_postgres)
    spools = {"dead": tmp_path / "dead", "runs": tmp_path / "runs"}
    marked = {"acme": "marker-of-acme-4711", "other": "marker-of-other-0815"}
    async with frontend(url, spools["dead"]) as dead:
        await eventually(lambda: dead.database.available)
        await own_postgres.kill()
        await keep(dead, marked)
    assert set(kept_in(spools["dead"], marked)) == set(marked)

    endpoints = ",".join(etcd.endpoints)  # type: ignore[attr-defined]
    at = ["--etcd-endpoint", endpoints, "--cluster", cluster]
    forgotten = ForgottenTenants()
    watching = asyncio.create_task(follow(etcd_client, keys.forgotten(cluster), forgotten))
    try:
        async with frontend(url, spools["runs"], forgotten) as runs:
            await keep(runs, marked)
            await own_postgres.start()
            await eventually(partial(has_rows, url, set(marked)))
            # It may be read from the disk until its segment ends.
            assert set(kept_in(spools["runs"], marked)) == set(marked)
            words = ["db", "forget", "acme", "--state-url", url, *at]
            await eventually(partial(succeeds, words))
            await eventually(lambda: not kept_in(spools["runs"], marked))
            await keep(runs, marked)  # what begins afterwards is stored
            await eventually(partial(has_rows, url, set(marked)))
        await eventually(partial(succeeds, [*words, "--rewrite"]))
        await eventually(partial(has_rows, url, {"other"}))
        async with frontend(url, spools["dead"], forgotten):
            await eventually(lambda: not kept_in(spools["dead"], marked))
        assert await has_rows(url, {"other"})
    finally:
        watching.cancel()
        await asyncio.wait([watching])
    async with connected(state_settings(url)) as connection:
        await connection.execute("checkpoint")
    data = tmp_path / "postgres"
    assert files_with(data, marked["other"].encode())
    for directory in (data, *spools.values()):
        assert not files_with(directory, marked["acme"].encode())


@asynccontextmanager
async def frontend(
    url: str, spool: Path, forgotten: ForgottenTenants | None = None
) -> AsyncIterator[ConversationStore]:
    """Open what a frontend has of the database, with its spools."""
    state = state_settings(url, connect_seconds=0.5)
    given = {"enabled": True, "statement_seconds": 3.0, "spool_path": spool / "conversations"}
    settings = ConversationSettings.model_validate(given)
    usage = UsageSettings(spool_path=spool / "usage")
    async with AsyncExitStack() as stack:
        database = await stack.enter_async_context(Database(state))
        opening = open_conversations(state, settings, None, forgotten)
        store = await stack.enter_async_context(opening)
        recorded = await stack.enter_async_context(recording(usage, database, forgotten))
        assert store is not None and recorded is not None
        spools_of[store] = recorded
        yield store


spools_of: dict[ConversationStore, Spool] = {}
"""Of usage records, by the store of the same frontend."""


async def keep(store: ConversationStore, marked: dict[str, str]) -> None:
    """Let a response and a usage record of each tenant wait, or store them."""
    assert store.pending is not None
    for tenant, marker in marked.items():
        now = int(time.time() * 1000)
        body = f'{{"text":"{marker}"}}'
        turn = Turn(draw_block(now), [body, body], 1, "completed", body)
        await store.pending.add_turn(StateScope(tenant, ""), turn)
        written = asyncio.Event()
        record = ended(begun(tenant=tenant, request_id=marker, began_ms=now))
        spools_of[store].add(record, written.set)
        await written.wait()


def kept_in(spool: Path, marked: dict[str, str]) -> list[str]:
    """Return the tenants of which a spool has bytes."""
    return [one for one, marker in marked.items() if files_with(spool, marker.encode())]


async def succeeds(words: list[str]) -> bool:
    """Return whether a command succeeds: its database has just started, and may be slow."""
    done = await asyncio.to_thread(invoke, words)
    return done.exit_code == 0


async def has_rows(url: str, tenants: set[str]) -> bool:
    """Return whether these tenants alone have rows, in each table."""
    settings = state_settings(url, connect_seconds=PATIENCE_SECONDS)
    async with connected(settings) as connection:
        for table in ("conversations", "items", "responses", "usage_records"):
            rows = await connection.fetch(f"select distinct tenant from {table}")
            if {row["tenant"] for row in rows} != tenants:
                return False
    return True
