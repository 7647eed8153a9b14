"""Every change of a tenant has its audit record, and all are made one after the other."""

import asyncio
from collections.abc import Iterable
from typing import Any

import pytest

from baton.cluster import keys
from baton.cluster.etcd.client import Etcd, EtcdError
from baton.errors import BatonError, Reason
from baton.tenancy.admin.tenants import Administration
from baton.tenancy.directory.watch import DirectoryWatch
from baton.tenancy.records import store
from baton.tenancy.records.audit import PAGE, Actor, AuditLog, AuditRecord
from baton.tenancy.records.tenants import Tier
from tests.support.clock import within

NOW = 1_700_000_000


def events(records: Iterable[AuditRecord]) -> list[str]:
    return [record.event for record in records]


async def test_who_changed_what_and_how(etcd_client: Etcd, cluster: str) -> None:
    who = Actor("key_0123456789abcdef", request_id="r1")
    admin = Administration(etcd_client, cluster, lambda: NOW, actor=who)
    await admin.create_tenant("acme", Tier.PRO)
    project = await admin.create_project("acme", "search")
    await admin.rename_project("acme", project.id, "find")
    account = await admin.create_account(project, "ranking")
    key, secret = await admin.create_key(project, service_account=account.id, name="one")
    _, other = await admin.rotate_key(key.id, 60)
    await admin.revoke_key(key.id)
    await admin.delete_account(project, account.id)
    await admin.archive_project("acme", project.id)
    await admin.update_tenant("acme", tier=Tier.FREE)
    log = AuditLog(etcd_client, cluster)
    records = (await log.page("acme"))[::-1]
    assert events(records) == [
        *("organization.created", "project.created", "project.created", "project.updated"),
        *("service_account.created", "api_key.created", "api_key.updated", "api_key.deleted"),
        *("service_account.deleted", "project.archived", "organization.updated"),
    ]
    assert {(record.actor, record.at_seconds) for record in records} == {(who, NOW)}
    renamed, _, made, rotated, revoked = records[3:8]
    assert (renamed.before, renamed.after) == ({"name": "search"}, {"name": "find"})
    assert (made.resource, made.project, made.project_name) == (key.id, project.id, "find")
    assert made.after["scopes"] == ["inference"]
    assert (rotated.before, rotated.after) == ({"secret": "replaced"}, {"secret": "new"})
    assert (revoked.before, revoked.after) == ({}, {"revoked_seconds": NOW})
    assert (records[-1].before, records[-1].after) == ({"tier": "pro"}, {"tier": "free"})
    stored, _ = await etcd_client.list(keys.audit(cluster, "acme"))
    assert len(stored) == len(records) + 1
    for _, value in stored:
        for one in (secret, other, "sha256"):
            assert one.encode() not in value


async def test_of_two_projects_of_one_name_one_is_made(etcd_client: Etcd, cluster: str) -> None:
    # Each has a store of its own, as two frontends have.
    admins = [Administration(etcd_client, cluster) for _ in range(6)]
    await admins[0].create_tenant("acme", Tier.PRO)
    made = await asyncio.gather(
        *(admin.create_project("acme", "search") for admin in admins), return_exceptions=True
    )
    refused = [one for one in made if isinstance(one, BatonError)]
    assert [one.reason for one in refused] == [Reason.ALREADY_EXISTS] * 5
    assert [one.name for one in await admins[0].projects("acme")] == ["default", "search"]
    assert len(await AuditLog(etcd_client, cluster).page("acme")) == 3


async def test_changes_of_many_are_all_made_and_told_once(etcd_client: Etcd, cluster: str) -> None:
    admins = [Administration(etcd_client, cluster) for _ in range(4)]
    await admins[0].create_tenant("acme", Tier.PRO)
    project = await admins[0].find_project("acme", "default")
    made = await asyncio.gather(
        *(admin.create_account(project, f"n{n}") for admin in admins for n in range(5))
    )
    records = await AuditLog(etcd_client, cluster).page("acme")
    assert len({record.id for record in records}) == 22
    assert {record.resource for record in records[:20]} == {one.id for one in made}


