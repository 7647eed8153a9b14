"""Quantities, durations and shares, as the API server takes them in pods: none is below 0."""

import math
import re
from decimal import Decimal

_SUFFIXES = {
    **{suffix: Decimal(10) ** power for suffix, power in (("n", -9), ("u", -6), ("m", -3))},
    **{suffix: Decimal(10) ** (3 * n) for n, suffix in enumerate(["", *"kMGTPE"])},
    **{f"{s}i": Decimal(1024) ** n for n, s in enumerate("KMGTPE", start=1)},
}
_QUANTITY = re.compile(r"^([0-9]+(?:\.[0-9]*)?|\.[0-9]+)([a-zA-Z]*)$")
_SHARE = re.compile(r"^(0|[1-9][0-9]*)%$")
_DURATION = re.compile(r"^(?:[0-9]+(?:\.[0-9]+)?(?:ns|us|ms|s|m|h))+$")
_UNITS = {"ns": 1e-9, "us": 1e-6, "ms": 1e-3, "s": 1.0, "m": 60.0, "h": 3600.0}


def quantity(text: object) -> Decimal:
    """Return the number that a quantity is.

    Raises:
        ValueError: it is none.
    """
    found = _QUANTITY.match(str(text)) if isinstance(text, str | int | float) else None
    if found is None or isinstance(text, bool) or found[2] not in _SUFFIXES:
        raise ValueError(f"{text!r} is no quantity")
    return Decimal(found[1]) * _SUFFIXES[found[2]]


def whole(text: object, divisor: object = 1) -> int:
    """Return a quantity in units of `divisor`, rounded up.

    Raises:
        ValueError: one of them is no quantity.
    """
    return math.ceil(quantity(text) / quantity(divisor))


def count_or_share(value: object, of: int, up: bool) -> int:
    """Return how many of some pods a number or a percentage is.

    Raises:
        ValueError: it is neither.
    """
    if isinstance(value, int) and not isinstance(value, bool) and value >= 0:
        return value
    found = _SHARE.match(value) if isinstance(value, str) else None
    if found is None:
        raise ValueError(f"{value!r} is no number and no percentage")
    parts = int(found[1]) * of
    return -(-parts // 100) if up else parts // 100


def seconds(text: object) -> float:
    """Return the seconds of a duration, such as 2160h.

    Raises:
        ValueError: it is none.
    """
    if not isinstance(text, str) or not _DURATION.match(text):
        raise ValueError(f"{text!r} is no duration")
    parts = re.findall(r"([0-9.]+)(ns|us|ms|s|m|h)", text)
    return sum(float(number) * _UNITS[unit] for number, unit in parts)
