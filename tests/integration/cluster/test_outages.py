"""etcd is killed, wiped, cut off and compacted: the view and the members outlast it."""

import asyncio
import time

import pytest

from baton.cluster import keys
from baton.cluster.etcd.client import Etcd
from baton.cluster.etcd.local import LocalEtcd
from baton.cluster.members.discovery import Discovery
from baton.cluster.members.membership import Liveness
from baton.cluster.members.registration import Registration
from baton.internal.v1.cluster_pb2 import ROLE_DECODE, Instance
from baton.settings import EtcdSettings
from tests.support.clock import Stopwatch, slowness
from tests.support.etcdctl import compact, delete
from tests.support.wait import eventually

QUICK = EtcdSettings(lease_seconds=2)


def worker(number: int = 1) -> Instance:
    return Instance(
        id=f"w{number}", incarnation=f"i-{number}", role=ROLE_DECODE, address="127.0.0.1:1"
    )


async def lives(address: str, incarnation: str) -> Liveness:
    return "alive"


async def is_dead(address: str, incarnation: str) -> Liveness:
    return "dead"


class Record:
    """All changes that a view told, from a task."""

    def __init__(self, view: Discovery) -> None:
        self.seen: list[tuple[str, str]] = []
        self._task = asyncio.create_task(self._read(view))

    async def _read(self, view: Discovery) -> None:
        async for change in view.changes():
            self.seen.append((change.kind, change.instance.id))

    async def __aenter__(self) -> "Record":
        return self

    async def __aexit__(self, *_: object) -> None:
        self._task.cancel()
        await asyncio.wait([self._task])


async def test_killed_and_restarted_etcd_drops_no_instance_and_the_watch_resumes(own_etcd):
    async with (
        Etcd(own_etcd.endpoints, timeout=1.0) as etcd,
        Discovery(etcd, "c", probe=is_dead, settings=EtcdSettings(relist_seconds=3600)) as view,
        Registration(etcd, "c", worker(1), settings=QUICK),
        Registration(etcd, "c", worker(2), settings=QUICK),
        Record(view) as record,
    ):
        await eventually(lambda: len(view.instances) == 2, 1)
        await own_etcd.kill()
        await asyncio.sleep(3)  # longer than the leases
        assert len(view.instances) == 2
        await own_etcd.start()
        async with Registration(etcd, "c", worker(3), settings=QUICK):
            await eventually(lambda: "w3" in view.instances, 5)
            await asyncio.sleep(2.5)  # the leases would have lapsed, had nobody kept them
            assert record.seen == [("up", "w1"), ("up", "w2"), ("up", "w3")]


async def test_etcd_that_lost_everything_drops_no_live_instance(tmp_path, port):
    first = LocalEtcd(tmp_path / "first", client_port=port, durable=False)
    await first.start()
    second = LocalEtcd(tmp_path / "second", client_port=port, durable=False)
    async with (
        Etcd(first.endpoints, timeout=1.0) as etcd,
        Discovery(etcd, "c", probe=lives, settings=EtcdSettings(relist_seconds=3600)) as view,
        Registration(etcd, "c", worker(1), settings=QUICK),
        Record(view) as record,
    ):
        for _ in range(20):  # revisions that the next etcd will not have reached
            await etcd.put("/elsewhere", b"x")
        await eventually(lambda: "w1" in view.instances, 1)
        await first.kill()
        await second.start()
        try:
            async with Registration(etcd, "c", worker(2), settings=QUICK):
                await eventually(lambda: "w2" in view.instances, 5)
                await eventually(lambda: record.seen[-1] == ("up", "w2"), 1)
                assert record.seen == [("up", "w1"), ("up", "w2")]
        finally:
            await second.stop()


