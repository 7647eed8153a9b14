"""Operator policy for each priority class: one cluster-wide record per class."""

import math
from collections.abc import Iterable

import msgspec

from baton.v1 import common_pb2

CLASSES = {
    "batch": common_pb2.PRIORITY_CLASS_BATCH,
    "interactive": common_pb2.PRIORITY_CLASS_INTERACTIVE,
    "premium": common_pb2.PRIORITY_CLASS_PREMIUM,
}
"""IDs of the records, with the classes as requests name them."""
MAX_SECONDS = 86_400.0
MAX_WEIGHT = 10_000
"""Highest weight of tenants and classes."""
MAX_AT_ONCE = 10**12
_SHARES = ("floor", "ceiling")
_TIMES = ("deadline_seconds", "ttft_target_seconds", "itl_target_seconds", "max_wait_seconds")


class ClassPolicy(msgspec.Struct, omit_defaults=True, kw_only=True, gc=False):
    """How requests of one priority class queue and share the workers; 0: not set."""

    id: str
    """One of CLASSES."""
    floor: float = 0.0
    """Share of worker compute that the class gets while it has waiting requests, before all
    others."""
    ceiling: float = 0.0
    """Share of worker compute that the class gets at most, even if no other requests wait."""
    requests_at_once: int = 0
    """Requests that may be placed and not ended."""
    weight: float = 0.0
    """Divisor of the cost that a request is charged to its tenant."""
    deadline_seconds: float = 0.0
    """Default time from arrival after which a first token is worthless, for requests without a
    deadline."""
    ttft_target_seconds: float = 0.0
    """Default time to first token, for requests without a target."""
    itl_target_seconds: float = 0.0
    """Time between tokens of running streams."""
    waits: bool = False
    """Whether a request that would miss its target or deadline waits nevertheless; else it is
    rejected immediately."""
    max_wait_seconds: float = 0.0
    """Time in the queue after which a request is rejected."""
    version: int = 1


FIELDS = tuple(name for name in ClassPolicy.__struct_fields__ if name not in ("id", "version"))
"""Fields that an operator sets."""


def check_class(record: ClassPolicy) -> None:
    """Check a record's values.

    Raises:
        ValueError: the first invalid field, and its allowed values.
    """
    if record.id not in CLASSES:
        raise ValueError(
            f"id: {record.id[:64]!r} is not a priority class: use {', '.join(CLASSES)}"
        )
    for name in _SHARES:
        _check_range(record, name, 1.0)
    for name in _TIMES:
        _check_range(record, name, MAX_SECONDS)
    check_weight(record.weight)
    _check_range(record, "requests_at_once", MAX_AT_ONCE)
    if record.ceiling and record.floor > record.ceiling:
        raise ValueError(f"floor: {record.floor:g} exceeds the ceiling of {record.ceiling:g}")


def check_floors(records: Iterable[ClassPolicy]) -> None:
    """Check that the floors of all classes can be satisfied together.

    Raises:
        ValueError: their sum exceeds 1.
    """
    total = math.fsum(one.floor for one in records)
    if total > 1.0:
        raise ValueError(f"floor: the floors of all classes add up to {total:g}: at most 1")


def check_weight(value: float) -> None:
    """Check a weight of a tenant or class.

    Raises:
        ValueError: it is out of range.
    """
    if not 0 <= value <= MAX_WEIGHT:
        raise ValueError(f"weight: {value:g} is out of range: 0 (as 1) to {MAX_WEIGHT}")


def _check_range(record: ClassPolicy, name: str, most: float) -> None:
    value = getattr(record, name)
    if not 0 <= value <= most:
        raise ValueError(f"{name}: {value:g} is out of range: 0 (not set) to {most:g}")
