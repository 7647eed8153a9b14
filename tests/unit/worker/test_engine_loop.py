"""The engine's thread hands over what happened, and never runs far ahead of whoever takes it."""

import asyncio
import os
import time

import pytest

from baton.engine.base import Engine, EngineStats
from baton.engine.events import Event
from baton.engine.factory import create_engine
from baton.settings import EngineSettings, StartupError
from baton.worker.app import check_cores
from baton.worker.engine_loop import MAX_STEPS_AHEAD, EngineLoop


class Tireless:
    """An engine with work for ever, and steps that take no time."""

    def __init__(self, stats: EngineStats) -> None:
        self.steps = 0
        self._stats = stats

    def has_work(self) -> bool:
        return True

    def step(self) -> list[Event]:
        self.steps += 1
        return []

    def stats(self) -> EngineStats:
        return self._stats


@pytest.fixture
def engine() -> Engine:
    return create_engine(EngineSettings(kind="sim", sim_time_scale=0, kv_bytes=64 * 1024))


async def test_steps_that_nobody_takes_do_not_pile_up(engine: Engine) -> None:
    tireless = Tireless(engine.stats())
    taken = 0

    def deliver(_events: list[Event], _stats: EngineStats) -> None:
        nonlocal taken
        taken += 1

    loop = EngineLoop(tireless, deliver, lambda error: None)  # type: ignore[arg-type]
    loop.start()
    await asyncio.sleep(0.02)
    before = taken
    time.sleep(0.1)  # noqa: ASYNC251 - the event loop is held up
    assert tireless.steps - taken <= MAX_STEPS_AHEAD + 1
    await asyncio.sleep(0.02)
    assert taken > before > 0
    await asyncio.wait_for(loop.stop(), 5)


async def test_the_engine_keeps_to_its_cores_and_nobody_else(engine: Engine) -> None:
    usable = os.sched_getaffinity(0)
    core = max(usable)
    failures: list[BaseException] = []
    loop = EngineLoop(engine, lambda _events, _stats: None, failures.append, [core])
    loop.start()
    assert await loop.call(lambda _engine: os.sched_getaffinity(0)) == {core}
    assert os.sched_getaffinity(0) == usable
    await loop.stop()
    assert failures == []


def test_cores_that_cannot_be_used_are_refused() -> None:
    with pytest.raises(StartupError, match="BATON_ENGINE_CORES names 4095 "):
        check_cores((min(os.sched_getaffinity(0)), 4095))


async def test_a_command_that_raises_fails_its_caller_alone(engine: Engine) -> None:
    failures: list[BaseException] = []
    loop = EngineLoop(engine, lambda _events, _stats: None, failures.append)
    loop.start()
    with pytest.raises(KeyError):
        await loop.call(lambda each: each.close(7))
    assert (await loop.call(lambda each: each.stats())).open_sequences == 0
    await loop.stop()
    assert failures == []


async def test_events_that_cannot_be_delivered_fail_the_engine(engine: Engine) -> None:
    # Streams would wait in vain for what is lost.
    failed = asyncio.get_running_loop().create_future()

    def deliver(_events: list[Event], _stats: EngineStats) -> None:
        raise RuntimeError("cannot be delivered")

    loop = EngineLoop(engine, deliver, failed.set_result)
    loop.start()
    await loop.call(lambda _engine: None)
    assert str(await asyncio.wait_for(failed, 5)) == "cannot be delivered"
    await loop.stop()
