"""Digest against which a reader verifies its copy, over the object's name, length and bytes.

    xxh3_128(tag ‖ key ‖ layout_id ‖ group, shard, part as u32 ‖ length as u64 ‖ bytes)

Integers are little-endian. The same bytes under another name, or shorter ones, have another digest.
It guards against accidents (torn writes, flipped bits, stale slots), not against a forger.
"""

import struct

from xxhash import xxh3_128

from baton.kv.objects import ObjectId

DIGEST_BYTES = 16

_TAG = b"baton.kv.1/data\0"
_NUMBERS = struct.Struct("<IIIQ")


def start_digest(object_id: ObjectId, length: int) -> xxh3_128:
    """Return a hash to update with the object's `length` bytes, which then has its digest."""
    _, key, group, shard, part = object_id
    return xxh3_128(
        b"".join((_TAG, key, object_id.layout_id, _NUMBERS.pack(group, shard, part, length)))
    )


def split_digests(packed: bytes) -> list[bytes]:
    """Return the digests in one `bytes` field; the last is short if the length is no multiple."""
    return [packed[at : at + DIGEST_BYTES] for at in range(0, len(packed), DIGEST_BYTES)]


def object_digest(
    key: bytes, layout_id: bytes, group: int, shard: int, part: int, data: memoryview
) -> bytes:
    """Return the digest of one object: 16 bytes.

    Args:
        key: the block's key, 16 bytes.
        layout_id: its layout, 16 bytes.
        group: KV group.
        shard: tensor-parallel shard.
        part: part of the shard.
        data: the object's bytes, contiguous.
    """
    digest = start_digest(ObjectId(layout_id, key, group, shard, part), data.nbytes)
    digest.update(data)
    return digest.digest()
