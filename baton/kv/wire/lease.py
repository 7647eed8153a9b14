"""Objects of a Ready frame, one by one."""

from typing import NamedTuple

from baton.errors import BatonError, Reason
from baton.internal.v1 import kvstore_pb2 as pb
from baton.kv.digest import split_digests


class LeasedObject(NamedTuple):
    """One leased object, as an entry of a Ready frame."""

    which: int
    """Position of the key in the read."""
    lease_id: int
    offset_bytes: int
    generation: int
    object_bytes: int
    digest: bytes


def parse_leases(ready: pb.Ready) -> list[LeasedObject]:
    """Return the objects that a store leased.

    Raises:
        BatonError: the lists differ in length.
    """
    try:
        columns = zip(
            ready.indexes,
            ready.lease_ids,
            ready.offsets_bytes,
            ready.generations,
            ready.objects_bytes,
            split_digests(ready.digests),
            strict=True,
        )
        return [LeasedObject._make(row) for row in columns]
    except ValueError as error:
        raise BatonError(Reason.INTERNAL, f"a store sent a bad Ready frame: {error}") from error
