"""What waits for the database, as it is on disk."""

import msgspec

from baton.conversations.completions.records import StoredCompletion
from baton.conversations.records import StateScope, Turn


class PendingRecord(msgspec.Struct, omit_defaults=True, frozen=True):
    """A turn or a completion. Fields are only ever added, here and in what it has."""

    id: str
    """That of the response or completion, in hexadecimal digits."""
    began_ms: int
    """When it began to wait, in milliseconds since the Unix epoch."""
    tenant: str
    project: str
    turn: Turn | None = None
    completion: StoredCompletion | None = None

    @property
    def scope(self) -> StateScope:
        return StateScope(self.tenant, self.project)


decode = msgspec.json.Decoder(PendingRecord).decode
