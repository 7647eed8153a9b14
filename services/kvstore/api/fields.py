"""Checks of fields that several frames and requests share."""

import re
from collections.abc import Iterable
from typing import Protocol

from baton.errors import BatonError, Reason, invalid_field
from baton.internal.v1 import kvstore_pb2 as pb
from baton.kv.objects import MAX_TENANT_BYTES, ObjectId, parse_object_ids
from services.kvstore.reads.read_request import ReadSource

MAX_SOURCES = 16
_ADDRESS = re.compile(r"[A-Za-z0-9.:\[\]_-]{1,253}:\d{1,5}")


class NamesObjects(Protocol):
    """A message that names objects by layout, keys and part."""

    @property
    def layout_id(self) -> bytes: ...
    @property
    def keys(self) -> bytes: ...
    @property
    def part(self) -> pb.ObjectPart: ...


def objects_of(message: NamesObjects, limit: int) -> list[ObjectId]:
    """Return the objects named by a message, at most `limit`.

    Raises:
        BatonError: layout, keys or part are malformed, or there are no or too many keys.
    """
    try:
        return parse_object_ids(message.layout_id, message.keys, message.part, limit)
    except ValueError as error:
        raise BatonError(Reason.INVALID_FIELD, str(error), field="keys") from error


def tenant_of(tenant: str) -> str:
    """Return the tenant named by a message.

    Raises:
        BatonError: its name is too long.
    """
    if len(tenant.encode()) > MAX_TENANT_BYTES:
        raise invalid_field("tenant", f"must have at most {MAX_TENANT_BYTES} bytes")
    return tenant


def sources_of(messages: Iterable[pb.KvSource]) -> list[ReadSource]:
    """Return the sources named by a message.

    Raises:
        BatonError: there are too many, or one is malformed.
    """
    sources = [ReadSource(message.store_id, message.address) for message in messages]
    if len(sources) > MAX_SOURCES:
        raise invalid_field("sources", f"must be at most {MAX_SOURCES}")
    if not all(s.store_id and _ADDRESS.fullmatch(s.address) for s in sources):
        raise invalid_field("sources", "must have a store_id and an address host:port")
    return sources
