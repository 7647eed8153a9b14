"""What the store has of a file."""

from datetime import datetime
from typing import NamedTuple
from uuid import UUID

from baton.conversations.ids import parse_id, text_of

_FILE = "file"


class StoredFile(NamedTuple):
    """A file whose bytes are all there."""

    id: UUID
    purpose: str
    name: str
    bytes: int
    created_at: datetime
    expires_at: datetime | None

    @property
    def text(self) -> str:
        """Its id as clients have it."""
        return file_text(self.id)


class FileDetails(NamedTuple):
    """What is known of a file once all of it has come."""

    purpose: str
    name: str
    expires_seconds: int | None = None
    """None: it does not expire."""


def file_text(ident: UUID) -> str:
    """Return the id of a file as clients have it."""
    return text_of(_FILE, ident)


def parse_file(text: str) -> UUID | None:
    """Return the id of a text; None: it is not the id of a file."""
    return parse_id(_FILE, text)
