"""States of models in etcd: written under a lease, and followed."""

from collections.abc import Sequence
from typing import Any

import pytest

from baton.cluster import keys
from baton.cluster.etcd.client import EtcdError
from baton.internal.v1 import cluster_pb2
from baton.on_demand.records import LEASE_SECONDS, TurnRecords, TurnWriter
from baton.on_demand.state import ModelState, ModelTurn

READY = ModelTurn(ModelState.READY)


class LeasedEtcd:
    """Keys under one lease at a time."""

    def __init__(self) -> None:
        self.keys: dict[str, bytes] = {}
        self.writes = 0
        self.lease = 0
        self.away = False

    async def grant(self, ttl: int) -> int:
        assert ttl == LEASE_SECONDS
        self.lease += 1
        return self.lease

    async def keep_alive(self, lease: int) -> int:
        return LEASE_SECONDS if lease == self.lease else 0

    async def put(self, key: str, value: bytes, lease: int) -> None:
        if self.away:
            raise EtcdError("away")
        assert lease == self.lease
        self.keys[key] = value
        self.writes += 1

    async def replace_all(self, _known: Any, _pairs: Any, gone: Sequence[str]) -> bool:
        for key in gone:
            del self.keys[key]
        return True

    async def revoke(self, lease: int) -> None:
        assert lease == self.lease
        self.keys.clear()


class World:
    """A writer and a reader, with different clocks."""

    def __init__(self) -> None:
        self.etcd = LeasedEtcd()
        self.now = 100.0
        self.writer = TurnWriter(self.etcd, "c", lambda: self.now)  # type: ignore[arg-type]
        self.read: dict[str, ModelTurn] = {}
        self.records = TurnRecords(lambda turns: self._take(dict(turns)), lambda: self.now + 5_000)

    def _take(self, turns: dict[str, ModelTurn]) -> None:
        self.read = turns

    async def write(self, **turns: ModelTurn) -> None:
        self.writer.set(turns)
        await self.writer.write()

    def list(self) -> None:
        self.records.begin(1)
        for key, value in self.etcd.keys.items():
            self.records.take(key.removeprefix("/baton/c/turns/"), value)
        self.records.end()


async def test_what_is_written_is_read_on_another_clock() -> None:
    world = World()
    starting = ModelTurn(ModelState.ON_DEMAND, 130.0, 5.0)
    await world.write(a=READY, b=starting)
    assert sorted(world.etcd.keys) == ["/baton/c/turns/a", "/baton/c/turns/b"]
    world.list()
    assert world.read["a"].state is ModelState.READY
    assert world.read["b"] == ModelTurn(ModelState.ON_DEMAND, 5_130.0, 5.0)
    assert world.read["b"].ready_in(5_110.0) == 25.0
    world.records.change("b", None, 2)
    assert list(world.read) == ["a"]


async def test_only_changes_are_written_and_a_lost_lease_writes_all() -> None:
    world = World()
    await world.write(a=READY, b=READY)
    await world.write(a=READY, b=ModelTurn(ModelState.LEAVING))
    assert world.etcd.writes == 3
    await world.write(a=READY)
    assert list(world.etcd.keys) == ["/baton/c/turns/a"]
    world.etcd.lease += 1
    world.now += LEASE_SECONDS
    await world.write(a=READY)
    assert world.etcd.writes == 4
    await world.writer.leave()
    assert world.etcd.keys == {}


async def test_what_was_not_written_is_written_later() -> None:
    world = World()
    world.etcd.away = True
    with pytest.raises(EtcdError):
        await world.write(a=READY)
    world.etcd.away = False
    await world.writer.write()
    assert list(world.etcd.keys) == ["/baton/c/turns/a"]


@pytest.mark.parametrize(
    "record",
    [
        cluster_pb2.ModelTurn(),
        cluster_pb2.ModelTurn(
            availability=cluster_pb2.MODEL_AVAILABILITY_READY, room_seconds=float("inf")
        ),
        cluster_pb2.ModelTurn(availability=cluster_pb2.MODEL_AVAILABILITY_READY, start_seconds=-1),
    ],
)
def test_what_is_no_state_is_left_out(record: cluster_pb2.ModelTurn) -> None:
    world = World()
    world.records.change("a", keys.encode(record), 1)
    world.records.change("b", b"{", 2)
    assert world.read == {}
