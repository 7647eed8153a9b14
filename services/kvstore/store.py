"""The store's state in one place: objects, waits, peers, and the writers' proofs of life.

One event loop owns it. Whoever changes something calls `flush` afterwards, once per frame.
"""

import time
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from typing import Any, Protocol

from baton.kv.arena.writer_lock import WriterLockProbe
from baton.kv.events.log import EventLog
from baton.kv.objects import ObjectId
from baton.kv.registry import GRPC, NIXL, PEER_TRANSPORTS, SHM
from services.kvstore.block_events import BlockEventPublisher
from services.kvstore.disk.codecs import Codecs
from services.kvstore.disk.context import DiskContext
from services.kvstore.disk.file import DiskFile, Record
from services.kvstore.disk.index import DiskIndex
from services.kvstore.disk.tier import DiskTier
from services.kvstore.eviction.costs import Costs
from services.kvstore.eviction.policy import EvictionPolicy
from services.kvstore.memory.arena import STEP_BYTES, Arena
from services.kvstore.memory.object_table import ObjectTable
from services.kvstore.memory.shared_index import SharedIndex
from services.kvstore.memory.slab_allocator import SlabAllocator
from services.kvstore.memory.slot import Refusal, Slot, State
from services.kvstore.reads.wait_table import Seeker, WaitTable

PUT = "put"
"""Bytes that writers sent."""
GET = "get"
"""Bytes that readers were sent."""
PEER = "peer"
"""Bytes fetched from other stores."""