async def test_start_without_etcd_blocks_nothing_and_members_appear_when_it_comes(tmp_path, port):
    server = LocalEtcd(tmp_path / "etcd", client_port=port, durable=False)
    joining = Stopwatch()
    async with (
        Etcd((f"127.0.0.1:{port}",), timeout=1.0) as etcd,
        Discovery(etcd, "c", probe=lives) as view,
        Registration(etcd, "c", worker(1), settings=QUICK) as registration,
    ):
        assert joining.seconds < 4
        assert not view.synced
        assert not registration.registered
        await registration.update(draining=True)
        await server.start()
        try:
            await eventually(lambda: "w1" in view.instances, 5)
            assert view.instances["w1"].draining
            await eventually(lambda: registration.registered, 1)
        finally:
            await server.stop()
        leaving = Stopwatch()
    assert leaving.seconds < 4  # leaving without etcd takes no longer either


async def test_history_compacted_during_a_cut_means_list_again(etcd_client, cluster, proxy):
    async def write(number: int) -> None:
        await etcd_client.put(keys.instance(cluster, f"w{number}"), keys.encode(worker(number)))

    await write(1)
    await write(2)
    async with (
        Etcd((proxy.address,), timeout=1.0) as far,
        Discovery(far, cluster, probe=is_dead, settings=EtcdSettings(relist_seconds=3600)) as view,
    ):
        assert len(view.instances) == 2
        await proxy.cut()
        await write(3)
        await delete(etcd_client.endpoints, keys.instance(cluster, "w1"))
        _, revision = await etcd_client.list(keys.instances(cluster))
        await compact(etcd_client.endpoints, revision)
        await asyncio.sleep(0.5)
        assert sorted(view.instances) == ["w1", "w2"]
        await proxy.mend()
        await eventually(lambda: sorted(view.instances) == ["w2", "w3"], 5)
        await write(4)
        await eventually(lambda: "w4" in view.instances, 1)


async def test_listing_now_and_then_mends_a_view_that_the_watch_left_wrong(
    etcd_client, cluster, monkeypatch
):
    async def deaf(prefix, from_revision, end=""):
        yield []
        await asyncio.sleep(3600)

    monkeypatch.setattr(etcd_client, "watch", deaf)
    async with Discovery(
        etcd_client, cluster, probe=is_dead, settings=EtcdSettings(relist_seconds=0.5)
    ) as view:
        await etcd_client.put(keys.instance(cluster, "w1"), keys.encode(worker(1)))
        await eventually(lambda: "w1" in view.instances, 2)
        await delete(etcd_client.endpoints, keys.instance(cluster, "w1"))
        await eventually(lambda: not view.instances, 2)


async def test_suspects_are_probed_during_an_etcd_outage(own_etcd):
    async with (
        Etcd(own_etcd.endpoints, timeout=1.0) as etcd,
        Discovery(etcd, "c", probe=is_dead) as view,
    ):
        await etcd.put(keys.instance("c", "w1"), keys.encode(worker(1)))
        await eventually(lambda: "w1" in view.instances, 1)
        await own_etcd.kill()
        view.report_unreachable("w1")
        await eventually(lambda: not view.instances, 1)


@pytest.mark.serial
async def test_view_uses_next_to_no_cpu_during_an_etcd_outage(own_etcd):
    async with (
        Etcd(own_etcd.endpoints, timeout=1.0) as etcd,
        Discovery(etcd, "c", probe=lives),
        Registration(etcd, "c", worker(1), settings=QUICK),
    ):
        await own_etcd.kill()
        await asyncio.sleep(0.5)
        began = time.process_time()
        await asyncio.sleep(2)
        assert time.process_time() - began < 0.4 * slowness()


@pytest.mark.parametrize("cuts", [5])
async def test_cut_again_and_again_loses_nothing(etcd_client, cluster, proxy, cuts):
    async with (
        Etcd((proxy.address,), timeout=1.0) as far,
        Discovery(far, cluster, probe=is_dead, settings=EtcdSettings(relist_seconds=3600)) as view,
    ):
        for number in range(cuts):
            await proxy.cut()
            key = keys.instance(cluster, f"w{number}")
            await etcd_client.put(key, keys.encode(worker(number)))
            await proxy.mend()
            await eventually(lambda n=number: f"w{n}" in view.instances, 5)
        assert len(view.instances) == cuts
