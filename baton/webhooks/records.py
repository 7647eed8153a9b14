"""What is stored of webhooks."""

from datetime import datetime
from typing import NamedTuple
from uuid import UUID

from baton.conversations.ids import milliseconds_of, text_of
from baton.conversations.records import StateScope

ENDPOINT = "we"
_OK, _NOT_OK = 200, 300


class WebhookEndpoint(NamedTuple):
    """An endpoint without its secrets."""

    id: UUID
    name: str
    url: str
    event_types: list[str]
    hint: str
    """The secret's last characters."""
    updated: datetime

    @property
    def text(self) -> str:
        """Its id as clients have it."""
        return text_of(ENDPOINT, self.id)

    @property
    def created_seconds(self) -> int:
        """Since the Unix epoch."""
        return milliseconds_of(self.id) // 1000


class SealedSecrets(NamedTuple):
    """The secrets of an endpoint, sealed."""

    secret: str
    old_secret: str = ""
    """Signs too; empty: there is none."""


class ClaimedDelivery(NamedTuple):
    """An event that is due at an endpoint, and this frontend's to deliver."""

    scope: StateScope
    endpoint: UUID
    event: UUID
    type: str
    body: str
    attempt: int
    """Counts the attempts, from 1."""
    url: str
    """Empty: the endpoint was deleted."""
    secrets: SealedSecrets | None
    """None: the project's secret signs."""


class WebhookAttempt(NamedTuple):
    """An attempt in the log."""

    endpoint: UUID
    event: UUID
    attempt: int
    type: str
    began: datetime
    seconds: float
    status: int
    """Of the response; 0: there was none."""
    outcome: str
    """`delivered`, `retrying`, `given_up` or `test`."""
    detail: str


class SendResult(NamedTuple):
    """What came of an attempt."""

    status: int
    """Of the response; 0: there was none."""
    detail: str
    """Never has what the receiver wrote."""
    seconds: float

    @property
    def delivered(self) -> bool:
        """Whether the receiver accepted it."""
        return _OK <= self.status < _NOT_OK
