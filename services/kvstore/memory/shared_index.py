"""Writes the arena's index of readable objects, in which clients look up objects themselves."""

from collections.abc import Sequence

from baton.kv.arena.index import ROW, WAYS, index_entries, object_tag, place
from services.kvstore.memory.arena import Arena
from services.kvstore.memory.slot import Slot


class SharedIndex:
    """Entries for committed slots, in the format of `baton.kv.arena.index`.

    Owned by the store, on its event loop; follows the object table. Bounded by the arena's header:
    a slot whose bucket is full has no entry, and clients ask the store for it.
    """

    def __init__(self, arena: Arena) -> None:
        header = arena.header
        self._arena = arena
        self._entries = index_entries(header.data_bytes)
        rows_at = 8 * self._entries
        self._fingerprints = arena.index[:rows_at].cast("Q")
        self._rows = arena.index[rows_at:]

    def stored(self, slots: Sequence[Slot]) -> None:
        """Write entries for slots that became readable."""
        data_at, rows, fingerprints = self._arena.header.data_at, self._rows, self._fingerprints
        for slot in slots:
            layout_id, key, group, shard, part = slot.object_id
            tag = object_tag(layout_id, group, shard, part)
            fingerprint, bucket = place(key, tag, self._entries)
            for entry in range(bucket, bucket + WAYS):
                if not fingerprints[entry]:
                    break
            else:
                continue
            slot.index_entry = entry
            ROW.pack_into(
                rows,
                entry * ROW.size,
                key,
                tag,
                data_at + slot.offset,
                slot.generation,
                slot.object_bytes,
                slot.digest,
            )
            fingerprints[entry] = fingerprint

    def removed(self, slots: Sequence[Slot]) -> None:
        """Clear the entries of slots that are about to become unreadable."""
        for slot in slots:
            if slot.index_entry >= 0:
                self._fingerprints[slot.index_entry] = 0
                slot.index_entry = -1
