"""Months of UTC, as numbers: 202611 is November 2026."""

from datetime import UTC, datetime


def month_of(seconds: float) -> int:
    """Return the month of a time in seconds since the Unix epoch."""
    at = datetime.fromtimestamp(seconds, UTC)
    return at.year * 100 + at.month


def months_before(month: int, count: int) -> int:
    """Return the month `count` months before one."""
    months = month // 100 * 12 + month % 100 - 1 - count
    return months // 12 * 100 + months % 12 + 1


def name(month: int) -> str:
    """Return a month as text: 2026-11."""
    return f"{month // 100:04}-{month % 100:02}"
