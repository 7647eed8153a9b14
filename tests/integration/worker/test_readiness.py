"""A worker counts as one that serves when routers watch it and its store is there."""

import asyncio
from functools import partial

import pytest

from baton.cluster import keys
from baton.internal.v1.cluster_pb2 import ROLE_ROUTER, Instance
from baton.internal.v1.worker_pb2 import WatchLoadRequest
from baton.internal.v1.worker_pb2_grpc import WorkerServiceStub
from baton.rpc.channels import open_channel
from tests.integration.worker.conftest import ALONE, SIM
from tests.support.services.service import LocalService
from tests.support.wait import eventually

ANY_STORE = {**ALONE, "kv.store_id": "", "limits.ready_seconds": 600}
"""For a worker that serves without a store, and waits for its routers."""


@pytest.fixture
def put_router(etcd_client, cluster):
    async def put(instance_id: str, **fields: bool) -> None:
        router = Instance(id=instance_id, role=ROLE_ROUTER, address="127.0.0.1:1", **fields)
        await etcd_client.put(keys.instance(cluster, instance_id), keys.encode(router))

    return put


def waits_for(service: LocalService) -> dict[str, str]:
    """Return what a service waits for, with the reason, by part."""
    states = service.process.readiness.states()
    return {part: reason for part, reason in states if reason}


def is_ready(service: LocalService) -> bool:
    return service.process.readiness.ready


async def test_without_a_router_a_worker_is_ready_when_it_is_registered(start_service):
    worker = await start_service("decode", ANY_STORE)
    await eventually(lambda: is_ready(worker))
    assert worker.instance.id == worker.instance_id


async def test_every_router_that_takes_work_must_watch_the_worker(start_service, put_router):
    await put_router("router-a")
    await put_router("router-b")
    await put_router("router-c", draining=True)
    worker = await start_service("decode", ANY_STORE)
    await eventually(lambda: waits_for(worker) == {"routers": "not watched by router-a, router-b"})
    channel = open_channel(worker.address)
    stub = WorkerServiceStub(channel)
    for router_id, missing in (("", "router-a, router-b"), ("router-b", "router-a")):
        await stub.WatchLoad(WatchLoadRequest(router_id=router_id)).read()
        expected = {"routers": f"not watched by {missing}"}
        await eventually(partial(lambda expected: waits_for(worker) == expected, expected))
    await stub.WatchLoad(WatchLoadRequest(router_id="router-a")).read()
    await eventually(lambda: is_ready(worker))
    await channel.close(None)
    await put_router("router-d")  # it looks for workers as it starts: no rollout waits for that
    await asyncio.sleep(0)
    assert is_ready(worker)


async def test_a_router_that_never_comes_is_waited_for_so_long(start_service, put_router):
    await put_router("router-a")
    worker = await start_service("decode", {**ANY_STORE, "limits.ready_seconds": 0.1})
    await eventually(lambda: is_ready(worker))


async def test_routers_watch_workers_that_come_and_those_that_there_are(start_service):
    before = await start_service("decode", ANY_STORE)
    await eventually(lambda: is_ready(before))
    router = await start_service("router")
    await eventually(lambda: is_ready(router))
    after = await start_service("decode", ANY_STORE)
    await eventually(lambda: is_ready(after))


async def test_a_worker_waits_for_the_store_that_it_is_told(start_service):
    worker = await start_service("decode", ALONE)
    await eventually(lambda: waits_for(worker) == {"store": "not attached to store"})
    store = await start_service("kvstore", SIM, instance_id="store")
    await eventually(lambda: is_ready(store))
    await eventually(lambda: is_ready(worker), 60)