class PeerStores(Seeker, Protocol):
    """The peers, as the store drives them."""

    def flush(self, now: float) -> None:
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
        quotas: most bytes of tenants in a tier.
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
        quotas: Mapping[str, int] | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.store_id = store_id
        self.arena = arena
        self.log = log
        self.clock = clock
        self._slabs = SlabAllocator(
            arena.header.data_bytes, STEP_BYTES, arena.touched_bytes, arena.carve
        )
        self._events = BlockEventPublisher(log)
        self.table = ObjectTable(
            self._slabs,
            arena.generations,
            self._events,
            index=SharedIndex(arena),
            reservation_seconds=reservation_seconds,
            lease_seconds=lease_seconds,
            partial_seconds=partial_seconds,
            policy=EvictionPolicy(arena.header.data_bytes, quotas=quotas),
        )
        self._events.in_memory = lambda object_id: self.table.get(object_id) is not None
        self.disk: DiskTier | None = None
        self.disk_failed = ""
        """Why there is no disk although one is wanted; empty where all is well."""
        self.waits = WaitTable(self.table, window_bytes=self.table.cap_bytes // 4)
        self._costs = Costs()
        self._quotas = quotas
        self.streams = 0
        """Open Put and Get streams."""
        self.moved_bytes: Counter[tuple[str, str]] = Counter(
            {
                (PUT, GRPC): 0,
                (PUT, SHM): 0,
                (GET, GRPC): 0,
                (GET, SHM): 0,
                (GET, NIXL): 0,
                (PEER, GRPC): 0,
                (PEER, NIXL): 0,
            }
        )
        """Bytes by way and transport: those that went through this process, and through shared
        memory those that were committed or leased."""
        self.peer_failures: Counter[str] = Counter(dict.fromkeys(PEER_TRANSPORTS, 0))
        """Transfers from other stores that failed, by transport."""
        self._peers: PeerStores | None = None
        self._retired: set[WriterLockProbe] = set()
        """Locks of writers whose stream ended."""

    def join(self, peers: PeerStores) -> None:
        """Ask these for what is missing here."""
        self._peers = peers
        self.waits.seeker = peers

    def add_disk(
        self,
        file: DiskFile,
        records: Iterable[Record],
        alarm: Callable[[str], None] = lambda _: None,
        *,
        codecs: Codecs | None = None,
        verify: bool = True,
    ) -> DiskTier:
        """Let objects go to disk. The store takes the file; `close_disk` gives it back.

        Args:
            file: where they go.
            records: what it holds already.
            alarm: called once with the reason when the disk is switched off.
            codecs: what objects are encoded with; None: they lie there as they are.
            verify: whether what comes back is checked.
        """

        def failed(reason: str) -> None:
            self.disk_failed = reason
            alarm(reason)

        index = DiskIndex(file.data_bytes, self._quotas)
        for record in records:
            index.restore(record)
        context = DiskContext(
            self.table, self.arena, index, file, codecs or Codecs(), self.clock, verify
        )
        disk = self.disk = DiskTier(context, self.waits, self._events, self.commit, alarm=failed)
        self._events.on_disk = index.__contains__
        self.waits.lower = disk
        for entry in index.entries():
            if self.waits.wanted(entry.object_id):
                disk.load(entry.object_id)
        return disk

    async def close_disk(self) -> None:
        """Let go of the disk; what lies there stays."""
        if self.disk is not None:
            await self.disk.close()

    def drop(self, object_id: ObjectId) -> bool:
        """Forget an object in every tier; answers whether there was one."""
        slot = self.table.get(object_id)
        below = self.disk is not None and self.disk.drop(object_id)
        if slot is not None:
            self.table.drop(slot)
        return slot is not None or below

    # Writing

    def reserve(self, object_id: ObjectId, object_bytes: int, **more: Any) -> Slot | Refusal:
        """`reserve_all` for one object."""
        return self.reserve_all([object_id], object_bytes, **more)[0]

    def reserve_all(
        self,
        object_ids: Sequence[ObjectId],
        object_bytes: int,
        *,
        partial: bool = False,
        writer: Hashable | None = None,
        tenant: str = "",
        recompute_seconds: float = 0.0,
    ) -> list[Slot | Refusal]:
        """As `ObjectTable.reserve_all`; `recompute_seconds` is of one object, 0 if not known."""
        slots = self.table.reserve_all(
            object_ids,
            object_bytes,
            now=self.clock(),
            partial=partial,
            writer=writer,
            tenant=tenant,
            cost=self._costs.relative(recompute_seconds, object_bytes, len(object_ids)),
        )
        self.waits.reserving([slot.object_id for slot in slots if isinstance(slot, Slot)])
        return slots

    def commit(self, slot: Slot, digest: bytes) -> bool:
        """`commit_all` for one slot: whether its object is readable now, whoever wrote it."""
        return self.commit_all([slot], [digest]) == 1

    def commit_all(self, slots: Sequence[Slot], digests: Sequence[bytes]) -> int:
        """Make written slots readable; how many of the objects are now, whoever wrote them.

        Slots that lapsed before are given back.
        """
        now = self.clock()
        lapsed = [slot for slot in slots if slot.state is not State.RESERVED]
        if lapsed:
            pairs = zip(slots, digests, strict=True)
            written = [(slot, digest) for slot, digest in pairs if slot.state is State.RESERVED]
            slots = [slot for slot, _ in written]
            digests = [digest for _, digest in written]
        first = self.table.commit_all(slots, digests, now)
        self.waits.committed([slot.object_id for slot in first], now)
        for slot in lapsed:
            self.table.abandon(slot)
        return len(slots) + sum(self.table.get(slot.object_id) is not None for slot in lapsed)

    def abandon(self, slots: Iterable[Slot]) -> None:
        """Give slots back whose writer will not write to them any more."""
        for slot in slots:
            self.table.abandon(slot)
            self.waits.fail_if_unavailable(slot.object_id, self.clock())

    def expire_slots(self, slots: Iterable[Slot]) -> None:
        """The writer's stream ended: its slots lapse."""
        for slot in slots:
            if slot.state is State.RESERVED:
                self.table.expire_slot(slot)
                self.waits.fail_if_unavailable(slot.object_id, self.clock())

    def watch_writer(self, lock: WriterLockProbe) -> None:
        """The writer's stream ended: what it left in quarantine waits for its death."""
        self._retired.add(lock)
        self._release_dead_writers()

    @property
    def spilled(self) -> int:
        """Objects that left memory and stay on disk."""
        return self._events.spilled

    # Time and bookkeeping

    def flush(self) -> None:
        """Answer readers and ask peers, as far as something changed."""
        now = self.clock()
        self.waits.flush(now)
        if self.disk is not None:
            self.disk.flush(now)
        if self._peers is not None:
            self._peers.flush(now)

    def tick(self) -> None:
        """What the clock brings; to be called some twenty times a second."""
        now = self.clock()
        slots, leases = self.table.expire(now)
        for slot in slots:
            self.waits.fail_if_unavailable(slot.object_id, now)
        for lease in leases:
            self.waits.lease_expired(lease)
        self.waits.expire(now)
        self._release_dead_writers()
        if self.disk is not None:
            self.disk.tick(now)
        self.flush()

    def grow(self) -> None:
        """The arena has memory behind more of its data."""
        self._slabs.grow(self.arena.touched_bytes)

    def close(self) -> None:
        """Stop watching writers."""
        while self._retired:
            self._retired.pop().close()

    def _release_dead_writers(self) -> None:
        for lock in [lock for lock in self._retired if lock.is_free()]:
            self._retired.remove(lock)
            self.table.release_writer(lock)
            lock.close(remove=True)
