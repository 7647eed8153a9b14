"""Stores, tables, waits and readers without any I/O."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from baton.kv.events.log import EventLog
from baton.kv.objects import ObjectId
from services.kvstore.block_events import BlockEventPublisher
from services.kvstore.memory.arena import Arena
from services.kvstore.memory.object_table import ObjectTable
from services.kvstore.memory.slab_allocator import SlabAllocator
from services.kvstore.memory.slot import Lease, Slot
from services.kvstore.reads.read_request import ReadRequest, ReadResult, ReadSource
from services.kvstore.reads.wait_table import WaitTable
from services.kvstore.store import Store

PAGE = 4096
MIB = 1024 * 1024
LAYOUT = b"L" * 16


def object_id(number: int) -> ObjectId:
    return ObjectId(LAYOUT, number.to_bytes(16, "big"))


@dataclass
class Reader:
    """A Reader that notes what it is told."""

    ready: dict[int, Lease] = field(default_factory=dict)
    will_not_come: set[int] = field(default_factory=set)
    timed_out: set[int] = field(default_factory=set)
    done: int = 0
    batches: list[list[int]] = field(default_factory=list)
    lost: list[Lease] = field(default_factory=list)

    def deliver(self, request: ReadRequest, result: ReadResult) -> None:
        indexes = [index for index, _ in result.ready]
        answered = {*self.ready, *self.will_not_come, *self.timed_out}
        assert not answered & {*indexes, *result.will_not_come, *result.timed_out}
        assert not self.done
        self.ready.update(result.ready)
        self.will_not_come.update(result.will_not_come)
        self.timed_out.update(result.timed_out)
        self.done += result.done
        if indexes:
            self.batches.append(indexes)

    def lease_expired(self, request: ReadRequest, lease: Lease) -> None:
        self.lost.append(lease)


@dataclass
class World:
    """A table and its waits, with a clock that the test moves."""

    table: ObjectTable
    waits: WaitTable
    now: float = 0.0

    def read(
        self,
        *numbers: int,
        wait: float = 10.0,
        sources: tuple[str, ...] = (),
        own: str = "me",
    ) -> tuple[Reader, ReadRequest]:
        reader = Reader()
        ids = [object_id(number) for number in numbers]
        request = ReadRequest(reader, 1, ids, self.now + (wait or 5.0), instant=wait == 0)
        request.set_sources([ReadSource(name, f"{name}:1") for name in sources], own)
        self.waits.add(request, self.now)
        self.waits.flush(self.now)
        return reader, request

    def reserve(self, number: int) -> Slot | None:
        (slot,) = self.table.reserve([object_id(number)], PAGE, now=self.now)
        if isinstance(slot, Slot):
            self.waits.reserved([object_id(number)])
            return slot
        return None

    def commit(self, slot: Slot) -> None:
        if self.table.commit([slot], [b"d" * 16], self.now):
            self.waits.committed([slot.object_id], self.now)
        self.waits.flush(self.now)

    def put(self, number: int) -> bool:
        slot = self.reserve(number)
        if slot is not None:
            self.commit(slot)
        return slot is not None

    def release(self, lease: Lease, bad: bool = False) -> None:
        self.waits.release(lease, bad=bad)
        self.waits.flush(self.now)

    def mark_unavailable(self, *numbers: int) -> None:
        self.waits.mark_unavailable([object_id(number) for number in numbers], self.now)
        self.waits.flush(self.now)

    def pass_time(self, seconds: float) -> None:
        self.now += seconds
        slots, leases = self.table.expire(self.now)
        for slot in slots:
            self.waits.fail_if_unavailable(slot.object_id, self.now)
        self.waits.expire(leases, self.now)
        self.waits.flush(self.now)

    def assert_nothing_held(self) -> None:
        stats = self.table.stats()
        assert (stats.leases, stats.reservations, stats.pinned_bytes) == (0, 0, 0)
        assert self.waits.waiters == 0
        assert not self.waits._waiting
        assert not self.waits._leases._request_of
        assert not self.waits._leases._starved


def make_world(
    pages: int = 64, window: int = 1 << 30, *, capped: bool = True, lease_seconds: float = 10
) -> World:
    table = ObjectTable(
        SlabAllocator(pages * PAGE, 4 * PAGE),
        [0] * pages,
        [BlockEventPublisher(EventLog("epoch"))],
        reservation_seconds=10,
        lease_seconds=lease_seconds,
    )
    if not capped:
        table.cap_bytes = pages * PAGE
    return World(table, WaitTable(table, window_bytes=window, unavailable_seconds=3.0))


@contextmanager
def make_store(directory: Path, **options: Any) -> Iterator[Store]:
    """A store of 4 MiB without a loop: nothing is flushed unless the test does it."""
    with Arena(directory, 4 * MIB) as arena:
        while arena.touch_next():
            pass
        log = EventLog("e")
        options = {
            "reservation_seconds": 10,
            "lease_seconds": 10,
            "call_soon": lambda _: None,
        } | options
        yield Store("me", arena, log, **options)


@pytest.fixture
def world() -> World:
    return make_world()
