"""Members come, change, leave, freeze and die, and others see it, with a real etcd."""

import asyncio
import socket
import time

import grpc
import pytest

from baton.cluster import keys
from baton.cluster.members.discovery import Discovery
from baton.cluster.members.membership import Liveness
from baton.cluster.members.probe import liveness
from baton.cluster.members.registration import Registration
from baton.internal.v1.cluster_pb2 import ROLE_DECODE, ROLE_PREFILL, Instance, ModelCard
from baton.rpc.server.server import Server
from baton.settings import EtcdSettings, GrpcSettings
from tests.support.clock import within
from tests.support.etcdctl import delete
from tests.support.processes.freeze import freeze, thaw
from tests.support.wait import eventually

LAYOUT = b"L" * 16
SOON = 1.0 + 0.5
"""Seconds: what is promised, and what a busy test machine may add."""

QUICK = EtcdSettings(lease_seconds=2)


def worker(number: int = 1, incarnation: str = "i-1", **fields) -> Instance:
    fields = {"role": ROLE_DECODE, "address": "127.0.0.1:1", **fields}
    return Instance(id=f"w{number}", incarnation=incarnation, **fields)


async def lives(address: str, incarnation: str) -> Liveness:
    return "alive"


async def is_dead(address: str, incarnation: str) -> Liveness:
    return "dead"


async def test_join_update_and_leave_are_seen_within_a_second(etcd_client, cluster):
    async with Discovery(etcd_client, cluster) as view:
        assert view.synced
        async with Registration(etcd_client, cluster, worker()) as registration:
            assert registration.registered
            await eventually(lambda: "w1" in view.instances, SOON)
            assert view.by_role(ROLE_DECODE)[0].address == "127.0.0.1:1"
            assert view.by_role(ROLE_PREFILL) == []
            await registration.update(draining=True, features=["logprobs"])
            await eventually(lambda: view.instances["w1"].draining, SOON)
            assert list(view.instances["w1"].features) == ["logprobs"]
            await registration.update(features=[])
            await eventually(lambda: not view.instances["w1"].features, SOON)
        # Nobody answers at the address: gone at once because it said so, not by a probe.
        await eventually(lambda: not view.instances, 0.7)
    assert await etcd_client.get(keys.instance(cluster, "w1")) is None


async def test_changes_begin_with_those_alive_and_go_on(etcd_client, cluster):
    async with (
        Registration(etcd_client, cluster, worker(1)),
        Discovery(etcd_client, cluster) as view,
        within(5),
    ):
        changes = view.changes()
        seen = [await anext(changes)]
        async with Registration(etcd_client, cluster, worker(2)) as second:
            seen.append(await anext(changes))
            await second.update(store_id="s")
            seen.append(await anext(changes))
        while seen[-1].kind != "down":
            seen.append(await anext(changes))  # it may be seen draining before it is gone
        await changes.aclose()
    told = [(change.kind, change.instance.id) for change in seen]
    assert told[:3] == [("up", "w1"), ("up", "w2"), ("update", "w2")]
    assert told[-1] == ("down", "w2")


async def test_frozen_process_leaves_when_reported_unreachable_and_returns_when_thawed(
    etcd_client, cluster, spawn_member
):
    member = await spawn_member()
    async with Discovery(etcd_client, cluster) as view:
        assert member.instance_id in view.instances
        freeze(member.pid)
        view.report_unreachable(member.instance_id)
        dead = await view.has_died(member.instance_id, member.instance.incarnation)
        assert not dead, "it may live"
        await eventually(lambda: not view.instances, SOON)
        thaw(member.pid)
        await eventually(lambda: member.instance_id in view.instances, 2.5)


async def test_killed_process_leaves_when_reported_unreachable(etcd_client, cluster, spawn_member):
    member = await spawn_member()
    async with Discovery(etcd_client, cluster) as view:
        incarnation = member.instance.incarnation
        assert not await view.has_died(member.instance_id, incarnation)
        member.kill()
        view.report_unreachable(member.instance_id)
        assert await view.has_died(member.instance_id, incarnation)
        await eventually(lambda: not view.instances, SOON)
        again = await spawn_member(member.instance_id)
        await eventually(lambda: member.instance_id in view.instances, SOON)
        assert await view.has_died(member.instance_id, incarnation)
        assert not await view.has_died(member.instance_id, again.instance.incarnation)
        assert view.instances[member.instance_id].incarnation == again.instance.incarnation


