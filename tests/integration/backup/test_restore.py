"""A cluster's records are backed up at one revision, and restored into an etcd in any state."""

import asyncio
from collections.abc import AsyncGenerator, Mapping, Sequence
from functools import partial
from pathlib import Path

import pytest

from baton.backup import snapshot
from baton.backup.errors import BackupError
from baton.backup.merge import Outcome
from baton.backup.reader import Backup
from baton.backup.restore import Restore, Restored
from baton.backup.snapshot import back_up
from baton.cluster import keys
from baton.cluster.etcd.client import Etcd, EtcdError, Pairs
from baton.cluster.etcd.local import LocalEtcd
from baton.cluster.tenants import CacheSalts
from baton.errors import BatonError
from baton.tenancy.admin.classes import ClassAdministration
from baton.tenancy.admin.tenants import Administration
from baton.tenancy.directory.watch import EPOCH, DirectoryWatch
from baton.tenancy.limits.budget import record as spending
from baton.tenancy.limits.budget.record import FrontendCharge, SpendRecord
from baton.tenancy.limits.spec import Subject
from baton.tenancy.records.audit import CLUSTER, AuditLog
from baton.tenancy.records.secret import digest_of
from baton.tenancy.records.tenants import Tier
from tests.integration.backup.conftest import Wipe, wait_for_epoch
from tests.support import etcdctl
from tests.support.clock import within
from tests.support.network.proxy import TcpProxy
from tests.support.wait import eventually

C, PASSPHRASE, NOW = "blue", b"correct horse battery", 1_700_000_000
TIMEOUT = 30.0


async def fill(etcd: Etcd, cluster: str = C, tenants: int = 3) -> dict[str, str]:
    """Write records of every kind; return the secrets of the keys, by ID."""
    admin, found = Administration(etcd, cluster, lambda: NOW), {}
    for number in range(tenants):
        tenant = f"tenant-{number}"
        await admin.create_tenant(tenant, Tier.PRO, budget_nanodollars_per_month=10**9 + number)
        key, secret = await admin.create_key(await admin.find_project(tenant, "default"))
        found[key.id] = secret
        record = SpendRecord("r0", {"f0": FrontendCharge(1, 70, 60 + number)}, 5, 5)
        await etcd.put(keys.spent(cluster, 202611, Subject.TENANT, tenant), spending.encode(record))
    await ClassAdministration(etcd, cluster).update("premium", deadline_seconds=9)
    await etcd.put(keys.key_uses(cluster) + "key_0", b"{}")
    await etcd.put(keys.instance(cluster, "w0"), b"{}")
    await etcd.put(keys.demand(cluster) + "r0", b"{}")
    return found


async def lasting(etcd: Etcd, cluster: str = C) -> dict[str, bytes]:
    """Return all records that a backup has, without what each restore writes anew."""
    found: dict[str, bytes] = {}
    for prefix in keys.lasting(cluster):
        pairs, _ = await etcd.list(prefix)
        found |= {key.removeprefix(keys.cluster(cluster)): value for key, value in pairs}
    return {name: value for name, value in found.items() if name != "tenancy/" + EPOCH}


def spent(records: Mapping[str, bytes]) -> dict[str, tuple[int, int]]:
    parsed = {k: spending.parse(v) for k, v in records.items() if k.startswith("spending/")}
    return {name: (one.settled, one.charged) for name, one in parsed.items()}


def others(records: Mapping[str, bytes]) -> dict[str, bytes]:
    """Return records that are restored to the byte."""
    left_out = ("spending/", f"audit/{CLUSTER}")
    return {name: value for name, value in records.items() if not name.startswith(left_out)}


async def restore(etcd: Etcd, path: Path, cluster: str = C, *, revive: bool = False) -> Restored:
    return await Restore(etcd, cluster, Backup(path), PASSPHRASE, revive=revive).run()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "backup"


async def test_everything_comes_back_into_an_empty_etcd(
    own_etcd: LocalEtcd, wipe: Wipe, path: Path
) -> None:
    async with Etcd(own_etcd.endpoints, TIMEOUT) as etcd:
        secrets = await fill(etcd)
        before = await lasting(etcd)
        header, size = await back_up(etcd, C, path, PASSPHRASE)
        assert (header.records, size) == (len(before), len(_bytes(path)))
    await wipe()
    async with Etcd(own_etcd.endpoints, TIMEOUT) as etcd:
        done = await restore(etcd, path)
        assert done.counts[Outcome.RESTORED] == len(before)
        after = await lasting(etcd)
        assert others(after) == others(before)
        assert spent(after) == spent(before)
        assert await etcd.count(keys.instances(C)) == 0
        async with DirectoryWatch(etcd, C) as watch:
            await watch.wait_synced()
            for secret in secrets.values():
                watch.directory.authenticate(digest_of(secret.encode()), NOW)
        (newest, *_) = await AuditLog(etcd, C).page(CLUSTER)
        assert (newest.event, newest.resource) == ("backup.restored", header.id)
        # Once more: nothing is added.
        again = await restore(etcd, path)
        assert again.counts[Outcome.RESTORED] == 0
        assert spent(await lasting(etcd)) == spent(before)


