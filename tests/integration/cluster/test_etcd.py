"""The etcd client against a real etcd."""

import asyncio
from contextlib import aclosing, suppress

import pytest

from baton.cluster.etcd.client import Compacted, Etcd, EtcdError
from baton.cluster.etcd.local import LocalEtcd
from tests.support.clock import within
from tests.support.etcdctl import compact, delete
from tests.support.processes.freeze import freeze, thaw


@pytest.fixture
def prefix(cluster: str) -> str:
    return f"/{cluster}/"


async def test_keys_are_written_listed_and_removed(etcd_client, prefix):
    await etcd_client.put(prefix + "b", b"2")
    await etcd_client.put(prefix + "a", b"\x00\xff")
    assert await etcd_client.get(prefix + "a") == b"\x00\xff"
    assert await etcd_client.get(prefix + "c") is None
    pairs, revision = await etcd_client.list(prefix)
    assert pairs == [(prefix + "a", b"\x00\xff"), (prefix + "b", b"2")]
    assert revision > 0
    assert await delete(etcd_client.endpoints, prefix + "a")
    assert not await delete(etcd_client.endpoints, prefix + "a")
    pairs, later = await etcd_client.list(prefix)
    assert [key for key, _ in pairs] == [prefix + "b"]
    assert later > revision


async def test_of_many_creators_one_wins(etcd_client, prefix):
    won = await asyncio.gather(
        *(etcd_client.create(prefix + "k", str(i).encode()) for i in range(20))
    )
    assert sum(won) == 1
    assert await etcd_client.get(prefix + "k") == str(won.index(True)).encode()


async def test_key_is_replaced_only_while_it_holds_what_is_known(etcd_client, prefix):
    assert not await etcd_client.replace(prefix + "k", b"", b"1")
    await etcd_client.put(prefix + "k", b"1")
    assert await etcd_client.replace(prefix + "k", b"1", b"2")
    assert not await etcd_client.replace(prefix + "k", b"1", b"3")
    assert await etcd_client.get(prefix + "k") == b"2"


async def test_key_goes_with_its_lease(etcd_client, prefix):
    lease = await etcd_client.grant(5)
    await etcd_client.put(prefix + "k", b"v", lease)
    assert 0 < await etcd_client.keep_alive(lease) <= 5
    await etcd_client.revoke(lease)
    await etcd_client.revoke(lease)
    assert await etcd_client.get(prefix + "k") is None
    assert await etcd_client.keep_alive(lease) == 0


async def test_watch_goes_on_where_the_list_stopped(etcd_client, prefix):
    await etcd_client.put(prefix + "a", b"1")
    _, revision = await etcd_client.list(prefix)
    await etcd_client.put(prefix + "a", b"2")
    await etcd_client.put("/elsewhere" + prefix, b"no")
    await delete(etcd_client.endpoints, prefix + "a")
    seen = []
    async with within(5), aclosing(etcd_client.watch(prefix, revision + 1)) as batches:
        async for events in batches:
            seen += events
            if len(seen) == 2:
                break
    assert [(event.key, event.value) for event in seen] == [
        (prefix + "a", b"2"),
        (prefix + "a", None),
    ]
    assert revision < seen[0].revision < seen[1].revision


async def test_watch_from_forgotten_history_says_so(etcd_client, prefix):
    _, begin = await etcd_client.list(prefix)
    await etcd_client.put(prefix + "a", b"1")
    await etcd_client.put(prefix + "a", b"2")
    _, now = await etcd_client.list(prefix)
    await compact(etcd_client.endpoints, now)
    async with within(5):
        with pytest.raises(Compacted):
            async for _ in etcd_client.watch(prefix, begin + 1):
                pass


async def test_watch_from_a_future_that_was_lost_says_so(etcd_client, prefix):
    _, now = await etcd_client.list(prefix)
    async with within(5):
        with pytest.raises(Compacted):
            async for _ in etcd_client.watch(prefix, now + 1000):
                pass


async def test_every_request_fails_soon_when_etcd_is_unavailable(own_etcd):
    async with Etcd(own_etcd.endpoints, timeout=1.0) as client:
        lease = await client.grant(5)
        watch = client.watch("/", 1)
        await anext(watch)
        await own_etcd.kill()
        async with within(5):
            for request in (
                client.get("k"),
                client.list("k"),
                client.put("k", b""),
                client.create("k", b""),
                client.grant(5),
                client.keep_alive(lease),
                client.revoke(lease),
                anext(watch),
            ):
                with pytest.raises(EtcdError):
                    await request


async def until_answered(client: Etcd) -> bytes | None:
    """Return the value of "k" once etcd answers in the client's time."""
    async with within(30):
        while True:
            with suppress(EtcdError):
                return await client.get("k")
            await asyncio.sleep(0.05)


async def test_frozen_etcd_does_not_hold_requests_for_ever(own_etcd):
    async with Etcd(own_etcd.endpoints, timeout=0.5) as client:
        await until_answered(client)
        freeze(own_etcd.pid)
        try:
            for request in (client.get("k"), client.keep_alive(1), anext(client.watch("k", 1))):
                with pytest.raises(EtcdError):
                    async with within(30):
                        await request
        finally:
            thaw(own_etcd.pid)


async def test_data_outlives_a_kill(own_etcd: LocalEtcd):
    async with Etcd(own_etcd.endpoints) as client:
        await client.put("k", b"v")
        # etcd before 3.5.5 acknowledges the write of a single server before it is in its log, and
        # begins the next one after that.
        await client.put("next", b"")
        await own_etcd.kill()
        assert own_etcd.pid is None
        await own_etcd.start()
        assert await until_answered(client) == b"v"
