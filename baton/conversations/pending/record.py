"""What waits for the database, as it is on disk."""

from uuid import UUID

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

    @property
    def needed(self) -> tuple[UUID, ...]:
        """What a later request may need of it: a response, a conversation, a completion."""
        if self.turn is None:
            return () if self.completion is None else (self.completion.id,)
        follows = self.turn.follows
        managed = () if follows is None or follows.hidden else (follows.conversation,)
        return (self.turn.id, *managed)


decode = msgspec.json.Decoder(PendingRecord).decode
