"""Which objects are on disk, where, and which are evicted."""

from collections.abc import Mapping, Sequence

from baton.kv.objects import ObjectId
from services.kvstore.disk.file import GRANULE_BYTES, SLAB_BYTES, Record
from services.kvstore.eviction.base import Entry
from services.kvstore.eviction.policy import EvictionPolicy
from services.kvstore.memory.slab_allocator import SlabAllocator
from services.kvstore.memory.slot import Slot
from services.kvstore.memory.space import SpaceAllocator


class DiskEntry(Entry, eq=False, gc=False, kw_only=True):
    """One object on disk, or being written."""

    object_bytes: int
    digest: bytes
    readable: bool = False
    """Whether its bytes are written. Until then it is pinned."""
    reads: int = 0
    """Reads in progress; it is pinned while there are any."""


class DiskIndex:
    """The objects of the disk tier. Owned by DiskTier, on the event loop. No I/O, no clock.

    Args:
        data_bytes: size of the data, a multiple of SLAB_BYTES.
        quotas: most bytes of tenants.
    """

    def __init__(self, data_bytes: int, quotas: Mapping[str, int] | None = None) -> None:
        slabs = SlabAllocator(data_bytes, SLAB_BYTES)
        self.policy = EvictionPolicy[DiskEntry](data_bytes, quotas=quotas)
        self._space = SpaceAllocator(slabs, self.policy)
        self._objects: dict[ObjectId, DiskEntry] = {}
        self.evictions = 0
        self.cleared: list[int] = []
        """Offsets whose records must be cleared before anything else is written."""
        self.erased: list[tuple[int, int]] = []
        """Offsets and sizes of slots whose bytes are to be overwritten, too."""
        self.dropped: list[ObjectId] = []
        """Objects that were readable and are gone, to be announced by the caller."""

    def __len__(self) -> int:
        return len(self._objects)

    def __contains__(self, object_id: ObjectId) -> bool:
        """Return whether an object can be read."""
        entry = self._objects.get(object_id)
        return entry is not None and entry.readable

    @property
    def used_bytes(self) -> int:
        return self._space.used_bytes

    @property
    def capacity_bytes(self) -> int:
        return self._space.capacity_bytes

    def get(self, object_id: ObjectId) -> DiskEntry | None:
        return self._objects.get(object_id)

    def entries(self) -> list[DiskEntry]:
        """Every entry."""
        return list(self._objects.values())

    def restore(self, record: Record) -> bool:
        """Add an object left by an earlier process; return False if it contradicts another one."""
        if record.object_id in self._objects or record.slot_bytes != disk_size(record.object_bytes):
            return False
        entry = DiskEntry(
            object_id=record.object_id,
            slot_bytes=record.slot_bytes,
            offset=record.offset,
            tenant=record.tenant,
            cost=record.cost,
            object_bytes=record.object_bytes,
            digest=record.digest,
            readable=True,
        )
        if not self._space.adopt(entry, record.span_start):
            return False
        self._objects[entry.object_id] = entry
        self.policy.add(entry)
        return True

    def place(self, slot: Slot) -> tuple[DiskEntry, Record] | None:
        """Reserve space for an object of memory, not readable yet; return None if there is none.

        Objects evicted for it are added to `cleared` and `dropped`.
        """
        size = disk_size(slot.object_bytes)
        offset = self._space.find(size, slot.tenant, self._evict)
        if offset is None:
            return None
        entry = DiskEntry(
            object_id=slot.object_id,
            slot_bytes=size,
            offset=offset,
            tenant=slot.tenant,
            cost=slot.cost,
            object_bytes=slot.object_bytes,
            digest=slot.digest,
        )
        self._space.put(entry)
        self._objects[entry.object_id] = entry
        self.policy.add(entry)
        self.policy.pin(entry)
        start = self._space.span_start(entry)
        record = Record(
            entry.object_id,
            entry.object_bytes,
            size,
            offset,
            start,
            entry.digest,
            entry.tenant,
            entry.cost,
        )
        return entry, record

    def written(self, entry: DiskEntry) -> None:
        """Mark a placed entry readable: its bytes are written."""
        entry.readable = True
        self.policy.unpin(entry)

    def use(self, entry: DiskEntry) -> None:
        """Count a use of an entry."""
        self.policy.use(entry)

    def begin_read(self, entry: DiskEntry) -> None:
        """Pin an entry until `end_read`."""
        entry.reads += 1
        if entry.reads == 1:
            self.policy.pin(entry)

    def end_read(self, entry: DiskEntry) -> None:
        entry.reads -= 1
        if not entry.reads and entry.held:
            self.policy.unpin(entry)

    def drop(self, entry: DiskEntry, *, evicted: bool = False) -> None:
        """Drop an entry without reads; its record is cleared with the next write."""
        del self._objects[entry.object_id]
        self.policy.remove(entry, evicted=evicted)
        self._space.give_back(entry)
        self.cleared.append(entry.offset)
        if entry.readable:
            self.dropped.append(entry.object_id)

    def shrink(self, tenant: str, most: int) -> bool:
        """Evict as `SpaceAllocator.shrink` does."""

        def evict(entries: Sequence[DiskEntry]) -> None:
            for entry in entries:
                self._evict(entry)

        return self._space.shrink(tenant, most, evict)

    def forget(self, tenant: str, most: int) -> bool:
        """Evict all of a tenant, as `SpaceAllocator.shrink` does, and have it overwritten."""

        def evict(entries: Sequence[DiskEntry]) -> None:
            for entry in entries:
                self._evict(entry)
                self.erased.append((entry.offset, entry.slot_bytes))

        return self._space.shrink(tenant, most, evict, whole=True)

    def _evict(self, entry: DiskEntry) -> None:
        self.evictions += 1
        self.drop(entry, evicted=True)


def disk_size(object_bytes: int) -> int:
    """Return the bytes that an object occupies on disk: whole granules."""
    return -(-object_bytes // GRANULE_BYTES) * GRANULE_BYTES
