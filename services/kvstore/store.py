"""The store: its tiers, the waiting reads, its peers, and its writers' proofs of life."""

import asyncio
import time
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from typing import Protocol

from baton.kv.events.log import EventLog
from baton.kv.objects import ObjectId
from baton.settings.transports import GRPC, PEER_TRANSPORTS, SHM
from baton.telemetry.logs import get_logger
from services.kvstore.block_events import BlockEventPublisher
from services.kvstore.cut_eviction import CutEviction
from services.kvstore.disk.tier import DiskTier
from services.kvstore.eviction.costs import Costs
from services.kvstore.eviction.cut_tracker import ChainLink
from services.kvstore.eviction.policy import EvictionPolicy
from services.kvstore.memory.arena import STEP_BYTES, Arena
from services.kvstore.memory.object_table import ObjectTable
from services.kvstore.memory.shared_index import SharedIndex
from services.kvstore.memory.slab_allocator import SlabAllocator
from services.kvstore.memory.slot import Slot, SlotRefusal, SlotState
from services.kvstore.reads.providers import PeerFetcher
from services.kvstore.reads.wait_table import WaitTable
from services.kvstore.writers import EndedWriters

PUT = "put"
"""Bytes sent by writers."""
GET = "get"
"""Bytes sent to readers."""
PEER = "peer"
"""Bytes fetched from other stores."""


class PeerStores(PeerFetcher, Protocol):
    """The connections to other stores, as the store drives them."""

    def flush(self, now: float) -> None:
        """Send pending frames."""


log = get_logger(__name__)

SHRINK_PER_TICK = 512
"""Most objects of a tenant evicted at a time, after its quota was lowered."""
FORGET_PER_TICK = 64
"""Most objects of a deleted tenant evicted at a time: their bytes are overwritten."""
FORGET_SECONDS = 5.0
"""For so long, what requests of a deleted tenant store that run meanwhile is evicted, too."""


def _soon(call: Callable[[], None]) -> None:
    asyncio.get_running_loop().call_soon(call)


