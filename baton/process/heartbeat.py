"""A sign that the event loop runs, for /livez."""

import asyncio

from baton.ops.checks import Liveness

_PERIOD_SECONDS = 0.5


def beat(loop: asyncio.AbstractEventLoop, liveness: Liveness) -> None:
    """Have an event loop say from now on that it runs; /livez fails when it does not any more."""
    now = liveness.clock.now
    last = now()

    def tick() -> None:
        nonlocal last
        last = now()
        loop.call_later(_PERIOD_SECONDS, tick)

    tick()
    liveness.watch("event-loop", lambda: last)
