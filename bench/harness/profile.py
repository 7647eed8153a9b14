"""Profile of a block, by function."""

import cProfile
import pstats
from collections.abc import Iterator
from contextlib import contextmanager

_LINES = 45


@contextmanager
def profiled(wanted: bool) -> Iterator[None]:
    """Print the functions that took most time in the block, if requested."""
    if not wanted:
        yield
        return
    profile = cProfile.Profile()
    profile.enable()
    try:
        yield
    finally:
        profile.disable()
        pstats.Stats(profile).sort_stats("tottime").print_stats(_LINES)
