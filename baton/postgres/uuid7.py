"""Bounds of ids that are UUIDv7 (RFC 9562), whose first 48 bits are milliseconds."""

from datetime import UTC, date, datetime, timedelta
from uuid import UUID


def first_id(day: date) -> UUID:
    """Return an id that is not above any of a day (UTC) or later, and above all earlier ones."""
    began = datetime(day.year, day.month, day.day, tzinfo=UTC)
    return UUID(int=int(began.timestamp() * 1000) << 80)


def day_of(days: int) -> date | None:
    """Return the day that is so many after the Unix epoch; None: it is beyond the calendar."""
    try:
        return date(1970, 1, 1) + timedelta(days=days)
    except OverflowError:
        return None
