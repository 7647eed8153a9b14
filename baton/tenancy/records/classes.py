"""What an operator decides about each priority class: one record per class, the cluster's."""

import math
from collections.abc import Iterable

import msgspec

from baton.v1 import common_pb2

CLASSES = {
    "batch": common_pb2.PRIORITY_CLASS_BATCH,
    "interactive": common_pb2.PRIORITY_CLASS_INTERACTIVE,
    "premium": common_pb2.PRIORITY_CLASS_PREMIUM,
}
"""Ids of the records, with the classes as requests name them."""
MAX_SECONDS = 86_400.0
MAX_WEIGHT = 10_000
"""Of tenants and classes."""
MAX_AT_ONCE = 10**12
_SHARES = ("floor", "ceiling")
_TIMES = ("deadline_seconds", "ttft_target_seconds", "itl_target_seconds", "max_wait_seconds")


class ClassPolicy(msgspec.Struct, omit_defaults=True, kw_only=True, gc=False):
    """How requests of one priority class wait and share the workers; 0: nothing is said of it."""

    id: str
    """One of CLASSES."""
    floor: float = 0.0
    """Share of what workers compute that the class gets while it waits, whatever goes before it."""
    ceiling: float = 0.0
    """Share of what workers can compute that the class gets at most, also while nobody waits."""
    requests_at_once: int = 0
    """That may be placed and not ended."""
    weight: float = 0.0
    """What a request costs its tenant is divided by it."""
    deadline_seconds: float = 0.0
    """From arrival, for requests that name none: a first token later than that is worth nothing."""
    ttft_target_seconds: float = 0.0
    """Time to first token, for requests that name none."""
    itl_target_seconds: float = 0.0
    """Between tokens of running streams."""
    waits: bool = False
    """Whether a request that would miss its target or deadline waits all the same; else it is
    refused at once."""
    max_wait_seconds: float = 0.0
    """A request that has waited for so long is given up."""
    version: int = 1


FIELDS = tuple(name for name in ClassPolicy.__struct_fields__ if name not in ("id", "version"))
"""What an operator sets."""


def check_class(record: ClassPolicy) -> None:
    """Check a record's values.

    Raises:
        ValueError: the first field that is wrong, and what it may be.
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
    """Check that the floors of all classes can be kept together.

    Raises:
        ValueError: they are more than 1 in sum.
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
