"""Table in the arena's file of the objects that a store holds, which readers search themselves.

    fingerprints: u64 per entry, 0 for an empty one; eight neighbours are a bucket
    rows: per entry key (2), tag, offset, generation, object_bytes, digest (2), each u64

Numbers are little-endian. A fingerprint selects the bucket; an object whose bucket is full is left
out, and readers ask the store for objects that they do not find. The store writes a row before its
fingerprint and clears the fingerprint before it changes the object; readers check the fingerprint
before and after they copy the row. A row is a hint: only the generation and the digest, checked
after the object is copied, prove that the copy is correct.
"""

import hashlib
import struct
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

WAYS = 8
"""Entries per bucket: their fingerprints fill one cache line."""
ROW = struct.Struct("<16s4Q16s")
ENTRY_BYTES = 8 + ROW.size
BYTES_PER_ENTRY = 16 * 1024
"""Bytes of data per entry. Objects are usually larger, so that few buckets are full."""
MIN_ENTRIES = 1024

FACTOR = 0x9E3779B97F4A7C15
"""2**64 divided by the golden ratio: multiplying by it spreads differences into high bits."""
_MASK = (1 << 64) - 1
_PART = struct.Struct("<16sIII")
_KEY = struct.Struct("<QQ")


def index_entries(data_bytes: int) -> int:
    """Return the number of entries in the index of an arena: a power of two."""
    wanted = max(MIN_ENTRIES, data_bytes // BYTES_PER_ENTRY)
    return int(1 << (wanted - 1).bit_length())


@lru_cache(maxsize=256)
def object_tag(layout_id: bytes, group: int, shard: int, part: int) -> int:
    """Return a 64-bit tag of layout, group, shard and part, which distinguishes objects of one
    key.
    """
    packed = _PART.pack(layout_id, group, shard, part)
    return int.from_bytes(hashlib.sha256(b"baton.kv.1/tag\0" + packed).digest()[:8], "little")


def place(key: bytes, tag: int, entries: int) -> tuple[int, int]:
    """Return an object's fingerprint, and the first entry of its bucket."""
    low, high = _KEY.unpack(key)
    fingerprint = (low ^ tag) or 1
    mixed = ((fingerprint ^ (high >> 7)) * FACTOR) & _MASK
    return fingerprint, (mixed >> (64 - (entries // WAYS).bit_length() + 1)) * WAYS


class IndexReader:
    """Looks up objects in a mapped index. Any thread may use it, without locks.

    Args:
        index: the index as mapped, fingerprints first.
        entries: as `index_entries` returns them.
    """

    def __init__(self, index: memoryview, entries: int) -> None:
        numbers = np.frombuffer(index, dtype="<u8")
        self._fingerprints = numbers[:entries].reshape(-1, WAYS)
        self._rows = numbers[entries : 9 * entries].reshape(-1, 8)
        self._shift = np.uint64(64 - (entries // WAYS).bit_length() + 1)

    def contains(self, keys: bytes, tag: int) -> NDArray[np.bool_]:
        """Return which of the packed 16-byte keys the index contains: one bool per key."""
        there = np.zeros(len(keys) // 16, dtype=bool)
        there[self.find(keys, tag)[0]] = True
        return there

    def find(self, keys: bytes, tag: int) -> tuple[NDArray[np.intp], NDArray[np.uint64]]:
        """Return which of the packed 16-byte keys the index contains: their positions in order,
        rows (n, 8).
        """
        names = np.frombuffer(keys, dtype="<u8").reshape(-1, 2)
        wanted = names[:, 0] ^ np.uint64(tag)
        wanted[wanted == 0] = 1
        mixed = (wanted ^ (names[:, 1] >> np.uint64(7))) * np.uint64(FACTOR)
        buckets = (mixed >> self._shift).astype(np.intp)
        at, way = np.nonzero(self._fingerprints[buckets] == wanted[:, None])
        entries = buckets[at] * WAYS + way
        rows = self._rows[entries]
        good = (
            (rows[:, 0] == names[at, 0])
            & (rows[:, 1] == names[at, 1])
            & (rows[:, 2] == np.uint64(tag))
            & (self._fingerprints.reshape(-1)[entries] == wanted[at])
        )
        if good.all():
            return at, rows
        return at[good], rows[good]