async def test_the_oldest_records_go(
    etcd_client: Etcd, cluster: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(store, "MAX_RECORDS", 4)
    admin = Administration(etcd_client, cluster)
    await admin.create_tenant("acme", Tier.PRO)
    for n in range(6):
        await admin.create_project("acme", f"p{n}")
    records = await AuditLog(etcd_client, cluster).page("acme")
    assert [record.after["name"] for record in records] == ["p5", "p4", "p3", "p2"]
    stored, _ = await etcd_client.list(keys.audit(cluster, "acme"))
    assert len(stored) == 5


async def test_records_are_read_in_pages(etcd_client: Etcd, cluster: str) -> None:
    admin, log = Administration(etcd_client, cluster), AuditLog(etcd_client, cluster)
    await admin.create_tenant("acme", Tier.PRO)
    for n in range(PAGE + 1):
        await admin.update_tenant("acme", kv_bytes=n + 1)
    first = await log.page("acme")
    second = await log.page("acme", first[-1].id)
    assert len(first) == PAGE
    assert [len(second), second[-1].event] == [3, "organization.created"]
    assert not {one.id for one in first} & {one.id for one in second}
    assert await log.page("other") == []


async def test_nothing_is_made_for_what_is_gone(etcd_client: Etcd, cluster: str) -> None:
    admin = Administration(etcd_client, cluster)
    await admin.create_tenant("acme", Tier.PRO)
    project = await admin.create_project("acme", "search")
    account = await admin.create_account(project, "ranking")
    await admin.delete_account(project, account.id)
    with pytest.raises(BatonError, match="was deleted") as caught:
        await admin.create_key(project, service_account=account.id)
    assert caught.value.reason is Reason.NOT_FOUND
    await admin.archive_project("acme", project.id)
    for change in (
        admin.create_key(project),
        admin.create_account(project, "x"),
        admin.rename_project("acme", project.id, "x"),
    ):
        with pytest.raises(BatonError, match="is archived") as caught:
            await change
        assert caught.value.reason is Reason.FAILED_PRECONDITION
    assert await admin.keys() == []


async def test_a_change_whose_answer_was_lost_is_known_by_its_record(
    etcd_client: Etcd, cluster: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    admin, write = Administration(etcd_client, cluster), etcd_client.replace_all
    await admin.create_tenant("acme", Tier.PRO)

    async def answer_lost(*args: Any) -> bool:
        await write(*args)
        raise EtcdError("the connection broke")

    monkeypatch.setattr(etcd_client, "replace_all", answer_lost)
    project = await admin.create_project("acme", "search")
    assert project in await admin.projects("acme")
    assert len(await AuditLog(etcd_client, cluster).page("acme")) == 3

    async def request_lost(*_: Any) -> bool:
        raise EtcdError("the connection broke")

    monkeypatch.setattr(etcd_client, "replace_all", request_lost)
    with pytest.raises(EtcdError, match="broke"):
        await admin.create_project("acme", "other")
    assert len(await admin.projects("acme")) == 2


async def test_a_directory_can_be_waited_for(etcd_client: Etcd, cluster: str) -> None:
    admin = Administration(etcd_client, cluster)
    own = store.RecordStore(etcd_client, cluster)
    async with DirectoryWatch(etcd_client, cluster) as watch:
        await watch.wait_synced()
        await watch.reach(await own.revision("acme"))
        for n in range(20):
            tenant = f"t{n}"
            await admin.create_tenant(tenant, Tier.PRO)
            async with within(2):
                await watch.reach(await own.revision(tenant))
            (project,) = watch.directory.projects_of.of(tenant)
            assert watch.directory.projects[project].name == "default"
