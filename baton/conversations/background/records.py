"""What is stored of responses that run in the background."""

from typing import NamedTuple
from uuid import UUID

from baton.conversations.records import StateScope


class RunLease(NamedTuple):
    """The right to run a response: valid until another frontend has claimed it."""

    scope: StateScope
    id: UUID
    """Of the response."""
    attempt: int
    """Counts the owners, from 1."""


class EventPiece(NamedTuple):
    """Events in a row, and the output that they are of."""

    last: int
    """Sequence number of the last event."""
    events: bytes
    """As `events.pack` returns them."""
    output: bytes
    """For the frontend that continues; opaque here."""


class ClaimedRun(NamedTuple):
    """A response whose owner is gone."""

    lease: RunLease
    cancelled: bool
    request: str
    """What its first owner stored, to continue it."""
    body: str
    """The response as it began, in JSON without `output`."""


class RunningResponse(NamedTuple):
    """A response that runs."""

    queued: bool
    """Whether no frontend runs it at the moment."""
    cancelled: bool
    body: str
    """As of `ClaimedRun`."""
