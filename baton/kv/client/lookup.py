"""Look up which objects a store holds: in the arena's index if shared, else with a request."""

from collections.abc import Sequence

from baton.internal.v1 import kvstore_pb2 as pb
from baton.kv.arena.index import object_tag
from baton.kv.client.attach import StoreUnavailableError
from baton.kv.client.connection import StoreConnection
from baton.kv.keys import pack


async def lookup(
    connection: StoreConnection,
    keys: Sequence[bytes],
    layout_id: bytes,
    group: int = 0,
    sources: Sequence[pb.KvSource] = (),
) -> list[bool]:
    """Return which objects the store, or one of the sources, holds now, per key.

    Raises:
        StoreUnavailableError: the store cannot be reached.
        BatonError: the store rejected the request.
    """
    held = [False] * len(keys)
    unknown: Sequence[int] = range(len(keys))
    if connection.arena is not None:
        tag = object_tag(layout_id, group, 0, 0)
        held = connection.arena.index.contains(pack(keys), tag).tolist()
        unknown = [index for index, found in enumerate(held) if not found]
    if not unknown:
        return held
    asked = keys if len(unknown) == len(keys) else [keys[index] for index in unknown]
    part = pb.ObjectPart(group=group)
    request = pb.LookupRequest(layout_id=layout_id, keys=pack(asked), part=part, sources=sources)
    response = await connection.lookup(request)
    if len(response.held) != len(asked):
        raise StoreUnavailableError(
            f"the store looked up {len(response.held)} of {len(asked)} keys"
        )
    for index, found in zip(unknown, response.held, strict=True):
        held[index] = bool(found)
    return held
