"""Writes what is readable into the arena's index; see `baton.kv.arena_index`."""

from baton.kv.arena_index import ROW, WAYS, index_entries, place, tag_of
from services.kvstore.arena import Arena
from services.kvstore.slots import Slot


class SharedIndex:
    """Entries for committed slots. One that finds no room is left out: readers ask for it."""

    def __init__(self, arena: Arena) -> None:
        header = arena.header
        self._arena = arena
        self._entries = index_entries(header.data_bytes)
        rows_at = 8 * self._entries
        self._fingerprints = arena.index[:rows_at].cast("Q")
        self._rows = arena.index[rows_at:]
        self._used = bytearray(self._entries)
        self._entry_of: dict[Slot, int] = {}

    def add(self, *slots: Slot) -> None:
        """The slots became readable."""
        data_at, used, rows = self._arena.header.data_at, self._used, self._rows
        for slot in slots:
            layout_id, key, group, shard, part = slot.object_id
            tag = tag_of(layout_id, group, shard, part)
            fingerprint, bucket = place(key, tag, self._entries)
            entry = used.find(0, bucket, bucket + WAYS)
            if entry < 0:
                continue
            used[entry] = 1
            self._entry_of[slot] = entry
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
            self._fingerprints[entry] = fingerprint

    def remove(self, *slots: Slot) -> None:
        """The slots are no longer readable; no error for one that had no entry."""
        for slot in slots:
            entry = self._entry_of.pop(slot, None)
            if entry is not None:
                self._fingerprints[entry] = 0
                self._used[entry] = 0
