"""What a process that stood still takes others for."""

import asyncio
import time
from collections.abc import Generator
from typing import Any

import pytest

from baton.errors import BatonError, Reason
from baton.rpc.streams.client import messages
from baton.rpc.timing import loop_watch
from baton.rpc.timing.loop_watch import LoopStopwatch, Timer, timeout
from tests.support.clock import within
from tests.support.loops.manual import ManualLoop


def stand_still(seconds: float) -> None:
    """As a process that is stopped, or starved of a processor."""
    time.sleep(seconds)


async def test_a_pause_of_the_process_counts_as_no_wait() -> None:
    waiting = LoopStopwatch()
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


@pytest.fixture
def loop(monkeypatch: pytest.MonkeyPatch) -> ManualLoop:
    """The running loop, turned by hand."""
    turned = ManualLoop()
    monkeypatch.setattr(asyncio, "get_running_loop", lambda: turned)
    monkeypatch.setattr(loop_watch, "_watches", {})
    return turned


def test_a_timer_counts_from_where_it_was_restarted(loop: ManualLoop) -> None:
    called: list[float] = []
    timer = Timer(1.0, lambda: called.append(loop.now))
    loop.advance(0.75)
    timer.restart()
    loop.advance(0.75)
    assert called == []
    loop.advance(5)
    assert called == [1.75]


def test_a_paused_timer_counts_nothing_until_it_is_restarted(loop: ManualLoop) -> None:
    called: list[float] = []
    timer = Timer(1.0, lambda: called.append(loop.now))
    loop.advance(0.5)
    timer.pause()
    loop.advance(10)
    timer.restart()
    loop.advance(5)
    assert called == [11.5]
    timer = Timer(1.0, lambda: called.append(loop.now))
    timer.cancel()
    loop.advance(5)
    assert called == [11.5]


class SilentCall:
    """One message, and then none."""

    def __init__(self) -> None:
        self.waiting = ["a"]
        self.ended: BatonError | None = None

    async def read(self) -> str:
        return self.waiting.pop() if self.waiting else await self

    def __await__(self) -> Generator[None, None, str]:
        yield
        assert self.ended is not None
        raise self.ended

    def cancel(self, error: BatonError | None = None) -> None:
        self.ended = self.ended or error


def test_what_is_done_with_a_message_is_no_time_without_one(loop: ManualLoop) -> None:
    silent: Any = SilentCall()
    received = messages(silent, 1.0)
    with pytest.raises(StopIteration, match="a"):
        received.__anext__().send(None)
    loop.advance(60)
    assert silent.ended is None
    following = received.__anext__()
    following.send(None)  # it waits for the next message
    loop.advance(0.75)
    assert silent.ended is None
    loop.advance(0.25)
    with pytest.raises(BatonError, match="no message for 1 s") as caught:
        following.send(None)
    assert caught.value.reason is Reason.DEADLINE
