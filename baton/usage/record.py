"""One request's usage, as stored in the spool and in every sink."""

import secrets

import msgspec

from baton.usage.path import RequestPath

LOST = "lost"
"""Outcome of a request whose frontend ended before it: its output is unknown."""

VERSION = "1"
"""Version of the fields below: incremented when the meaning of a field changes."""


class UsageRecord(RequestPath, omit_defaults=True, kw_only=True, frozen=True, gc=False):
    """The usage and the path of one request. In JSON, unknown and inapplicable fields are omitted.

    Times are seconds, instants milliseconds since the Unix epoch. Fields are only ever added.
    """

    id: str
    """A UUIDv7 that identifies this record: a copy with the same ID is the same record.
    `request_id` does not, because clients choose it, and reuse it in retries."""
    request_id: str
    """As in logs, traces and responses."""
    tenant: str
    project: str = ""
    """Empty if authentication is off."""
    key: str = ""
    """ID of the API key."""
    tier: str
    """Tier of the tenant."""
    batch: bool = False
    """Whether it ran in the priority class batch."""
    model: str
    weights: str
    """Hexadecimal digest of the model's weights; several, if several versions are served."""
    adapter: str = ""
    operation: str
    """`chat` or `text_completion`."""
    frontend: str
    """The instance that served it."""
    began_ms: int
    ended_ms: int | None = None
    seconds: float | None = None
    """Seconds from its arrival to its end."""
    first_token_seconds: float | None = None
    """Seconds from its arrival to the first token of any choice; omitted if there was none."""
    queue_seconds: float | None = None
    """Seconds in queues of workers, as far as they reported."""
    prompt_tokens: int
    cached_tokens: int | None = None
    """Prompt tokens whose KV was cached."""
    output_tokens: int | None = None
    """Output tokens of all choices."""
    kv_byte_seconds: float | None = None
    """KV bytes held at workers × seconds; omitted if none reported it."""
    finish_reasons: tuple[str, ...] = ()
    """Per choice `stop`, `length`, `tool_calls` or `content_filter`; empty: it did not finish."""
    outcome: str
    """`ok`, `lost`, or the reason of the error that ended it."""
    cost_nanodollars: int | None = None
    """Omitted if its model has no price, or the cost is unknown."""


encode = msgspec.json.Encoder().encode
"""Returns a record as JSON in one line."""
decode = msgspec.json.Decoder(UsageRecord).decode
"""Returns the record of a line; raises msgspec.DecodeError if it is invalid."""


class RecordIds:
    """Generates record IDs, as UUIDv7: ordered by time to the millisecond, and unique.

    Of the 122 bits, 74 are random per process, and 62 of these count up from there.
    """

    __slots__ = ("_fixed", "_number")

    def __init__(self) -> None:
        self._number = secrets.randbits(62)
        self._fixed = 7 << 76 | secrets.randbits(12) << 64 | 2 << 62

    def draw(self, now_ms: int) -> str:
        """Return an ID for a record that begins now, in milliseconds since the Unix epoch."""
        self._number = number = (self._number + 1) & (1 << 62) - 1
        digits = f"{now_ms << 80 | self._fixed | number:032x}"
        return f"{digits[:8]}-{digits[8:12]}-{digits[12:16]}-{digits[16:20]}-{digits[20:]}"
