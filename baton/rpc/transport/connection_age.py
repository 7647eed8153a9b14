"""How old a client's connection becomes, over HTTP and gRPC alike."""

import random

_JITTER = 0.1


def draw_age(seconds: float) -> float:
    """Return an age of up to a tenth more or less: connections that were made together are not made
    anew together."""
    return seconds * random.uniform(1 - _JITTER, 1 + _JITTER)
