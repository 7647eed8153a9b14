"""Hints are sent a few at a time, once each, and dropped where they would pile up."""

import asyncio
from typing import Any

import pytest
from prometheus_client import REGISTRY

from baton.errors import BatonError, Reason
from baton.internal.v1 import kvstore_pb2 as pb
from baton.internal.v1.kvstore_pb2_grpc import (
    KvStoreServiceServicer,
    add_KvStoreServiceServicer_to_server,
)
from baton.rpc.server import Server
from baton.settings import GrpcSettings
from services.router.replication.hot_prefixes import Hint
from services.router.replication.prefetcher import MAX_HINTS, MAX_PULLS, HintSender


class Puller(KvStoreServiceServicer):
    """A store whose pulls last until they may end, and bring nothing but what is asked."""

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


def hint(store_id: str = "b", blocks: int = 8) -> Hint:
    return Hint(store_id, ("a", "gone"), b"L" * 16, bytes(16 * blocks), 4096, "team")


def count(outcome: str) -> float:
    return REGISTRY.get_sample_value("baton_router_hints_total", {"outcome": outcome}) or 0.0


async def until(condition: Any) -> None:
    async with asyncio.timeout(5.0):
        while not condition():  # no event tells
            await asyncio.sleep(0.01)


@pytest.fixture
async def world():
    store = Puller()
    async with Server(GrpcSettings(port=0), "store") as server:
        server.add(
            lambda grpc_server: add_KvStoreServiceServicer_to_server(store, grpc_server),
            "baton.internal.v1.KvStoreService",
        )
        await server.start()
        addresses = {"a": "127.0.0.1:1", **dict.fromkeys("bcde", server.address)}
        sender = HintSender(addresses.get)
        running = asyncio.create_task(sender.run())
        yield store, sender
        store.may_end.set()
        running.cancel()
        await asyncio.wait([running])


async def test_a_pull_names_the_blocks_and_the_sources_that_live(world) -> None:
    store, sender = world
    store.may_end.set()
    before = count("pulled")
    sender.offer(hint())
    await until(lambda: count("pulled") == before + 1)
    (request,) = store.requests
    assert request.keys == bytes(16 * 8)
    assert request.tenant == "team"
    assert [(s.store_id, s.address) for s in request.sources] == [("a", "127.0.0.1:1")]


async def test_few_pulls_run_at_a_time_and_what_does_not_fit_is_dropped(world) -> None:
    store, sender = world
    before = count("dropped")
    for _ in range(MAX_PULLS):
        sender.offer(hint())
    await until(lambda: store.running == MAX_PULLS)
    for _ in range(MAX_HINTS + 3):
        sender.offer(hint())
    await asyncio.sleep(0.2)
    assert store.most == MAX_PULLS
    assert count("dropped") == before + 3


async def test_a_store_that_brings_nothing_is_left_alone_and_others_are_not(world) -> None:
    store, sender = world
    store.missing = list(range(8))
    store.may_end.set()
    before = count("dropped")
    sender.offer(hint("b"))
    await until(lambda: len(store.requests) == 1)
    await asyncio.sleep(0.1)
    sender.offer(hint("b"))
    await until(lambda: count("dropped") == before + 1)
    sender.offer(hint("c"))
    await until(lambda: len(store.requests) == 2)


async def test_a_store_that_is_gone_is_not_called(world) -> None:
    store, sender = world
    before = count("dropped")
    sender.offer(hint("gone"))
    await until(lambda: count("dropped") == before + 1)
    assert store.requests == []


async def test_pulls_go_on_after_one_lost_the_channel_that_it_shares(world) -> None:
    store, sender = world
    sender.offer(hint("b"))
    await until(lambda: store.running == 1)
    store.refuses = True
    sender.offer(hint("c"))  # fails, and its channel is closed, which the first one uses too
    await until(lambda: store.running == 0)
    store.refuses = False
    for store_id in "de":
        sender.offer(hint(store_id))
    await until(lambda: store.running == MAX_PULLS)


async def test_a_store_that_misses_more_than_it_was_asked_harms_nobody(world) -> None:
    store, sender = world
    store.missing = list(range(20))
    store.may_end.set()
    sender.offer(hint("b"))
    await until(lambda: len(store.requests) == 1)
    await asyncio.sleep(0.1)
    sender.offer(hint("c"))
    await until(lambda: len(store.requests) == 2)
