"""What a spool is for: its name, its records' size, and its metrics."""

from dataclasses import dataclass
from typing import Protocol

from baton.telemetry.metrics import Counter, Gauge


@dataclass(frozen=True, slots=True)
class SpoolMetrics:
    """The metrics of one kind of spool; those of its sinks are labelled by the sink."""

    bytes: Gauge
    capacity_bytes: Gauge
    full: Gauge
    stalled: Gauge
    refused: Counter
    """Requests for which there was no space."""
    damaged_bytes: Counter
    delivered: Counter
    sink_failures: Counter
    sink_oldest: Gauge
    lost: Counter | None = None
    """Records that began without an end; None: records have no begin."""


@dataclass(frozen=True, slots=True)
class SpoolKind:
    """A kind of spool. Each kind has a directory of its own."""

    name: str
    """In logs, and in names of threads."""
    setting: str
    """The setting of its directory, for error messages."""
    metrics: SpoolMetrics
    max_record: int
    """Most bytes of a record. A line with a larger length is damaged."""


class SpoolLimits(Protocol):
    """The limits of a spool, as settings have them."""

    @property
    def spool_bytes(self) -> int: ...

    @property
    def fsync_seconds(self) -> float:
        """0: before `on_written` is called."""
        ...

    @property
    def stall_seconds(self) -> float: ...


class SpoolRecord(Protocol):
    """A record: a msgspec.Struct, with `began_ms` and perhaps `ended_ms`."""

    @property
    def id(self) -> str: ...
