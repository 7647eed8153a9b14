"""What a request may wait for databases, in all of its statements together."""

import math
import time
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

_ENDS = ContextVar("end of the budget, by time.monotonic", default=math.inf)


@contextmanager
def wait_budget(seconds: float) -> Iterator[None]:
    """Bound what a block waits for databases, all statements together.

    It holds for statements and connections to which no time of their own is given. Within another
    budget, the one that ends first holds. Tasks that the block begins have it, too.
    """
    token = _ENDS.set(min(_ENDS.get(), time.monotonic() + seconds))
    try:
        yield
    finally:
        _ENDS.reset(token)


def seconds_left() -> float:
    """Return what is left of the budget; infinite: there is none."""
    return _ENDS.get() - time.monotonic()