async def test_into_a_cluster_in_use_newer_records_stay_and_ended_ones_are_named(
    own_etcd: LocalEtcd, path: Path
) -> None:
    async with Etcd(own_etcd.endpoints, TIMEOUT) as etcd, DirectoryWatch(etcd, C) as watch:
        await watch.wait_synced()
        secrets = await fill(etcd)
        await wait_for_epoch(etcd, C)
        await back_up(etcd, C, path, PASSPHRASE)
        admin = Administration(etcd, C)
        revoked, deleted, _ = secrets
        await admin.revoke_key(revoked)
        await etcdctl.delete(own_etcd.endpoints, f"{keys.tenancy(C)}keys/{deleted}")
        await admin.update_tenant("tenant-2", weight=7)
        await admin.create_tenant("new", Tier.FREE)
        done = await restore(etcd, path)
        assert dict(done.kept_out) == {
            f"tenancy/keys/{revoked}": Outcome.ENDED,
            f"tenancy/keys/{deleted}": Outcome.DELETED,
        }
        assert done.counts[Outcome.RESTORED] == 0
        assert {one.id: one.weight for one in await admin.tenants()}["tenant-2"] == 7
        done = await restore(etcd, path, revive=True)
        assert (done.counts[Outcome.RESTORED], done.kept_out) == (2, [])
        for secret in secrets.values():
            await eventually(partial(_known, watch, secret))
        assert {one.id for one in await admin.tenants()} >= {"new", "tenant-0"}


async def test_frontends_that_run_take_what_is_restored_and_keep_what_is_newer(
    own_etcd: LocalEtcd, wipe: Wipe, path: Path
) -> None:
    """One knows of a revocation that the backup does not, and is cut off until etcd is restored;
    another one has started on an empty etcd."""
    async with TcpProxy(own_etcd.endpoints[0]) as proxy, Etcd((proxy.address,), TIMEOUT) as cut:
        async with Etcd(own_etcd.endpoints, TIMEOUT) as etcd:
            secrets = await fill(etcd)
            revoked, first = next(iter(secrets.items()))
            *_, second = secrets.values()
            salts = CacheSalts(etcd, C)
            salt = await salts.get("tenant-0")
            await _epoch(etcd)
            await back_up(etcd, C, path, PASSPHRASE)
            await Administration(etcd, C).revoke_key(revoked)
        async with DirectoryWatch(cut, C) as old:
            await old.wait_synced()
            assert not _known(old, first)
            await proxy.cut()
            await wipe()
            async with Etcd(own_etcd.endpoints, TIMEOUT) as etcd, DirectoryWatch(etcd, C) as new:
                await new.wait_synced()
                await CacheSalts(etcd, C).get("tenant-0")  # another one is drawn
                await restore(etcd, path)
                await eventually(lambda: _known(new, first) and _known(new, second))
                assert await CacheSalts(etcd, C).get("tenant-0") == salt
                await proxy.mend()
                async with within(10):
                    await eventually(lambda: not _known(new, first))
                assert _known(new, second)
                assert _known(old, second)