class Store:
    """The state of one store. Owned by one event loop; there are no locks.

    Every change schedules one `flush`, which delivers results to readers, begins disk batches and
    sends frames to peers: changes within one turn of the loop are flushed together.

    Args:
        store_id: instance id.
        arena: holds the bytes.
        log: records the contents of tiers; its epoch is the store's.
        reservation_seconds: time for a writer to commit.
        lease_seconds: time for a reader to copy.
        partial_seconds: how long partial blocks are kept.
        quotas: initial most bytes of tenants in a tier.
        clock: returns monotonic seconds.
        call_soon: calls a function in the loop's next turn.
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
        quotas: Mapping[str, int] | None = None,
        clock: Callable[[], float] = time.monotonic,
        call_soon: Callable[[Callable[[], None]], None] = _soon,
    ) -> None:
        self.store_id = store_id
        self.arena = arena
        self.log = log
        self.clock = clock
        self._call_soon = call_soon
        self._flush_scheduled = False
        self.activity = asyncio.Event()
        """Set by whatever may have started activity."""
        self._slabs = SlabAllocator(
            arena.header.data_bytes, STEP_BYTES, arena.touched_bytes, arena.carve
        )
        self.quotas = dict(quotas or {})
        """Most bytes of tenants in a tier; changed by `set_quota`."""
        self._over_quota: dict[str, None] = {}
        """Tenants that hold more than their lowered quota."""
        self._forgotten: dict[str, float] = {}
        """Tenants that are being deleted, and until when at least."""
        self._deleted: set[str] = set()
        """All that were, whatever their objects on a disk that is not open yet."""
        self.events = BlockEventPublisher(log)
        self.cuts = CutEviction(lambda: self.disk)
        self.table = ObjectTable(
            self._slabs,
            arena.generations,
            (SharedIndex(arena), self.events, self.cuts),
            reservation_seconds=reservation_seconds,
            lease_seconds=lease_seconds,
            partial_seconds=partial_seconds,
            policy=EvictionPolicy(arena.header.data_bytes, quotas=self.quotas),
        )
        self.events.in_memory = lambda object_id: self.table.get(object_id) is not None
        self.cuts.table = self.table
        self.disk: DiskTier | None = None
        """Set once the disk is ready, by `disk_setup`."""
        self.disk_failed = ""
        """Why the configured disk is off; empty if it works."""
        self.waits = WaitTable(
            self.table, window_bytes=self.table.cap_bytes // 4, on_change=self.schedule_flush
        )
        self._costs = Costs()
        self.streams = 0
        """Open Put and Get streams."""
        self.moved_bytes: Counter[tuple[str, str]] = Counter(
            dict.fromkeys(
                [(PUT, GRPC), (PUT, SHM), (GET, GRPC), (GET, SHM)]
                + [(way, transport) for way in (GET, PEER) for transport in PEER_TRANSPORTS],
                0,
            )
        )
        """Bytes by way and transport: those that passed through this process, and those committed
        or leased through shared memory."""
        self.peer_failures: Counter[str] = Counter(dict.fromkeys(PEER_TRANSPORTS, 0))
        """Transfers from other stores that failed, by transport."""
        self._peers: PeerStores | None = None
        self.ended_writers = EndedWriters(self.table.reservations.release_writer)
        """Until they are dead, their quarantined slots are not free."""

    def set_peers(self, peers: PeerStores) -> None:
        """Set the connections that fetch missing objects from other stores."""
        self._peers = self.waits.peers = peers

    # Objects

    def reserve(
        self,
        object_ids: Sequence[ObjectId],
        object_bytes: int,
        *,
        partial: bool = False,
        writer: Hashable | None = None,
        tenant: str = "",
        recompute_seconds: float = 0.0,
        links: Sequence[ChainLink] = (),
    ) -> list[Slot | SlotRefusal]:
        """Reserve as `ObjectTable.reserve`.

        `recompute_seconds` is per object, 0: not known. `links` say where their blocks are in their
        chains; empty: not known.
        """
        slots = self.table.reserve(
            object_ids,
            object_bytes,
            now=self.clock(),
            partial=partial,
            writer=writer,
            tenant=tenant,
            cost=self._costs.relative(recompute_seconds, object_bytes, len(object_ids)),
        )
        if links:
            self.cuts.reserved(object_ids, slots, links)
        self.waits.reserved([slot.object_id for slot in slots if isinstance(slot, Slot)])
        self.activity.set()
        return slots

    def commit(
        self, slots: Sequence[Slot], digests: Sequence[bytes], recompute_seconds: float = 0.0
    ) -> int:
        """Make written slots readable; free those that have expired.

        Returns how many of the objects are readable now, from any writer.

        Args:
            slots: the slots.
            digests: one per slot.
            recompute_seconds: per object, 0: not known.
        """
        now = self.clock()
        expired = [slot for slot in slots if slot.state is not SlotState.RESERVED]
        if expired:
            pairs = zip(slots, digests, strict=True)
            written = [(slot, digest) for slot, digest in pairs if slot.state is SlotState.RESERVED]
            slots = [slot for slot, _ in written]
            digests = [digest for _, digest in written]
        first = self.table.commit(slots, digests, now)
        self.log.expedite(recompute_seconds * len(first))
        self.waits.committed([slot.object_id for slot in first], now)
        for slot in expired:
            self.table.reservations.abandon(slot)
        return len(slots) + sum(self.table.get(slot.object_id) is not None for slot in expired)

    def commit_one(self, slot: Slot, digest: bytes) -> bool:
        """Commit one slot; return whether its object is readable now."""
        return self.commit([slot], [digest]) == 1

    def abandon(self, slots: Iterable[Slot]) -> None:
        """Free slots released by their writer."""
        for slot in slots:
            self.table.reservations.abandon(slot)
            self.waits.fail_if_unavailable(slot.object_id, self.clock())

    def expire_slots(self, slots: Iterable[Slot]) -> None:
        """End the reservations of a writer whose stream ended."""
        for slot in slots:
            if slot.state is SlotState.RESERVED:
                self.table.reservations.expire_slot(slot)
                self.waits.fail_if_unavailable(slot.object_id, self.clock())

    def drop(self, object_id: ObjectId) -> bool:
        """Drop an object in every tier; return whether there was one."""
        slot = self.table.get(object_id)
        on_disk = self.disk is not None and self.disk.drop(object_id)
        if slot is not None:
            self.table.drop([slot])
        self.schedule_flush()
        return slot is not None or on_disk

    def set_quota(self, tenant: str, most_bytes: int | None) -> None:
        """Bound what a tenant may hold in each tier, from now on; None: only by its share.

        Excess objects are evicted, some hundred at a time.
        """
        if self.quotas.get(tenant) == most_bytes:
            return
        if most_bytes is None:
            del self.quotas[tenant]
        else:
            self.quotas[tenant] = most_bytes
            self._over_quota[tenant] = None
        self.activity.set()

    def forget(self, tenant: str) -> None:
        """Evict all that a tenant holds in each tier, some objects at a time, and overwrite it.

        What is on a disk that is opened later is evicted then: nothing says how old an object is.
        """
        self._deleted.add(tenant)
        self._forgotten[tenant] = self.clock() + FORGET_SECONDS
        self.activity.set()

    def check_quotas(self) -> None:
        """Evict what tenants hold beyond their quotas, after a tier with contents was added."""
        self._over_quota.update(dict.fromkeys(self.quotas))
        for tenant in self._deleted:
            self.forget(tenant)
        self.activity.set()

    # Time

    def schedule_flush(self) -> None:
        """Schedule `flush` for the loop's next turn."""
        self.activity.set()
        if not self._flush_scheduled:
            self._flush_scheduled = True
            self._call_soon(self.flush)

    def flush(self) -> None:
        """Deliver results to readers, begin disk batches and send frames to peers."""
        self._flush_scheduled = False
        now = self.clock()
        self.waits.flush(now)
        if self.disk is not None:
            self.disk.flush(now)
        if self._peers is not None:
            self._peers.flush(now)

    @property
    def uses(self) -> int:
        """Count of reads and writes, for comparison with earlier values."""
        return self.waits.hits + self.waits.misses + self.moved_bytes.total()

    @property
    def in_use(self) -> bool:
        """Whether a read or a write is in progress."""
        return bool(self.table.pinned_bytes or self.waits.waiters)

    @property
    def idle(self) -> bool:
        """Whether nothing in progress expires soon: then `tick` may be called seldom."""
        table = self.table
        under_way = (
            table.pinned_bytes
            or table.reservations.quarantined
            or self.waits.waiters
            or self._over_quota
            or self._forgotten
        )
        return self.disk is None and not under_way and not self.activity.is_set()

    def tick(self) -> None:
        """Expire what is due; to be called some twenty times a second."""
        now = self.clock()
        slots, leases = self.table.expire(now)
        for slot in slots:
            self.waits.fail_if_unavailable(slot.object_id, now)
        self.waits.expire(leases, now)
        self.ended_writers.probe()
        for tenant in list(self._over_quota):
            self._shrink(tenant)
        for tenant in list(self._forgotten):
            self._forget(tenant, now)
        if self.disk is not None:
            self.disk.tick(now)
        self.flush()

    def _shrink(self, tenant: str) -> None:
        more = self.table.shrink(tenant, SHRINK_PER_TICK)
        if self.disk is not None and not self.disk.failed:
            more = self.disk.index.shrink(tenant, SHRINK_PER_TICK) or more
        if not more:
            del self._over_quota[tenant]

    def _forget(self, tenant: str, now: float) -> None:
        more = self.table.forget(tenant, FORGET_PER_TICK, self.arena.erase)
        if self.disk is not None and not self.disk.failed:
            more = self.disk.index.forget(tenant, FORGET_PER_TICK) or more
        if not more and now >= self._forgotten[tenant]:
            del self._forgotten[tenant]
            log.info("kv.tenant.forgotten", tenant=tenant)

    def grow(self) -> None:
        """Use the memory that the arena has allocated by now."""
        self._slabs.grow(self.arena.touched_bytes)

    async def close_disk(self) -> None:
        """Close the disk tier; what was written stays."""
        if self.disk is not None:
            await self.disk.close()

    def close(self) -> None:
        """Stop watching writers."""
        self.ended_writers.close()
