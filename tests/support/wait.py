"""Waiting for what no event tells."""

import asyncio
import inspect
import time
from collections.abc import Awaitable, Callable
from typing import TypeVar

T = TypeVar("T")

POLL_SECONDS = 0.01
SECONDS = 30.0
"""Long: a machine with other work stands still for seconds. Who means a bound says it."""


async def eventually(condition: Callable[[], T | Awaitable[T]], seconds: float = SECONDS) -> T:
    """Return the first true value of `condition`, which may be a coroutine function.

    Raises:
        TimeoutError: there was none within `seconds`; the text has the last value.
    """
    loop = asyncio.get_running_loop()
    deadline = loop.time() + seconds
    while True:
        value = condition()
        if inspect.isawaitable(value):
            value = await value
        if value:
            return value
        if loop.time() > deadline:
            raise TimeoutError(f"not within {seconds:g} s: {condition} is still {value!r}")
        await asyncio.sleep(POLL_SECONDS)


def eventually_blocking(condition: Callable[[], T], seconds: float = SECONDS) -> T:
    """Do the same without an event loop, for a condition that is a plain function."""
    deadline = time.monotonic() + seconds
    while not (value := condition()):
        if time.monotonic() > deadline:
            raise TimeoutError(f"not within {seconds:g} s: {condition} is still {value!r}")
        time.sleep(POLL_SECONDS)
    return value
