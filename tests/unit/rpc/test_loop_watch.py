"""What a process that stood still takes others for."""

import asyncio
import time

import pytest

from baton.rpc.loop_watch import Waiting, timeout
from tests.support.clock import within


def stand_still(seconds: float) -> None:
    """As a process that is stopped, or starved of a processor."""
    time.sleep(seconds)


async def test_a_pause_of_the_process_counts_as_no_wait() -> None:
    waiting = Waiting()
    stand_still(1.0)
    assert waiting.seconds < 0.5
    await asyncio.sleep(0)
    assert waiting.seconds < 0.5
    began = waiting.seconds
    async with within(5):
        while waiting.seconds - began < 0.5:
            await asyncio.sleep(0.05)


async def test_a_timeout_spares_who_answers_after_a_pause() -> None:
    async with timeout(0.8):
        stand_still(1.0)
        await asyncio.sleep(0.1)
    with pytest.raises(TimeoutError):
        async with within(5), timeout(0.1):
            await asyncio.Event().wait()
