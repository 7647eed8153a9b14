"""One request's usage, as it stands in the spool and in every sink."""

import secrets

import msgspec

LOST = "lost"
"""Outcome of a request whose frontend ended before it: what it was given is not known."""

VERSION = "1"
"""Of the fields below: another one where a field comes to mean something else."""


class UsageRecord(msgspec.Struct, omit_defaults=True, kw_only=True, frozen=True, gc=False):
    """What one request used. As JSON, what is not known or does not apply is left out.

    Times are seconds, instants milliseconds since the Unix epoch. Fields are only ever added.
    """

    id: str
    """A UUIDv7, of this record alone: a copy of the same id is the same record. `request_id` is no
    such name, for clients choose it, and ask again with it."""
    request_id: str
    """As in logs, traces and answers."""
    tenant: str
    project: str = ""
    """Empty where nobody has a key."""
    key: str = ""
    """Id of the API key."""
    tier: str
    """Of the tenant."""
    batch: bool = False
    """It ran in the priority class batch."""
    model: str
    weights: str
    """Digest of the model's weights, hexadecimal; several, while several are served."""
    adapter: str = ""
    operation: str
    """`chat` or `text_completion`."""
    frontend: str
    """The instance that served it."""
    began_ms: int
    ended_ms: int | None = None
    seconds: float | None = None
    """From its arrival to its end."""
    first_token_seconds: float | None = None
    """From its arrival to the first token of any choice; none came where it is left out."""
    queue_seconds: float | None = None
    """In queues of workers, as far as they reported."""
    prompt_tokens: int
    cached_tokens: int | None = None
    """Of the prompt tokens, those whose KV was found."""
    output_tokens: int | None = None
    """Over all choices."""
    kv_byte_seconds: float | None = None
    """KV that it held at workers times how long; left out where none reported it."""
    finish_reasons: tuple[str, ...] = ()
    """`stop` or `length` per choice; empty for a choice that did not come to its end."""
    outcome: str
    """`ok`, `lost`, or the reason of the error table that it ended for."""
    cost_nanodollars: int | None = None
    """Left out where its model has no price, and where it is not known."""


encode = msgspec.json.Encoder().encode
"""Returns a record as JSON in one line."""
decode = msgspec.json.Decoder(UsageRecord).decode
"""Returns the record of a line; raises msgspec.DecodeError where it is none."""


class RecordIds:
    """Draws ids of records, as UUIDv7: ordered by time to the millisecond, unlike all others.

    74 of the 122 bits are drawn once per process, and 62 of them count up from there.
    """

    __slots__ = ("_fixed", "_number")

    def __init__(self) -> None:
        self._number = secrets.randbits(62)
        self._fixed = 7 << 76 | secrets.randbits(12) << 64 | 2 << 62

    def draw(self, now_ms: int) -> str:
        """Return an id of a record that begins now, in milliseconds since the Unix epoch."""
        self._number = number = (self._number + 1) & (1 << 62) - 1
        digits = f"{now_ms << 80 | self._fixed | number:032x}"
        return f"{digits[:8]}-{digits[8:12]}-{digits[12:16]}-{digits[16:20]}-{digits[20:]}"
