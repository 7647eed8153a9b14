"""`grpc-timeout`: at most 8 digits and a unit."""

import math

from baton.errors import BatonError, Reason

_SECONDS = {b"H": 3600.0, b"M": 60.0, b"S": 1.0, b"m": 1e-3, b"u": 1e-6, b"n": 1e-9}
_UNITS = ((b"n", 1e9), (b"u", 1e6), (b"m", 1e3), (b"S", 1.0), (b"M", 1 / 60), (b"H", 1 / 3600))
_LARGEST = 99_999_999


def read_timeout(value: bytes) -> float:
    """Return a timeout in seconds.

    Raises:
        BatonError: MALFORMED_HEAD.
    """
    digits, unit = value[:-1], value[-1:]
    if unit not in _SECONDS or not digits.isdigit() or len(digits) > 8:
        raise BatonError(
            Reason.MALFORMED_HEAD, "grpc-timeout is not 1 to 8 digits and one of H M S m u n"
        )
    return int(digits) * _SECONDS[unit]


def timeout_value(seconds: float) -> bytes:
    """Return a timeout for the header, rounded up in the smallest unit that 8 digits can hold."""
    for unit, per_second in _UNITS:
        number = math.ceil(seconds * per_second)
        if number <= _LARGEST:
            return b"%d%b" % (max(number, 0), unit)
    return b"%dH" % _LARGEST
