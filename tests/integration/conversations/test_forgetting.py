"""A tenant that is deleted leaves nothing, and others keep all of theirs."""

import asyncio
import time
from pathlib import Path

from baton.cluster.etcd.client import Etcd
from baton.cluster.tenants import CacheSalts
from baton.conversations.ids import RESPONSE, draw_block, text_of
from baton.conversations.records import StateScope, Turn
from baton.conversations.store import ConversationStore
from baton.postgres.connecting import connected
from baton.postgres.database import Database
from baton.postgres.local.server import LocalPostgres
from baton.settings import ConversationSettings
from tests.support.command_line import invoke
from tests.support.state.databases import Databases, state_settings
from tests.support.usage.random_records import bring
from tests.support.usage.records import begun


def files_with(directory: Path, marker: bytes) -> list[str]:
    """Return the files of tables that contain bytes; the log of changes is not one."""
    paths = [path for path in directory.rglob("*") if path.is_file() and "pg_wal" not in path.parts]
    return [str(path) for path in paths if marker in path.read_bytes()]


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
