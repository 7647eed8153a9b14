"""Tenants, projects and keys in etcd: changed there, in force everywhere, and not lost with it."""

import asyncio
import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from baton.cluster import keys
from baton.cluster.etcd.client import Etcd
from baton.cluster.etcd.local import LocalEtcd
from baton.errors import BatonError, Reason
from baton.tenancy.admin.tenants import Administration
from baton.tenancy.directory import directory as sentences
from baton.tenancy.directory.uses import LastUses
from baton.tenancy.directory.watch import EPOCH, DirectoryWatch
from baton.tenancy.records.secret import digest_of
from baton.tenancy.records.tenants import Key, Tier, encode
from tests.support.clock import within
from tests.support.network.proxy import TcpProxy
from tests.support.wait import eventually

NOW = 1_700_000_000


@asynccontextmanager
async def synced(etcd: Etcd, cluster: str) -> AsyncIterator[DirectoryWatch]:
    async with DirectoryWatch(etcd, cluster) as watch:
        async with within(5):
            await watch.wait_synced()
        yield watch


def refusal(watch: DirectoryWatch, secret: str, now: float = NOW) -> str:
    """Why a key is not taken; empty: it is."""
    try:
        watch.directory.authenticate(digest_of(secret.encode()), now)
    except BatonError as error:
        return error.message
    return ""


async def made(admin: Administration, tenant: str = "acme") -> tuple[Key, str]:
    await admin.create_tenant(tenant, Tier.PRO)
    return await admin.create_key(await admin.find_project(tenant, "default"))


async def test_changes_are_in_force_at_once(etcd_client: Etcd, cluster: str) -> None:
    admin = Administration(etcd_client, cluster, lambda: NOW)
    async with synced(etcd_client, cluster) as watch:
        key, secret = await made(admin)
        async with within(1):
            await eventually(lambda: not refusal(watch, secret))
        rotated, other = await admin.rotate_key(key.id, keep_seconds=60)
        assert rotated.version == 2
        async with within(1):
            await eventually(lambda: not refusal(watch, other))
        assert not refusal(watch, secret)
        assert refusal(watch, secret, NOW + 60) == sentences.ROTATED
        with pytest.raises(BatonError, match="two valid secrets") as caught:
            await admin.rotate_key(key.id, keep_seconds=60)
        assert caught.value.reason is Reason.FAILED_PRECONDITION
        changes = [
            (admin.update_tenant("acme", disabled=True), sentences.DISABLED),
            (admin.update_tenant("acme", disabled=False), ""),
            (admin.revoke_key(key.id), sentences.REVOKED),
            (admin.archive_project("acme", "default"), sentences.REVOKED),
        ]
        for change, expected in changes:
            await change
            async with within(1):
                await eventually(lambda expected=expected: refusal(watch, other) == expected)
    async with synced(etcd_client, cluster) as late:
        assert refusal(late, other) == sentences.REVOKED


async def test_wrong_changes_are_refused_by_name(etcd_client: Etcd, cluster: str) -> None:
    admin = Administration(etcd_client, cluster)
    key, _ = await made(admin)
    project = await admin.find_project("acme", "default")
    cases = [
        (admin.create_tenant("Acme", Tier.PRO), Reason.INVALID_FIELD, "lower-case"),
        (admin.create_tenant("acme", Tier.PRO), Reason.ALREADY_EXISTS, "already"),
        (admin.create_project("acme", "default"), Reason.ALREADY_EXISTS, "already"),
        (admin.create_project("nobody", "x"), Reason.NOT_FOUND, "baton tenants ls"),
        (admin.update_tenant("acme", kv_bytes=-1), Reason.INVALID_FIELD, "kv_bytes: -1"),
        (admin.find_project("acme", "x"), Reason.NOT_FOUND, "baton projects ls"),
        (admin.create_key(project, ["all"]), Reason.INVALID_FIELD, "scopes: 'all' is not a scope"),
        (admin.create_key(project, models=["a b"]), Reason.INVALID_FIELD, "models: 'a b'"),
        (admin.create_key(project, expires_in_seconds=-1), Reason.INVALID_FIELD, "expires"),
        (admin.rotate_key(key.id, -1), Reason.INVALID_FIELD, "keep_seconds"),
        (admin.revoke_key("key_0"), Reason.NOT_FOUND, "baton keys ls"),
    ]
    for change, reason, text in cases:
        with pytest.raises(BatonError, match=text) as caught:
            await change
        assert caught.value.reason is reason
    assert [one.id for one in await admin.keys()] == [key.id]


async def test_a_change_keeps_fields_of_later_releases(etcd_client: Etcd, cluster: str) -> None:
    admin = Administration(etcd_client, cluster)
    key, _ = await made(admin)
    name = f"{keys.tenancy(cluster)}keys/{key.id}"
    await etcd_client.put(name, encode(key)[:-1] + b',"limits":{"requests":5}}')
    await admin.revoke_key(key.id)
    stored = await etcd_client.get(name)
    assert stored is not None
    assert b'"limits":{"requests":5}' in stored


