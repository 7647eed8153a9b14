"""Stores that write into each other's arenas: what goes wrong costs time, and nothing else."""

import asyncio
from pathlib import Path

import pytest

from services.kvstore.api.admin import stat
from tests.integration.kvstore.peers.side import (
    COUNT,
    EVERYTHING,
    IN_FLIGHT,
    SIZE,
    Gate,
    Side,
    fetch,
    pushing,
    side,
)
from tests.support.clock import Stopwatch
from tests.support.stores import block, get, keys_of, needs_nixl, put
from tests.support.wait import eventually

pytestmark = needs_nixl


async def test_a_push_that_hangs_is_replaced_by_grpc_and_its_slots_wait_for_its_end(
    a: Side, b: Side
) -> None:
    await put(a.client, keys_of(1, "warm"), SIZE)
    await get(b.client, keys_of(1, "warm"), SIZE, 5, [a.store.source])
    warm = b.came("nixl")
    assert warm == SIZE
    await put(a.client, keys_of(COUNT), SIZE)
    gate = Gate(a.store)
    try:
        assert await fetch(b, [a.store.source]) == EVERYTHING
        assert b.came("grpc") == COUNT * SIZE
        assert b.store.peers.quarantined == IN_FLIGHT
        assert stat(b.store.store).quarantined == IN_FLIGHT
        assert b.store.store.peer_failures["nixl"] == 1
        assert b.came("nixl") == warm
    finally:
        gate.open()
    await b.store.at_baseline(5)
    # Later it is tried again, and used.
    watch = Stopwatch()
    number = 0
    while b.came("nixl") == warm:
        assert watch.remaining(15)
        number += 1
        await put(a.client, keys_of(1, f"again{number}"), SIZE)
        found, _ = await get(b.client, keys_of(1, f"again{number}"), SIZE, 5, [a.store.source])
        assert found == {0: block(0, SIZE)}
        await asyncio.sleep(0.1)


async def test_slots_of_a_hanging_push_outlive_the_stream_that_it_was_asked_for_on(
    a: Side, b: Side
) -> None:
    await put(a.client, keys_of(1, "warm"), SIZE)
    await get(b.client, keys_of(1, "warm"), SIZE, 5, [a.store.source])
    await put(a.client, keys_of(COUNT), SIZE)
    gate = Gate(a.store)
    try:
        getting = asyncio.create_task(fetch(b, [a.store.source]))
        await pushing(b)
        (link,) = b.store.peers._connections.values()
        await eventually(lambda: a.store.pushes.live)
        link._stream.close()  # as if the connection broke
        assert await getting == EVERYTHING
        assert b.store.peers.quarantined == IN_FLIGHT
        # The new stream has asked after the push, and A has not said that it is over.
        await asyncio.sleep(0.3)
        assert b.store.peers.quarantined == IN_FLIGHT
        assert a.store.pushes.live == 1
    finally:
        gate.open()
    await b.store.at_baseline(5)
    assert a.store.pushes.live == 0


@pytest.mark.parametrize("without", ["a", "b"])
async def test_a_peer_without_nixl_is_asked_over_grpc(tmp_path: Path, without: str) -> None:
    async with (
        side(tmp_path, "a", "grpc" if without == "a" else "nixl") as a,
        side(tmp_path, "b", "grpc" if without == "b" else "nixl") as b,
    ):
        await put(a.client, keys_of(COUNT), SIZE)
        assert await fetch(b, [a.store.source]) == EVERYTHING
        assert (b.came("nixl"), b.came("grpc")) == (0, COUNT * SIZE)


async def test_a_machine_without_the_library_uses_grpc(
    a: Side, b: Side, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        "services.kvstore.peers.transports.nixl.agent.LIBRARIES", ("no_such_library",)
    )
    await put(a.client, keys_of(COUNT), SIZE)
    assert await fetch(b, [a.store.source]) == EVERYTHING
    assert (b.came("nixl"), b.came("grpc")) == (0, COUNT * SIZE)
    assert "pip install" in b.store.nixl.failure
