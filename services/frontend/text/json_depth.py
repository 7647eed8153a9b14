"""Bounds the depth of clients' JSON that templates render."""

from typing import Any

MAX_DEPTH = 100
"""Most levels of a schema, and of a call's arguments: more than grammars support, and than
templates render."""


def deeper(value: Any, most: int) -> bool:
    """Return whether a JSON value has more levels than `most`."""
    level = [value]
    for _ in range(most):
        level = [
            inner
            for one in level
            if isinstance(one, dict | list)
            for inner in (one.values() if isinstance(one, dict) else one)
        ]
        if not level:
            return False
    return True