async def test_a_wrong_record_changes_nothing(etcd_client: Etcd, cluster: str) -> None:
    admin = Administration(etcd_client, cluster, lambda: NOW)
    async with synced(etcd_client, cluster) as watch:
        key, secret = await made(admin)
        prefix = keys.tenancy(cluster)
        await etcd_client.put(f"{prefix}keys/{key.id}", b'{"id": 5}')
        await etcd_client.put(f"{prefix}nonsense", b"{}")
        _, other = await admin.create_key(await admin.find_project("acme", "default"))
        await eventually(lambda: not refusal(watch, other))
        assert not refusal(watch, secret)


async def test_known_keys_outlive_an_outage_and_the_data_of_etcd(
    own_etcd: LocalEtcd, tmp_path: Path
) -> None:
    async with Etcd(own_etcd.endpoints, timeout=1.0) as client:
        admin = Administration(client, "c", lambda: NOW)
        async with synced(client, "c") as first, synced(client, "c") as second:
            key, secret = await made(admin)
            _, gone = await made(admin, "gone")
            await eventually(lambda: not (refusal(second, gone) or refusal(first, gone)))
            await eventually(lambda: client.get(keys.tenancy("c") + EPOCH))
            await own_etcd.kill()
            await asyncio.sleep(0.3)
            assert not refusal(first, secret)
            await own_etcd.start()
            async with Etcd(own_etcd.endpoints) as other:
                await Administration(other, "c", lambda: NOW).revoke_key(key.id)
                await eventually(lambda: refusal(first, secret) == sentences.REVOKED)
                await eventually(lambda: refusal(second, secret) == sentences.REVOKED)
            # It comes back without: frontends write it again, and refuse nobody meanwhile.
            await own_etcd.kill()
            shutil.rmtree(tmp_path / "etcd")
            (tmp_path / "etcd").mkdir()
            await own_etcd.start()
            async with Etcd(own_etcd.endpoints) as fresh:
                stored = Administration(fresh, "c")
                await eventually(stored_key(stored, key.id), 10)
                assert not refusal(first, gone)
                assert not refusal(second, gone)
                async with synced(fresh, "c") as third:
                    await eventually(lambda: refusal(third, secret) == sentences.REVOKED)
                    await eventually(lambda: not refusal(third, gone))


async def test_what_was_deleted_while_etcd_was_away_is_gone(
    etcd: LocalEtcd, etcd_client: Etcd, cluster: str
) -> None:
    admin = Administration(etcd_client, cluster, lambda: NOW)
    key, secret = await made(admin)
    _, other = await made(admin, "other")
    async with (
        TcpProxy(etcd.endpoints[0]) as proxy,
        Etcd((proxy.address,), 1.0) as client,
        synced(client, cluster) as watch,
    ):
        name = f"{keys.tenancy(cluster)}keys/{key.id}"
        await eventually(lambda: etcd_client.get(keys.tenancy(cluster) + EPOCH))
        await proxy.cut()
        lease = await etcd_client.grant(60)
        await etcd_client.put(name, encode(key), lease)
        await etcd_client.revoke(lease)
        await asyncio.sleep(0.2)
        assert not refusal(watch, secret)
        await proxy.mend()
        await eventually(lambda: refusal(watch, secret) == sentences.UNKNOWN)
        assert not refusal(watch, other)


def stored_key(admin: Administration, ident: str):  # type: ignore[no-untyped-def]
    async def there() -> bool:
        return any(key.id == ident and key.revoked_seconds for key in await admin.keys())

    return there


async def test_more_keys_than_a_page_are_known(etcd_client: Etcd, cluster: str) -> None:
    admin = Administration(etcd_client, cluster, lambda: NOW)
    key, secret = await made(admin)
    prefix = keys.tenancy(cluster)
    digests = [digest_of(b"%d" % number) for number in range(1200)]
    pairs = []
    for number, digest in enumerate(digests):
        ident = f"key_{number:016x}"
        one = Key(id=ident, project=key.project, sha256=digest, scopes=("usage",))
        pairs.append((f"{prefix}keys/{ident}", encode(one)))
    for begin in range(0, len(pairs), 120):
        await etcd_client.put_all(pairs[begin : begin + 120])
    async with synced(etcd_client, cluster) as watch:
        assert len(watch.directory) == 1201
        assert not refusal(watch, secret)
        assert watch.directory.authenticate(digests[-1], NOW).key.scopes == ("usage",)


async def test_last_uses_are_written_to_the_minute(etcd_client: Etcd, cluster: str) -> None:
    admin = Administration(etcd_client, cluster)
    async with LastUses(etcd_client, cluster, seconds=3600) as uses:
        for number in range(300):
            uses.note(f"key_{number:016x}", NOW + 59.9)
        uses.note("key_0000000000000000", NOW + 119.0)
    found = await admin.last_uses()
    assert len(found) == 300
    assert found["key_0000000000000000"] == (NOW + 119) // 60 * 60
    assert found["key_0000000000000001"] == NOW // 60 * 60 + 60 * ((NOW % 60 + 59) // 60)
