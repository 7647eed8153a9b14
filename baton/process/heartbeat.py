"""A heartbeat of the event loop, for /livez."""

import asyncio

from baton.ops.checks import Liveness

_PERIOD_SECONDS = 0.5


def beat(loop: asyncio.AbstractEventLoop, liveness: Liveness) -> None:
    """Start a heartbeat of an event loop; /livez fails when it stops."""
    now = liveness.clock.now
    last = now()

    def tick() -> None:
        nonlocal last
        last = now()
        loop.call_later(_PERIOD_SECONDS, tick)

    tick()
    liveness.watch("event-loop", lambda: last)
