"""The store's state in one place: objects, waits, peers, and the writers' proofs of life.

One event loop owns it. Whoever changes something calls `settle` afterwards, once per frame.
"""

import time
from collections import Counter
from collections.abc import Callable, Hashable, Iterable
from typing import Protocol

from baton.kv.events import EventLog
from baton.kv.objects import ObjectId
from baton.kv.writer_lock import WatchedLock
from baton.v1 import kvevents_pb2, kvstore_pb2
from services.kvstore.arena import STEP_BYTES, Arena
from services.kvstore.eviction.costs import Costs
from services.kvstore.slabs import SlabAllocator
from services.kvstore.slots import Refusal, Slot, State
from services.kvstore.table import ObjectTable
from services.kvstore.waits import Seeker, WaitTable

PUT = "put"
"""Bytes that writers sent."""
GET = "get"
"""Bytes that readers were sent."""
PEER = "peer"
"""Bytes fetched from other stores."""


class PeerStores(Seeker, Protocol):
    """The peers, as the store drives them."""

    def settle(self, now: float) -> None:
        """Send what was decided since the last time."""


class Store:
    """See the module's text.

    Args:
        store_id: instance id.
        arena: where bytes are.
        log: is told of contents; its epoch is the store's.
        reservation_seconds: time to commit.
        lease_seconds: time to copy.
        partial_seconds: how long partial blocks are kept.
        clock: seconds that only go forward.
    """

    def __init__(
        self,
        store_id: str,
        arena: Arena,
        log: EventLog,
        *,
        reservation_seconds: float,
        lease_seconds: float,
        partial_seconds: float = 60.0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.store_id = store_id
        self.arena = arena
        self.log = log
        self.clock = clock
        self._slabs = SlabAllocator(
            arena.header.data_bytes, STEP_BYTES, arena.touched_bytes, arena.carve
        )
        self.table = ObjectTable(
            self._slabs,
            arena.generations,
            Announcer(log),
            reservation_seconds=reservation_seconds,
            lease_seconds=lease_seconds,
            partial_seconds=partial_seconds,
        )
        self.waits = WaitTable(self.table, window_bytes=self.table.cap_bytes // 4)
        self._costs = Costs()
        self.streams = 0
        """Open Put and Get streams."""
        self.moved_bytes: Counter[str] = Counter({PUT: 0, GET: 0, PEER: 0})
        """Bytes that travelled through this process, by way; shared memory is not seen."""
        self._peers: PeerStores | None = None
        self._retired: set[WatchedLock] = set()
        """Locks of writers whose stream ended."""

    def join(self, peers: PeerStores) -> None:
        """Ask these for what is missing here."""
        self._peers = peers
        self.waits.seeker = peers

    # Writing

    def reserve(
        self,
        object_id: ObjectId,
        object_bytes: int,
        *,
        partial: bool = False,
        writer: Hashable | None = None,
        tenant: str = "",
        recompute_seconds: float = 0.0,
    ) -> Slot | Refusal:
        """As `ObjectTable.reserve`; `recompute_seconds` is of one object, 0 where not known."""
        slot = self.table.reserve(
            object_id,
            object_bytes,
            now=self.clock(),
            partial=partial,
            writer=writer,
            tenant=tenant,
            cost=self._costs.relative(recompute_seconds, object_bytes),
        )
        if isinstance(slot, Slot):
            self.waits.reserving(object_id)
        return slot

    def commit(self, slot: Slot, digest: bytes) -> bool:
        """Make a written slot readable; whether the object is readable now, whoever wrote it.

        A slot that lapsed before is given back.
        """
        now = self.clock()
        if slot.state is State.RESERVED:
            if self.table.commit(slot, digest, now):
                self.waits.committed(slot.object_id, now)
            return True
        self.table.abandon(slot)
        return self.table.get(slot.object_id) is not None

    def abandon(self, slots: Iterable[Slot]) -> None:
        """Give slots back whose writer will not write to them any more."""
        for slot in slots:
            self.table.abandon(slot)
            self.waits.judge(slot.object_id, self.clock())

    def lose(self, slots: Iterable[Slot]) -> None:
        """The writer's stream ended: its slots lapse."""
        for slot in slots:
            if slot.state is State.RESERVED:
                self.table.lapse(slot)
                self.waits.judge(slot.object_id, self.clock())

    def retire(self, lock: WatchedLock) -> None:
        """The writer's stream ended: what it left in quarantine waits for its death."""
        self._retired.add(lock)
        self._bury()

    # Time and bookkeeping

    def settle(self) -> None:
        """Answer readers and ask peers, as far as something changed."""
        now = self.clock()
        self.waits.flush(now)
        if self._peers is not None:
            self._peers.settle(now)

    def tick(self) -> None:
        """What the clock brings; to be called some twenty times a second."""
        now = self.clock()
        slots, leases = self.table.expire(now)
        for slot in slots:
            self.waits.judge(slot.object_id, now)
        for lease in leases:
            self.waits.lapsed(lease)
        self.waits.expire(now)
        self._bury()
        self.settle()

    def grow(self) -> None:
        """The arena has memory behind more of its data."""
        self._slabs.grow(self.arena.touched_bytes)

    def close(self) -> None:
        """Stop watching writers."""
        while self._retired:
            self._retired.pop().close()

    def stat(self) -> kvstore_pb2.StatResponse:
        """Exact counts."""
        stats = self.table.stats()
        return kvstore_pb2.StatResponse(
            store_id=self.store_id,
            epoch=self.log.epoch,
            capacity_bytes=stats.capacity_bytes,
            committed_bytes=stats.committed_bytes,
            objects=stats.objects,
            leases=stats.leases,
            reservations=stats.reservations,
            quarantined=stats.quarantined,
            waiters=self.waits.waiters,
            sessions=self.streams,
            hits=self.waits.hits,
            misses=self.waits.misses,
            bad_objects=stats.bad_objects,
            evictions=stats.evictions,
        )

    def _bury(self) -> None:
        for lock in [lock for lock in self._retired if lock.is_free()]:
            self._retired.remove(lock)
            self.table.bury(lock)
            lock.close(remove=True)


class Announcer:
    """Turns objects into blocks of the event stream."""

    def __init__(self, log: EventLog) -> None:
        self._log = log

    def stored(self, object_id: ObjectId) -> None:
        if object_id.is_block:
            self._log.stored(object_id.layout_id, kvevents_pb2.TIER_DRAM, object_id.key)

    def gone(self, object_id: ObjectId) -> None:
        if object_id.is_block:
            self._log.evicted(object_id.layout_id, kvevents_pb2.TIER_DRAM, object_id.key)
