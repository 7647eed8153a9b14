"""What the store has of batches and lines."""

from datetime import datetime
from enum import IntEnum
from typing import NamedTuple
from uuid import UUID

from baton.conversations.ids import parse_id, text_of
from baton.conversations.records import StateScope

BATCH_ID = "batch"
VALIDATING, FAILED, IN_PROGRESS, FINALIZING = "validating", "failed", "in_progress", "finalizing"
COMPLETED, EXPIRED, CANCELLING, CANCELLED = "completed", "expired", "cancelling", "cancelled"


class LineState(IntEnum):
    """What a line has."""

    OPEN = 0
    ANSWERED = 1
    FAILED = 2
    NOT_RUN = 3
    """Its batch ended before."""


class StoredBatch(NamedTuple):
    """A batch, in the order of `statements.COLUMNS`."""

    tenant: str
    project: str
    id: UUID
    key: str
    """The API key that created it, and that its lines run with."""
    status: str
    outcome: str
    """The status that it will have once its output is written."""
    endpoint: str
    model: str
    """The one that all lines name; empty: several."""
    input_file: UUID
    output_file: UUID | None
    error_file: UUID | None
    completion_window: str
    output_expires_seconds: int | None
    metadata: str
    errors: str
    """A list of errors of its input, in JSON; empty: none."""
    total: int
    completed: int
    failed: int
    prompt_tokens: int
    cached_tokens: int
    output_tokens: int
    created_at: datetime
    expires_at: datetime
    in_progress_at: datetime | None
    finalizing_at: datetime | None
    cancelling_at: datetime | None
    ended_at: datetime | None
    callback_url: str
    """Told when the batch ends; empty: none is."""

    @property
    def text(self) -> str:
        """Its id as clients have it."""
        return text_of(BATCH_ID, self.id)

    @property
    def scope(self) -> StateScope:
        return StateScope(self.tenant, self.project)


class NewBatch(NamedTuple):
    """A batch that a client creates."""

    scope: StateScope
    id: UUID
    key: str
    endpoint: str
    input_file: UUID
    completion_window: str
    window_seconds: int
    output_expires_seconds: int | None
    metadata: str
    callback_url: str = ""


class BatchLease(NamedTuple):
    """A claim of a batch, to check or to end it."""

    batch: StoredBatch
    attempt: int


class ActiveBatch(NamedTuple):
    """A batch whose lines run."""

    tenant: str
    id: UUID
    key: str
    endpoint: str
    model: str = ""
    """The one that all lines name; empty: several."""


class NewLine(NamedTuple):
    """A line that was checked."""

    number: int
    """From 1, as editors count."""
    custom_id: str
    body: bytes
    """JSON, in UTF-8."""
    prefix: bytes = b""
    """Digests of what its prompt begins with: lines run in the order of theirs."""


class ClaimedLine(NamedTuple):
    """A line under a lease."""

    batch: ActiveBatch
    number: int
    custom_id: str
    body: str
    attempt: int
    failures: int
    """Times that it failed, or that its owner was lost."""


class LineResult(NamedTuple):
    """The result of a line."""

    line: ClaimedLine
    state: LineState
    output: str
    """Of the output file or the error file, in JSON."""
    usage: str = ""
    """Its usage records, in JSON; empty: none."""
    prompt_tokens: int = 0
    cached_tokens: int = 0
    output_tokens: int = 0


class WrittenLine(NamedTuple):
    """A line as it is read for the output."""

    number: int
    custom_id: str
    state: int
    result: str
    usage: str


def parse_batch(text: str) -> UUID | None:
    """Return the id of a text; None: it is not the id of a batch."""
    return parse_id(BATCH_ID, text)
