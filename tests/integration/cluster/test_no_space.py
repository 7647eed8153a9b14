"""etcd whose quota is used up: Baton reads and serves, says why changes are refused, and recovers
with the commands of docs/backup.md."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import httpx
import pytest
from structlog.testing import capture_logs
from typer.testing import Result

from baton.backup.reader import Backup
from baton.backup.snapshot import back_up
from baton.cli.shared.errors import CommandError
from baton.cluster import keys
from baton.cluster.etcd.client import Etcd, NoSpaceError
from baton.cluster.etcd.local import LocalEtcd, find_binary
from baton.host.bundled import root
from baton.internal.v1.cluster_pb2 import ROLE_ROUTER, Instance
from baton.tenancy.admin.tenants import Administration
from baton.tenancy.directory.uses import LastUses
from baton.tenancy.directory.watch import DirectoryWatch
from baton.tenancy.records.secret import digest_of
from baton.tenancy.records.tenants import Tier
from tests.support.clock import within
from tests.support.command_line import invoke

OF_ETCD = ("etcd_mvcc_db_total_size_in_bytes", "etcd_server_quota_backend_bytes")
C, PASSPHRASE = "blue", b"correct horse battery"
QUOTA_BYTES = 2 << 20
SENTENCE = "etcd has no space left and refuses all writes"
FREE = (
    "etcdctl compaction REVISION",
    "etcdctl defrag",
    "etcdctl alarm disarm",
)


@pytest.fixture
async def small_etcd(tmp_path: Path) -> AsyncIterator[LocalEtcd]:
    async with LocalEtcd(tmp_path / "etcd", durable=False, quota_bytes=QUOTA_BYTES) as server:
        yield server


async def fill(etcd: Etcd) -> None:
    """Write one key again and again until etcd refuses it: its history is what takes the room.

    etcd compares its quota with the size of its file, which grows as it commits: each 100 ms,
    however much was written before.
    """
    with pytest.raises(NoSpaceError, match=SENTENCE):
        async with within(30):
            while True:
                await etcd.put("/other/history", b"x" * (200 << 10))


async def test_without_space_reads_go_on_and_the_reason_is_told(
    small_etcd: LocalEtcd, tmp_path: Path
) -> None:
    async with Etcd(small_etcd.endpoints, 30) as etcd, DirectoryWatch(etcd, C) as running:
        await running.wait_synced()
        admin = Administration(etcd, C)
        await admin.create_tenant("acme", Tier.PRO)
        key, secret = await admin.create_key(await admin.find_project("acme", "default"))
        router = Instance(id="router-0", role=ROLE_ROUTER, address="127.0.0.1:1")
        lease = await etcd.grant(60)
        await etcd.put(keys.instance(C, "router-0"), keys.encode(router), lease)
        assert await etcd.alarms() == []
        await fill(etcd)
        assert await etcd.alarms() == ["NOSPACE"]
        async with httpx.AsyncClient() as http:
            metrics = (await http.get(f"http://{small_etcd.endpoints[0]}/metrics")).text
        for name in OF_ETCD:  # which the alert BatonEtcdSpace asks for
            assert f"\n{name} " in metrics

        # Reads, watches that are open, those that begin, and leases that were granted.
        async with DirectoryWatch(etcd, C) as started:
            async with within(10):
                await started.wait_synced()
            for watch in (running, started):
                watch.directory.authenticate(digest_of(secret.encode()), 0)
        assert await etcd.keep_alive(lease) > 0
        header, _ = await back_up(etcd, C, tmp_path / "backup", PASSPHRASE)
        Backup(tmp_path / "backup").verify(PASSPHRASE)
        assert header.records

        # Why, in the log, in the answer to a change, and in `baton status`.
        with capture_logs() as logs:
            uses = LastUses(etcd, C)
            uses.note(key.id, 60.0)
            await uses.write()
        (told,) = [one for one in logs if one["event"] == "tenancy.key_uses.not_written"]
        assert SENTENCE in told["error"]
        changed = await run(small_etcd, "keys", "revoke", key.id)
        assert isinstance(changed.exception, CommandError)
        assert str(changed.exception).startswith(SENTENCE)
        assert "docs/backup.md" in str(changed.exception)
        listed = await run(small_etcd, "keys", "ls")
        assert key.id in listed.output
        shown = await run(small_etcd, "status")
        assert f"{SENTENCE} (alarm NOSPACE)" in " ".join(shown.output.split())

        # As the page says.
        page = (root() / "docs" / "backup.md").read_text()
        for command in FREE:
            assert command in page
            words = command.replace("REVISION", str(await etcd.revision())).split()
            await etcdctl(small_etcd, *words[1:])
        assert await etcd.alarms() == []
        await admin.revoke_key(key.id)
        await uses.write()


async def run(etcd: LocalEtcd, *arguments: str) -> Result:
    command = [*arguments, "--etcd-endpoint", etcd.endpoints[0], "--cluster", C]
    return await asyncio.to_thread(invoke, command, env={"COLUMNS": "500"})


async def etcdctl(etcd: LocalEtcd, *arguments: str) -> None:
    program = find_binary().with_name("etcdctl")
    process = await asyncio.create_subprocess_exec(
        program, f"--endpoints={etcd.endpoints[0]}", *arguments, stdout=asyncio.subprocess.DEVNULL
    )
    assert await process.wait() == 0