async def test_a_dead_process_that_leaves_while_it_is_probed_has_died(etcd_client, cluster):
    key = keys.instance(cluster, "w1")
    found_dead = asyncio.Event()
    probed = []

    async def probe(address: str, incarnation: str) -> Liveness:
        probed.append(address)
        if len(probed) == 1:  # it is asked whether it died: others notice first
            await delete(etcd_client.endpoints, key)
            await found_dead.wait()
        return "dead"

    async with Discovery(etcd_client, cluster, probe=probe) as view:
        await etcd_client.put(key, keys.encode(worker()))
        await eventually(lambda: "w1" in view.instances, SOON)
        died = asyncio.create_task(view.has_died("w1", "i-1"))
        await eventually(lambda: not view.instances, SOON)
        found_dead.set()
        assert await died
        assert not await view.has_died("w1", "i-1"), "who left before may live"


async def test_suspect_that_answers_stays(etcd_client, cluster, spawn_member):
    member = await spawn_member()
    async with Discovery(etcd_client, cluster) as view:
        changes = view.changes()
        assert (await anext(changes)).kind == "up"
        for _ in range(20):
            view.report_unreachable(member.instance_id)
            await asyncio.sleep(0.01)
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.5):
                await anext(changes)
        assert member.instance_id in view.instances


async def test_process_that_lost_its_lease_takes_another(etcd_client, cluster, spawn_member):
    member = await spawn_member()
    key = keys.instance(cluster, member.instance_id)
    async with Discovery(etcd_client, cluster) as view:
        freeze(member.pid)  # nobody suspects it: the lease alone must tell
        await eventually(lambda: not view.instances, 12)
        assert await etcd_client.get(key) is None
        thaw(member.pid)
        await eventually(lambda: member.instance_id in view.instances, 3)
        assert view.instances[member.instance_id].incarnation == member.instance.incarnation
        assert await etcd_client.get(key) is not None


async def test_expired_lease_of_a_process_that_answers_removes_nothing(etcd_client, cluster):
    async with Discovery(etcd_client, cluster) as view:
        async with Server(GrpcSettings(), "test", incarnation="i-1") as server:
            await server.start()
            lease = await etcd_client.grant(60)
            record = keys.encode(worker(address=server.address))
            await etcd_client.put(keys.instance(cluster, "w1"), record, lease)
            await eventually(lambda: "w1" in view.instances, SOON)
            await etcd_client.revoke(lease)
            await asyncio.sleep(2.5)  # it is probed more than once
            assert "w1" in view.instances
        await eventually(lambda: not view.instances, 3)


async def test_another_process_at_the_address_is_no_sign_of_life(etcd_client, cluster):
    async with (
        Server(GrpcSettings(), "test", incarnation="newcomer") as server,
        Discovery(etcd_client, cluster) as view,
    ):
        await server.start()
        assert await liveness(server.address, "newcomer", 0.8) == "alive"
        assert await liveness(server.address, "i-1", 0.8) == "dead"
        await etcd_client.put(
            keys.instance(cluster, "w1"), keys.encode(worker(address=server.address))
        )
        await eventually(lambda: "w1" in view.instances, SOON)
        view.report_unreachable("w1")
        await eventually(lambda: not view.instances, SOON)


async def test_a_frozen_process_is_silent_also_to_one_that_stood_still():
    """What is frozen takes connections and says nothing on them."""
    with socket.create_server(("127.0.0.1", 0)) as frozen:
        host, port = frozen.getsockname()
        probing = asyncio.create_task(liveness(f"{host}:{port}", "i-1", 0.8))
        await asyncio.sleep(0.05)
        time.sleep(1.5)  # noqa: ASYNC251
        assert await probing == "silent"


async def test_process_with_no_place_for_another_call_lives():
    entered, release = asyncio.Event(), asyncio.Event()

    async def hold(request, context):
        entered.set()
        await release.wait()
        return request

    handlers = {"Hold": grpc.unary_unary_rpc_method_handler(hold)}
    generic = grpc.method_handlers_generic_handler("test.Busy", handlers)
    async with Server(GrpcSettings(max_concurrent=1), "test", incarnation="i-1") as server:
        server.add(lambda s: s.add_generic_rpc_handlers((generic,)), "test.Busy")
        await server.start()
        async with grpc.aio.insecure_channel(server.address) as channel:
            held = asyncio.ensure_future(channel.unary_unary("/test.Busy/Hold")(b"", timeout=30))
            await entered.wait()
            assert await liveness(server.address, "i-1", 0.8) == "alive"
            release.set()
            await held


