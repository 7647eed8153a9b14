"""Bounds of ids that are UUIDv7 (RFC 9562), whose first 48 bits are milliseconds."""

from datetime import UTC, date, datetime
from uuid import UUID


def first_id(day: date) -> UUID:
    """Return an id that is not above any of a day (UTC) or later, and above all earlier ones."""
    began = datetime(day.year, day.month, day.day, tzinfo=UTC)
    return UUID(int=int(began.timestamp() * 1000) << 80)
