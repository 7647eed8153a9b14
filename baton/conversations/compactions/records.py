"""What is read of summaries and written of them."""

from collections.abc import Sequence
from typing import NamedTuple
from uuid import UUID


class CompactedItems(NamedTuple):
    """The items that a summary stands for: all of a path up to one of them."""

    conversation: UUID
    """Of the last one."""
    last_item: UUID
    first_item: UUID
    conversations: Sequence[UUID]
    """Of all of them."""
    items: int
    tokens: int
    """About as many they have in a prompt."""


class StoredCompaction(NamedTuple):
    """A summary, or the place of one."""

    last_item: UUID
    first_item: UUID
    items: int
    tokens: int
    body: str | None
    """The item in JSON; None: it is not written."""
    running: bool
    """Whether a frontend writes it."""
    error: str
    """Why the last one did not: a code of an error; empty: none failed."""
