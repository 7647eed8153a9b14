"""What is read of managed conversations."""

from typing import NamedTuple
from uuid import UUID

from baton.conversations.ids import CONVERSATION, milliseconds_of, text_of
from baton.conversations.records import StoredPath

MAX_ITEMS_AT_ONCE = 20
"""Items of one creation, and of one addition."""


class ManagedConversation(NamedTuple):
    """A conversation without its items."""

    id: UUID
    version: int
    last_item: UUID
    """Its own id, if it never had items."""
    total_items: int
    total_bytes: int
    """Of the items' bodies."""
    metadata: str
    """JSON."""

    @property
    def text(self) -> str:
        """Its id as clients have it."""
        return text_of(CONVERSATION, self.id)

    @property
    def created_seconds(self) -> int:
        """Since the Unix epoch."""
        return milliseconds_of(self.id) // 1000

    @property
    def end(self) -> StoredPath:
        """The path of all its items, which a turn moves on."""
        return StoredPath(
            self.id,
            self.version,
            self.last_item,
            extends=True,
            total_items=self.total_items,
            total_bytes=self.total_bytes,
            hidden=False,
        )
