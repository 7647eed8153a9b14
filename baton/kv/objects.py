"""Objects of the KV service: one object is the bytes of one block, group, shard and part."""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from baton.errors import invalid_field
from baton.internal.v1 import kvstore_pb2 as pb
from baton.kv.keys import KEY_BYTES, unpack
from baton.kv.layout import LAYOUT_ID_BYTES

MAX_RESERVE_KEYS = 4096
"""Keys in one Reserve."""
MAX_READ_KEYS = 65_536
"""Keys in one Read."""
MAX_CHUNK_BYTES = 1024 * 1024
"""Bytes in one chunk of gRPC transport."""
MAX_TENANT_BYTES = 128
"""Maximum bytes of a tenant's name in UTF-8."""
MAX_PART = 65_535
"""Largest group, shard and part."""


class ObjectId(NamedTuple):
    """The name of one object. Equal ids have equal bytes."""

    layout_id: bytes
    key: bytes
    group: int = 0
    shard: int = 0
    part: int = 0

    @property
    def is_block(self) -> bool:
        """Whether it represents its block and group in the event stream: the first of them."""
        return self.shard == self.part == 0

    def message(self) -> pb.ObjectPart:
        """Return group, shard and part as a message."""
        return pb.ObjectPart(group=self.group, shard=self.shard, part=self.part)


def object_ids_for(
    layout_id: bytes, keys: Iterable[bytes], group: int = 0, shard: int = 0, part: int = 0
) -> list[ObjectId]:
    """Return the same object of each key: equal to calls of ObjectId(...), at half their cost."""
    return [tuple.__new__(ObjectId, (layout_id, key, group, shard, part)) for key in keys]


def check_key_count(keys: Sequence[bytes], limit: int) -> None:
    """Check the number of keys in one request: one that is too long would close its stream.

    Raises:
        BatonError: INVALID_FIELD, more than `limit` keys.
    """
    if len(keys) > limit:
        raise invalid_field("keys", f"{len(keys)} keys exceed the limit of {limit}: split the call")


def parse_object_ids(
    layout_id: bytes, packed: bytes, part: pb.ObjectPart, limit: int
) -> list[ObjectId]:
    """Return the objects that a Reserve, Read or WillNotCome names.

    Raises:
        ValueError: layout, keys or part are malformed, or there are none or more than `limit`
            keys; the text names the limit.
    """
    if len(layout_id) != LAYOUT_ID_BYTES:
        raise ValueError(f"layout_id has {len(layout_id)} bytes: must have {LAYOUT_ID_BYTES}")
    if not packed or len(packed) % KEY_BYTES:
        raise ValueError(
            f"keys have {len(packed)} bytes: must be a positive multiple of {KEY_BYTES}"
        )
    if len(packed) > limit * KEY_BYTES:
        raise ValueError(f"{len(packed) // KEY_BYTES} keys exceed the limit of {limit}")
    group, shard, number = part.group, part.shard, part.part
    if not (0 <= group <= MAX_PART and 0 <= shard <= MAX_PART and 0 <= number <= MAX_PART):
        raise ValueError(f"group, shard and part must be 0 to {MAX_PART}")
    return object_ids_for(layout_id, unpack(packed), group, shard, number)
