"""Prefetches are requested a few at a time, once each, and dropped where they would pile up."""

import asyncio
import time
from typing import Any

import pytest
from prometheus_client import REGISTRY

from baton.errors import BatonError, Reason
from baton.internal.v1 import kvstore_pb2 as pb
from baton.internal.v1.kvstore_pb2_grpc import (
    KvStoreServiceServicer,
    add_KvStoreServiceServicer_to_server,
)
from baton.rpc.server.server import Server
from baton.settings import GrpcSettings, RouterPlacement
from services.router.replication.hot_prefixes import PrefetchTask
from services.router.replication.prefetcher import Prefetcher
from tests.support.wait import eventually

MAX_CONCURRENT = RouterPlacement().prefetch_concurrent
MAX_QUEUED = RouterPlacement().prefetch_queued


class PrefetchingStore(KvStoreServiceServicer):
    """A store whose prefetches last until they may end, and fetch nothing but what is asked."""

    def __init__(self) -> None:
        self.requests: list[pb.PrefetchRequest] = []
        self.running = self.most = 0
        self.may_end = asyncio.Event()
        self.missing: list[int] = []
        self.refuses = False

    async def Prefetch(self, request: pb.PrefetchRequest, context: Any) -> pb.PrefetchResponse:  # noqa: N802
        self.requests.append(request)
        if self.refuses:
            raise BatonError(Reason.UNAVAILABLE, "not now")
        self.running += 1
        self.most = max(self.most, self.running)
        try:
            await self.may_end.wait()
        finally:
            self.running -= 1
        return pb.PrefetchResponse(missing=self.missing)


def task(store_id: str = "b", blocks: int = 8) -> PrefetchTask:
    return PrefetchTask(store_id, ("a", "gone"), b"L" * 16, bytes(16 * blocks), 4096, "team")


def count(outcome: str) -> float:
    return REGISTRY.get_sample_value("baton_router_prefetches_total", {"outcome": outcome}) or 0.0


@pytest.fixture
async def world():
    store = PrefetchingStore()
    async with Server(GrpcSettings(port=0), "store") as server:
        server.add(
            lambda grpc_server: add_KvStoreServiceServicer_to_server(store, grpc_server),
            "baton.internal.v1.KvStoreService",
        )
        await server.start()
        addresses = {"a": "127.0.0.1:1", **dict.fromkeys("bcde", server.address)}
        prefetcher = Prefetcher(addresses.get)
        running = asyncio.create_task(prefetcher.run())
        yield store, prefetcher
        store.may_end.set()
        running.cancel()
        await asyncio.wait([running])


async def test_a_prefetch_names_the_blocks_and_the_sources_that_live(world) -> None:
    store, prefetcher = world
    store.may_end.set()
    before = count("completed")
    prefetcher.submit(task(), time.monotonic())
    await eventually(lambda: count("completed") == before + 1)
    (request,) = store.requests
    assert request.keys == bytes(16 * 8)
    assert request.tenant == "team"
    assert [(s.store_id, s.address) for s in request.sources] == [("a", "127.0.0.1:1")]


async def test_few_prefetches_run_at_a_time_and_what_does_not_fit_is_dropped(world) -> None:
    store, prefetcher = world
    before = count("dropped")
    for _ in range(MAX_CONCURRENT):
        prefetcher.submit(task(), time.monotonic())
    await eventually(lambda: store.running == MAX_CONCURRENT)
    for _ in range(MAX_QUEUED + 3):
        prefetcher.submit(task(), time.monotonic())
    await asyncio.sleep(0.2)
    assert store.most == MAX_CONCURRENT
    assert count("dropped") == before + 3


async def test_a_store_that_fetches_nothing_is_not_asked_for_a_while_and_others_are_not(
    world,
) -> None:
    store, prefetcher = world
    store.missing = list(range(8))
    store.may_end.set()
    before, partial = count("dropped"), count("partial")
    prefetcher.submit(task("b"), time.monotonic())
    await eventually(lambda: count("partial") == partial + 1)
    prefetcher.submit(task("b"), time.monotonic())
    await eventually(lambda: count("dropped") == before + 1)
    prefetcher.submit(task("c"), time.monotonic())
    await eventually(lambda: len(store.requests) == 2)


async def test_a_store_that_left_is_not_called(world) -> None:
    store, prefetcher = world
    before = count("dropped")
    prefetcher.submit(task("gone"), time.monotonic())
    await eventually(lambda: count("dropped") == before + 1)
    assert store.requests == []


async def test_prefetches_go_on_after_one_lost_the_channel_that_it_shares(world) -> None:
    store, prefetcher = world
    prefetcher.submit(task("b"), time.monotonic())
    await eventually(lambda: store.running == 1)
    store.refuses = True
    # Fails, and its channel is closed, which the first one uses too.
    prefetcher.submit(task("c"), time.monotonic())
    await eventually(lambda: store.running == 0)
    store.refuses = False
    for store_id in "de":
        prefetcher.submit(task(store_id), time.monotonic())
    await eventually(lambda: store.running == MAX_CONCURRENT)


async def test_a_store_that_misses_more_than_it_was_asked_harms_no_other_store(world) -> None:
    store, prefetcher = world
    store.missing = list(range(20))
    store.may_end.set()
    partial = count("partial")
    prefetcher.submit(task("b"), time.monotonic())
    await eventually(lambda: count("partial") == partial + 1)
    prefetcher.submit(task("c"), time.monotonic())
    await eventually(lambda: len(store.requests) == 2)
