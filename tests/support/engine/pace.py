"""Engines of this process that take their time, so that an answer lasts on any machine."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from unittest.mock import patch

from baton.engine.base import Event
from baton.engine.paged.engine import PagedEngine

STEP_SECONDS = 0.01


@contextmanager
def paced() -> Iterator[None]:
    """Make each step take STEP_SECONDS longer, on the engine's thread, until the block ends.

    An answer of hundreds of tokens then outlasts what a test does to it meanwhile.
    """
    step = PagedEngine.step

    def step_slowly(engine: PagedEngine) -> list[Event]:
        time.sleep(STEP_SECONDS)
        return step(engine)

    with patch.object(PagedEngine, "step", step_slowly):
        yield