async def test_a_restore_that_is_killed_anywhere_is_run_again(
    own_etcd: LocalEtcd, wipe: Wipe, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("baton.backup.restore._BATCH_RECORDS", 4)
    async with Etcd(own_etcd.endpoints, TIMEOUT) as etcd:
        await fill(etcd)
        before = await lasting(etcd)
        await back_up(etcd, C, path, PASSPHRASE)
    await wipe()
    async with Etcd(own_etcd.endpoints, TIMEOUT) as etcd:
        for writes in (0, 1, 2, 3):
            dying = DyingEtcd(own_etcd.endpoints, writes)
            async with dying:
                with pytest.raises(EtcdError, match="killed"):
                    await restore(dying, path)
            assert await etcd.get(keys.tenancy(C) + EPOCH) is None
        await restore(etcd, path)
        after = await lasting(etcd)
        assert others(after) == others(before)
        assert spent(after) == spent(before)


class DyingEtcd(Etcd):
    """Fails after some writes of batches."""

    def __init__(self, endpoints: Sequence[str], writes: int) -> None:
        super().__init__(endpoints, TIMEOUT)
        self.writes = writes

    async def put_all_revised(
        self, revisions: Mapping[str, int], pairs: Sequence[tuple[str, bytes]]
    ) -> bool:
        if not self.writes:
            raise EtcdError("killed")
        self.writes -= 1
        return await super().put_all_revised(revisions, pairs)


async def test_a_change_that_is_made_meanwhile_is_not_overwritten(
    own_etcd: LocalEtcd, wipe: Wipe, path: Path
) -> None:
    async with Etcd(own_etcd.endpoints, TIMEOUT) as etcd:
        await fill(etcd, tenants=1)
        await back_up(etcd, C, path, PASSPHRASE)
    await wipe()

    class ChangedEtcd(Etcd):
        async def put_all_revised(
            self, revisions: Mapping[str, int], pairs: Sequence[tuple[str, bytes]]
        ) -> bool:
            if f"{keys.tenants(C)}tenant-0" in revisions and not changed:
                changed.append(True)
                admin = Administration(self, C)
                await admin.create_tenant("tenant-0", Tier.FREE)
                await admin.update_tenant("tenant-0", weight=5)
            return await super().put_all_revised(revisions, pairs)

    changed: list[bool] = []
    async with ChangedEtcd(own_etcd.endpoints, TIMEOUT) as etcd:
        await restore(etcd, path)
        assert changed
        tenant = {one.id: one for one in await Administration(etcd, C).tenants()}["tenant-0"]
        assert (tenant.weight, tenant.version) == (5, 2)


@pytest.mark.parametrize("always", [False, True])
async def test_a_revision_that_is_compacted_meanwhile_is_given_up_for_a_newer_one(
    own_etcd: LocalEtcd, path: Path, monkeypatch: pytest.MonkeyPatch, always: bool
) -> None:
    monkeypatch.setattr(snapshot, "_PAGE", 2)
    compacted: list[int] = []

    class CompactedEtcd(Etcd):
        async def pages(
            self, prefix: str, size: int = 0, revision: int = 0
        ) -> AsyncGenerator[tuple[Pairs, int], None]:
            async for page in super().pages(prefix, size, revision):
                yield page
                if revision and (always or not compacted):
                    key = keys.tenancy(C) + f"tenants/made-{len(compacted)}"
                    await self.put(key, b'{"id":"x","tier":"pro"}')
                    compacted.append(await self.revision())
                    await etcdctl.compact(own_etcd.endpoints, compacted[-1])

    async with CompactedEtcd(own_etcd.endpoints, TIMEOUT) as etcd:
        await fill(etcd, tenants=1)
        if always:
            with pytest.raises(BackupError, match="faster than they could be read, 5 times"):
                await back_up(etcd, C, path, PASSPHRASE)
            assert not list(path.parent.glob("*backup*"))
            return
        header, _ = await back_up(etcd, C, path, PASSPHRASE)
        assert compacted
        assert header.revision == compacted[0]
        Backup(path).verify(PASSPHRASE)
        assert header.records == len(await lasting(etcd))


async def test_a_cluster_without_records_is_not_backed_up(own_etcd: LocalEtcd, path: Path) -> None:
    _write(path, b"the last good one")
    async with Etcd(own_etcd.endpoints, TIMEOUT) as etcd:
        await fill(etcd, "other", tenants=1)
        with pytest.raises(BackupError, match="Cluster 'blue' has no records in etcd"):
            await back_up(etcd, C, path, PASSPHRASE)
    assert _bytes(path) == b"the last good one"


async def test_all_is_of_one_moment_while_it_changes(own_etcd: LocalEtcd, path: Path) -> None:
    """Two records always change together: no backup has one without the other."""
    async with Etcd(own_etcd.endpoints, TIMEOUT) as etcd:
        await fill(etcd, tenants=1)
        first, last = keys.tenant(C, "a"), keys.key_uses(C) + "z"

        async def change() -> None:
            number = 0
            while True:
                number += 1
                await etcd.put_all([(first, b"%d" % number), (last, b"%d" % number)])

        changing = asyncio.create_task(change())
        try:
            for _ in range(10):
                await back_up(etcd, C, path, PASSPHRASE)
                saved = dict(
                    record for batch in Backup(path).batches(PASSPHRASE) for record in batch
                )
                assert saved.get("tenants/a") == saved.get("uses/z")
        finally:
            changing.cancel()
            await asyncio.wait([changing])
        assert int(saved["uses/z"]) > 0


def _known(watch: DirectoryWatch, secret: str) -> bool:
    try:
        watch.directory.authenticate(digest_of(secret.encode()), NOW)
    except BatonError:
        return False
    return True


async def _epoch(etcd: Etcd) -> None:
    async with DirectoryWatch(etcd, C) as watch:
        await watch.wait_synced()
        await wait_for_epoch(etcd, C)


def _bytes(path: Path) -> bytes:
    return path.read_bytes()


def _write(path: Path, data: bytes) -> None:
    path.write_bytes(data)
