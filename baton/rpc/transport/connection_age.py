"""The maximum age of client connections, over HTTP and gRPC."""

import random

_JITTER = 0.1


def draw_age(seconds: float) -> float:
    """Return an age within ±10 %, so that connections made together are not renewed together."""
    return seconds * random.uniform(1 - _JITTER, 1 + _JITTER)