async def test_restart_at_the_same_id_is_down_and_up_and_the_old_process_takes_nothing_along(
    etcd_client, cluster
):
    async with Discovery(etcd_client, cluster, probe=lives) as view:
        old = Registration(etcd_client, cluster, worker(incarnation="old"))
        await old.__aenter__()
        await eventually(lambda: "w1" in view.instances, SOON)
        async with Registration(etcd_client, cluster, worker(incarnation="new")):
            await eventually(lambda: view.instances["w1"].incarnation == "new", SOON)
            await old.__aexit__(None, None, None)
            await asyncio.sleep(0.3)
            assert view.instances["w1"].incarnation == "new"
            assert await etcd_client.get(keys.instance(cluster, "w1")) is not None


async def test_process_whose_id_was_taken_does_not_take_it_back(etcd_client, cluster):
    key = keys.instance(cluster, "w1")
    async with (
        Registration(etcd_client, cluster, worker(incarnation="old"), settings=QUICK) as old,
        Registration(etcd_client, cluster, worker(incarnation="new"), settings=QUICK),
    ):
        await old.update(draining=True)
        await asyncio.sleep(1)
        stored = keys.decode(Instance, await etcd_client.get(key) or b"")
        assert (stored.incarnation, stored.draining) == ("new", False)


async def test_record_that_was_deleted_is_written_again(etcd_client, cluster):
    async with Registration(etcd_client, cluster, worker(), settings=QUICK):
        await delete(etcd_client.endpoints, keys.instance(cluster, "w1"))
        async with Discovery(etcd_client, cluster) as view:
            await eventually(lambda: "w1" in view.instances, 2)


async def test_unreadable_record_is_skipped(etcd_client, cluster):
    await etcd_client.put(keys.instance(cluster, "bad"), b"{")
    await etcd_client.put(keys.models(cluster) + "bad/00", b"\xff")
    async with Discovery(etcd_client, cluster) as view:
        assert view.synced
        await etcd_client.put(keys.instance(cluster, "worse"), b"{")
        async with Registration(etcd_client, cluster, worker()):
            await eventually(lambda: list(view.instances) == ["w1"], SOON)
        assert not view.models


async def test_model_card_outlives_the_worker_that_published_it(etcd_client, cluster):
    key = ("org/tiny", f"{LAYOUT.hex()}.")
    cards = [ModelCard(name="org/tiny", layout_id=LAYOUT, context_tokens=512)]
    serves = {"model": "org/tiny", "layout_id": LAYOUT}
    async with Discovery(etcd_client, cluster, probe=lives) as view:
        async with Registration(etcd_client, cluster, worker(1, **serves), cards, settings=QUICK):
            await eventually(lambda: key in view.models, SOON)
            created = view.models[key].created_seconds
            assert created > 0
            second = Registration(etcd_client, cluster, worker(2, **serves), cards, settings=QUICK)
            await second.__aenter__()
            await eventually(lambda: len(view.instances) == 2, SOON)
        # The first leaves; the second serves on, so the card stays, here and for newcomers.
        await second.update(store_id="s")
        await eventually(lambda: len(view.instances) == 1, SOON)
        assert key in view.models
        await asyncio.sleep(1.2)
        async with Discovery(etcd_client, cluster, probe=lives) as newcomer:
            assert newcomer.models[key].created_seconds == created
        await second.__aexit__(None, None, None)
        await eventually(lambda: not view.models, SOON)


async def test_thousand_members_are_seen_and_left_within_seconds(etcd_client, cluster):
    async with Discovery(etcd_client, cluster, probe=is_dead) as view:
        lease = await etcd_client.grant(60)
        for start in range(0, 1000, 100):
            await asyncio.gather(
                *(
                    etcd_client.put(
                        keys.instance(cluster, f"w{number}"), keys.encode(worker(number)), lease
                    )
                    for number in range(start, start + 100)
                )
            )
        await eventually(lambda: len(view.instances) == 1000, 2)
        await etcd_client.revoke(lease)
        await eventually(lambda: not view.instances, 5)
