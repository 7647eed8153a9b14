"""What is read from the store and written to it."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple
from uuid import UUID


class StateScope(NamedTuple):
    """Whose rows: ids work within their project only."""

    tenant: str
    project: str
    """Empty if authentication is off."""


class PathPart(NamedTuple):
    """A conversation, up to one of its items."""

    conversation: UUID
    last_item: UUID


class StoredPath(NamedTuple):
    """A place in a conversation, and all that is before it."""

    conversation: UUID
    version: int
    last_item: UUID
    """The item at that place."""
    extends: bool
    """Whether a turn from there moves this conversation on; otherwise it begins another one."""
    total_items: int
    """Items up to there, with those of the prefix."""
    total_bytes: int
    """Bytes of their bodies."""
    prefix: tuple[PathPart, ...] = ()
    hidden: bool = True

    @property
    def parts(self) -> tuple[PathPart, ...]:
        """The conversations of the path, in order."""
        return (*self.prefix, PathPart(self.conversation, self.last_item))


class StoredItem(NamedTuple):
    """An item as it is stored."""

    id: UUID
    body: str
    """JSON."""


def items_of(row: Mapping[str, Any]) -> list[StoredItem] | None:
    """Return the items of a row of a history; None: they are not all in it."""
    if not row["whole"]:
        return None
    return list(map(StoredItem, row["ids"] or (), row["bodies"] or ()))


class StoredResponse(NamedTuple):
    """A response without its items."""

    id: UUID
    conversation: UUID
    last_item: UUID
    inputs: int
    """Its input items: the first ones of its block."""
    status: str
    body: str
    """JSON, without `output`."""


class Turn(NamedTuple):
    """A response and its items, as one write."""

    id: UUID
    """Of the response; items have the ids after it."""
    items: Sequence[str]
    """Bodies: input items, then output items."""
    inputs: int
    status: str
    body: str
    follows: StoredPath | None = None
    """Where it continues; None: it begins a hidden conversation."""

    @property
    def last_item(self) -> UUID:
        return UUID(int=self.id.int + len(self.items))


def bytes_of(bodies: Sequence[str]) -> int:
    """Return the bytes of bodies of items."""
    return sum(len(body.encode()) for body in bodies)
