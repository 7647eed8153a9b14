"""Objects that a store is told to fetch before anybody asks for them."""

import asyncio

import grpc
import pytest

from baton.internal.v1 import kvstore_pb2 as pb
from baton.transports import GRPC
from tests.integration.kvstore.peers.pair import SIZE, Pair, prefetch
from tests.support.stores import (
    LAYOUT,
    MIB,
    block,
    get,
    keys_of,
    put,
)

GRPC_ONLY = pytest.mark.parametrize("pair", [GRPC], indirect=True)
"""For what is over before anything moves."""


async def test_objects_are_pulled_on_a_hint_and_found_by_the_next_reader(pair: Pair) -> None:
    keys = keys_of(5)
    await put(pair.at_a, keys[:4], SIZE)
    await put(pair.at_b, keys[:1], SIZE)
    answer = await prefetch(pair, keys, [pair.a.source])
    assert list(answer.missing) == [4]
    pair.assert_moved(3 * SIZE)
    await pair.b.at_baseline()
    assert await get(pair.at_b, keys, SIZE) == ({i: block(i, SIZE) for i in range(4)}, {4})
    pair.assert_moved(3 * SIZE)  # nothing more was fetched


async def test_more_than_may_be_held_at_once_is_pulled(pair: Pair) -> None:
    for at in range(0, 12, 6):
        await put(pair.at_a, keys_of(12)[at : at + 6], MIB, first=at)
    assert list((await prefetch(pair, keys_of(12), [pair.a.source])).missing) == []
    pair.assert_moved(12 * MIB)


@GRPC_ONLY
async def test_a_pull_that_is_cancelled_or_comes_to_nothing_leaves_nothing(pair: Pair) -> None:
    gone = pb.KvSource(store_id="gone", address="127.0.0.1:1")
    answer = await prefetch(pair, keys_of(2), [gone])
    assert list(answer.missing) == [0, 1]
    prefetching = asyncio.create_task(prefetch(pair, keys_of(2), [gone]))
    await asyncio.sleep(0)
    prefetching.cancel()
    await asyncio.wait([prefetching])
    await pair.b.at_baseline(1)


@GRPC_ONLY
async def test_a_pull_that_finds_no_room_to_lease_is_answered_in_time(pair: Pair) -> None:
    # What it names is here, and half of the arena is what may be leased and reserved at a time.
    await put(pair.at_b, keys_of(1), 4096)
    held = await pair.at_b.reserve(keys_of(8, "held"), LAYOUT, MIB)
    try:
        assert len(held.slots) == 8
        answer = await prefetch(pair, keys_of(1), [pair.a.source], timeout=1.6)
        assert list(answer.missing) == []
    finally:
        await held.aclose()
    await pair.b.at_baseline(1)


@GRPC_ONLY
async def test_a_malformed_pull_is_refused(pair: Pair) -> None:
    for wrong in (
        {"sources": []},
        {"keys": b""},
        {"keys": b"k" * 17},
        {"keys": b"k" * 16 * 4097},
        {"layout_id": b"short"},
        {"tenant": "t" * 1000},
        {"sources": [pb.KvSource(store_id="x", address="nowhere")]},
    ):
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await prefetch(pair, keys_of(1), [pair.a.source], wrong)
        assert caught.value.code() is grpc.StatusCode.INVALID_ARGUMENT, wrong
