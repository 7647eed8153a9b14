"""Waiting for conditions that no event signals."""

import asyncio
import inspect
import time
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar, overload

from tests.support.clock import PATIENCE_SECONDS, Stopwatch, within

T = TypeVar("T")

POLL_SECONDS = 0.01


@overload
async def eventually(
    condition: Callable[[], Awaitable[T]], seconds: float = PATIENCE_SECONDS
) -> T: ...


@overload
async def eventually(condition: Callable[[], T], seconds: float = PATIENCE_SECONDS) -> T: ...


async def eventually(condition: Callable[[], Any], seconds: float = PATIENCE_SECONDS) -> Any:
    """Return the first true value of `condition`, which may be a coroutine function.

    Args:
        condition: called again and again.
        seconds: of a quiet machine: see `Stopwatch`. Tests of a time limit state it.

    Raises:
        TimeoutError: there was none within `seconds`; the text contains the last value.
    """
    watch = Stopwatch()
    while True:
        value = condition()
        if inspect.isawaitable(value):
            value = await value
        if value:
            return value
        if not watch.remaining(seconds):
            raise TimeoutError(f"not within {seconds:g} s: {condition} is still {value!r}")
        await asyncio.sleep(POLL_SECONDS)


async def wait_for(awaitable: Awaitable[T], seconds: float = PATIENCE_SECONDS) -> T:
    """Return the result of `awaitable`, as `asyncio.wait_for` does by the wall clock.

    Raises:
        TimeoutError: there was none within `seconds` of a quiet machine, and it was cancelled.
    """
    async with within(seconds):
        return await awaitable


def eventually_blocking(condition: Callable[[], T], seconds: float = PATIENCE_SECONDS) -> T:
    """Return the first true value of a plain function, without an event loop."""
    watch = Stopwatch()
    while not (value := condition()):
        if not watch.remaining(seconds):
            raise TimeoutError(f"not within {seconds:g} s: {condition} is still {value!r}")
        time.sleep(POLL_SECONDS)
    return value
