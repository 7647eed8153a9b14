"""Values in const and enum."""

from collections.abc import Iterator, Mapping
from typing import Any

_FATAL = -(2.0**63)
"""llguidance 1.7.6 reads numbers as doubles, and this one crashes the process that compiles it."""


def fatal_keyword(schema: Mapping[str, Any]) -> str:
    """Return const or enum, whichever contains a number that cannot be compiled; empty: none.

    The number may be at any depth in the value.
    """
    for keyword in ("const", "enum"):
        if keyword in schema and _FATAL in _numbers(schema[keyword]):
            return keyword
    return ""


def _numbers(value: Any) -> Iterator[float]:
    """Yield the numbers in a JSON value, as doubles, omitting those too large for one."""
    waiting = [value]
    while waiting:
        one = waiting.pop()
        if isinstance(one, list):
            waiting += one
        elif isinstance(one, dict):
            waiting += one.values()
        elif isinstance(one, int | float) and abs(one) < 1e300:
            yield float(one)
