"""The demand that routers share through etcd, with an etcd that a test controls."""

from collections.abc import Iterable

import pytest

from baton.cluster import keys
from baton.cluster.etcd.client import EtcdError
from baton.internal.v1 import cluster_pb2
from services.router.needs.shared import LEASE_SECONDS, SILENCE_SECONDS, SharedDemand
from services.router.sizing.demand import ModelDemand


class RecordingEtcd:
    """Leases and keys, as far as a router writes them."""

    def __init__(self) -> None:
        self.keys: dict[str, bytes] = {}
        self.writes = 0
        self.leases: set[int] = set()
        self.away = False
        self._granted = 0

    async def grant(self, ttl: int) -> int:
        self._answer()
        assert ttl == LEASE_SECONDS
        self._granted += 1
        self.leases.add(self._granted)
        return self._granted

    async def keep_alive(self, lease: int) -> int:
        self._answer()
        return LEASE_SECONDS if lease in self.leases else 0

    async def put(self, key: str, value: bytes, lease: int = 0) -> None:
        self._answer()
        assert lease in self.leases
        self.keys[key] = value
        self.writes += 1

    async def revoke(self, lease: int) -> None:
        self._answer()
        self.leases.discard(lease)
        self.keys.clear()

    def _answer(self) -> None:
        if self.away:
            raise EtcdError("away")


class World:
    def __init__(self, routers: Iterable[str] = ("r0", "r1")) -> None:
        self.etcd = RecordingEtcd()
        self.now = 100.0
        self.routers = list(routers)
        self.shared = SharedDemand(
            self.etcd,  # type: ignore[arg-type]
            "c",
            "r0",
            lambda: self.routers,
            clock=lambda: self.now,
        )

    def hear(self, router: str, *models: cluster_pb2.ModelDemand, covered: bool = True) -> None:
        record = cluster_pb2.RouterDemand(models=models, covered=covered)
        self.shared.change(router, keys.encode(record), 1)


def demand(model: str = "m", **fields: float) -> cluster_pb2.ModelDemand:
    return cluster_pb2.ModelDemand(model=model, **fields)  # type: ignore[arg-type]


async def test_alone_all_is_known_with_etcd_and_without() -> None:
    world = World(["r0"])
    assert world.shared.known
    world.etcd.away = True
    with pytest.raises(EtcdError):
        await world.shared.write()
    assert world.shared.known
    assert world.shared.others() == {}


async def test_the_others_are_known_once_each_has_a_record_of_a_whole_window() -> None:
    world = World(["r0", "r1", "r2"])
    await world.shared.write()
    assert not world.shared.known
    world.hear("r1", demand(arrived_tokens=10))
    world.hear("r2", covered=False)
    assert not world.shared.known
    world.hear("r2", demand(arrived_tokens=5, wait_seconds=2.0), demand("n", queued_sequences=3))
    assert world.shared.known
    assert world.shared.others() == {
        "m": ModelDemand(arrived_tokens=15, wait_seconds=2.0),
        "n": ModelDemand(queued_sequences=3),
    }


async def test_records_of_routers_that_are_gone_and_of_itself_do_not_count() -> None:
    world = World()
    await world.shared.write()
    world.hear("r0", demand(arrived_tokens=1))
    world.hear("r1", demand(arrived_tokens=2))
    world.hear("r9", demand(arrived_tokens=4))
    assert world.shared.others()["m"].arrived_tokens == 2
    world.routers.remove("r1")
    assert world.shared.others() == {}


async def test_without_etcd_the_others_are_not_known_after_a_while() -> None:
    world = World()
    await world.shared.write()
    world.hear("r1")
    assert world.shared.known
    world.etcd.away = True
    world.now += SILENCE_SECONDS + 0.1
    with pytest.raises(EtcdError):
        await world.shared.write()
    assert not world.shared.known
    world.etcd.away = False
    await world.shared.write()
    assert world.shared.known


async def test_a_record_is_written_when_it_changes_by_more_than_a_digit() -> None:
    world = World()
    for tokens in (1_000, 1_001, 1_040):
        world.shared.set({"m": ModelDemand(arrived_tokens=tokens)}, covered=True)
        await world.shared.write()
        world.now += 1.0
    assert world.etcd.writes == 1
    world.shared.set({"m": ModelDemand(arrived_tokens=1_200)}, covered=True)
    await world.shared.write()
    assert world.etcd.writes == 2


async def test_a_lost_lease_is_replaced_and_the_record_written_again() -> None:
    world = World()
    await world.shared.write()
    world.etcd.leases.clear()
    world.etcd.keys.clear()
    world.now += LEASE_SECONDS / 3
    await world.shared.write()
    assert list(world.etcd.keys) == ["/baton/c/demand/r0"]


async def test_a_router_that_stops_takes_its_record_with_it() -> None:
    world = World()
    await world.shared.write()
    await world.shared.leave()
    assert world.etcd.keys == {}
    world.shared.set({}, covered=True)
    await world.shared.write()
    assert world.etcd.keys == {}
    world.etcd.away = True
    await world.shared.leave()


@pytest.mark.parametrize(
    "value",
    [
        b"no record",
        b'{"models": [{"model": "m", "arrived_tokens": "NaN"}], "covered": true}',
        b'{"models": [{"model": "m", "queued_sequences": "-1"}], "covered": true}',
        b'{"models": [{"model": "m", "wait_seconds": "Infinity"}], "covered": true}',
    ],
)
async def test_a_record_that_cannot_be_is_not_known(value: bytes) -> None:
    world = World()
    await world.shared.write()
    world.hear("r1")
    world.shared.change("r1", value, 2)
    assert not world.shared.known
    assert world.shared.others() == {}


async def test_a_list_replaces_what_was_known() -> None:
    world = World()
    await world.shared.write()
    world.hear("r1", demand(arrived_tokens=1))
    world.shared.begin(5)
    assert world.shared.known  # until it has ended
    world.shared.end()
    assert not world.shared.known
    world.hear("r1")
    world.shared.change("r1", None, 6)
    assert not world.shared.known
