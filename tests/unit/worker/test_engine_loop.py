"""The engine's thread hands over what happened, and never runs far ahead of whoever takes it."""

import asyncio
import os
import sys
import threading
import time

import pytest

from baton.engine.base import Engine, EngineStats
from baton.engine.events import Event
from baton.engine.factory import create_engine
from baton.settings import EngineSettings, StartupError
from baton.worker import engine_loop
from baton.worker.app import check_cores, check_nice
from baton.worker.engine_loop import MAX_STEPS_AHEAD, EngineFailedError, EngineLoop
from tests.support.clock import PATIENCE_SECONDS
from tests.support.wait import eventually, wait_for


class Idle:
    """An engine without work. Notes on which thread it is made, warmed up, stepped and closed."""

    def __init__(self, stats: EngineStats) -> None:
        self.threads = {"made": threading.get_ident()}
        self._stats = stats

    def warm_up(self) -> None:
        self.threads["warmed up"] = threading.get_ident()

    def has_work(self) -> bool:
        return False

    def hold_seconds(self) -> float:
        return 0.0

    def step(self) -> list[Event]:
        self.threads["stepped"] = threading.get_ident()
        return []

    def stats(self) -> EngineStats:
        return self._stats

    def close_engine(self) -> None:
        assert "closed" not in self.threads
        self.threads["closed"] = threading.get_ident()


class Tireless(Idle):
    """An engine with work for ever, and steps that take no time."""

    steps = 0

    def has_work(self) -> bool:
        return True

    def step(self) -> list[Event]:
        self.steps += 1
        return super().step()


class Mortal(Idle):
    """An engine that fails while it has nothing to do, like one of which a rank's process ends."""

    failed = False

    def has_work(self) -> bool:
        return self.failed

    def step(self) -> list[Event]:
        raise RuntimeError("a rank has ended")


class Holding(Tireless):
    """An engine that waits for a start after its first step."""

    held = 60.0

    def hold_seconds(self) -> float:
        return self.held if self.steps == 1 else 0.0


SETTINGS = EngineSettings(kind="sim", sim_time_scale=0, kv_bytes=64 * 1024)


def make_sim() -> Engine:
    return create_engine(SETTINGS)


@pytest.fixture(scope="module")
def stats() -> EngineStats:
    return make_sim().stats()


async def test_a_step_that_is_held_waits_for_a_command(stats: EngineStats) -> None:
    engine = Holding(stats)
    loop = EngineLoop(lambda: engine, lambda _: None)  # type: ignore[arg-type,return-value]
    await loop.start()
    try:
        await eventually(lambda: engine.steps == 1)
        assert await loop.call(lambda _: engine.steps) == 1, "it waits"
        await loop.call(lambda _: setattr(engine, "held", 0.0))
        await eventually(lambda: engine.steps > 1)
    finally:
        await loop.stop()


async def test_a_step_is_not_held_for_longer_than_the_engine_says(stats: EngineStats) -> None:
    engine = Holding(stats)
    engine.held = 0.001
    loop = EngineLoop(lambda: engine, lambda _: None)  # type: ignore[arg-type,return-value]
    await loop.start()
    try:
        await eventually(lambda: engine.steps > 1)
    finally:
        await loop.stop()


async def test_steps_that_nobody_takes_do_not_pile_up(stats: EngineStats) -> None:
    tireless = Tireless(stats)
    taken = 0

    def deliver(_events: list[Event], _stats: EngineStats) -> None:
        nonlocal taken
        taken += 1

    loop = EngineLoop(lambda: tireless, lambda error: None)  # type: ignore[arg-type, return-value]
    loop.deliver_to(deliver)
    await loop.start()
    before = await eventually(lambda: taken)
    time.sleep(0.1)  # noqa: ASYNC251 - the event loop is held up
    assert tireless.steps - taken <= MAX_STEPS_AHEAD + 1
    await eventually(lambda: taken > before)
    await wait_for(loop.stop())


async def test_the_engine_keeps_to_its_cores_and_nobody_else() -> None:
    usable = os.sched_getaffinity(0)
    core = max(usable)
    failures: list[BaseException] = []
    loop = EngineLoop(make_sim, failures.append, [core])
    await loop.start()
    assert await loop.call(lambda _engine: os.sched_getaffinity(0)) == {core}
    assert os.sched_getaffinity(0) == usable
    await loop.stop()
    assert failures == []


@pytest.mark.skipif(sys.platform != "linux", reason="threads have no niceness of their own here")
async def test_the_engine_is_nicer_than_its_process() -> None:
    def niceness(_engine: Engine | None = None) -> int:
        return os.getpriority(os.PRIO_PROCESS, 0)  # 0: this thread

    before = niceness()
    loop = EngineLoop(make_sim, lambda error: None, nice=3)
    await loop.start()
    assert await loop.call(niceness) == min(19, before + 3)
    assert niceness() == before
    await loop.stop()


def test_cores_that_cannot_be_used_are_refused() -> None:
    with pytest.raises(StartupError, match="BATON_ENGINE_CORES has 4095,"):
        check_cores((min(os.sched_getaffinity(0)), 4095))


def test_niceness_that_a_system_does_not_have_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "platform", "darwin")
    check_nice(0)
    with pytest.raises(StartupError, match="BATON_ENGINE_NICE"):
        check_nice(5)


async def test_a_command_that_raises_fails_its_caller_alone() -> None:
    failures: list[BaseException] = []
    loop = EngineLoop(make_sim, failures.append)
    await loop.start()
    with pytest.raises(KeyError):
        await loop.call(lambda each: each.close(7))
    assert (await loop.call(lambda each: each.stats())).open_sequences == 0
    await loop.stop()
    assert failures == []


async def test_events_that_cannot_be_delivered_fail_the_engine() -> None:
    # Streams would wait in vain for what is lost.
    failed = asyncio.get_running_loop().create_future()

    def deliver(_events: list[Event], _stats: EngineStats) -> None:
        raise RuntimeError("cannot be delivered")

    loop = EngineLoop(make_sim, failed.set_result)
    loop.deliver_to(deliver)
    await loop.start()
    await loop.call(lambda _engine: None)
    assert str(await wait_for(failed)) == "cannot be delivered"
    await loop.stop()


async def test_one_thread_makes_steps_and_closes_the_engine(stats: EngineStats) -> None:
    engine: list[Tireless] = []

    def make() -> Engine:
        engine.append(Tireless(stats))
        return engine[0]  # type: ignore[return-value]

    loop = EngineLoop(make, lambda error: None)
    assert await loop.start() is engine[0]
    await loop.call(lambda _engine: None)
    threads = engine[0].threads
    await eventually(lambda: "stepped" in threads)
    await wait_for(loop.stop())
    assert list(threads) == ["made", "warmed up", "stepped", "closed"]
    assert len(set(threads.values())) == 1
    assert threading.get_ident() not in threads.values()


async def test_what_making_the_engine_raises_reaches_who_starts_it() -> None:
    def refuse() -> Engine:
        raise StartupError("There is no checkpoint.")

    failures: list[BaseException] = []
    with pytest.raises(StartupError, match=r"^There is no checkpoint\.$"):
        await wait_for(EngineLoop(refuse, failures.append).start())
    assert failures == []


async def test_an_engine_is_checked_once_it_is_warm_and_closed_if_it_fails(
    stats: EngineStats,
) -> None:
    def check(engine: Engine) -> None:
        engine.threads["checked"] = threading.get_ident()  # type: ignore[attr-defined]
        raise StartupError("The engine's KV does not move rightly.")

    idle = Idle(stats)
    failures: list[BaseException] = []
    loop = EngineLoop(lambda: idle, failures.append, check=check)  # type: ignore[arg-type, return-value]
    with pytest.raises(StartupError, match="does not move rightly"):
        await wait_for(loop.start())
    assert list(idle.threads) == ["made", "warmed up", "checked", "closed"]
    assert len({*idle.threads.values()} - {threading.get_ident()}) == 1
    assert failures == []


async def test_an_engine_that_cannot_warm_up_is_closed(stats: EngineStats) -> None:
    class Cold(Idle):
        def warm_up(self) -> None:
            raise RuntimeError("out of memory")

    cold = Cold(stats)
    loop = EngineLoop(lambda: cold, lambda error: None)  # type: ignore[arg-type, return-value]
    with pytest.raises(RuntimeError, match="out of memory"):
        await wait_for(loop.start())
    assert "closed" in cold.threads


async def test_a_start_that_is_given_up_leaves_no_engine(stats: EngineStats) -> None:
    making, made = threading.Event(), threading.Event()
    engine = Idle(stats)

    def make() -> Engine:
        making.set()
        assert made.wait(PATIENCE_SECONDS)
        return engine  # type: ignore[return-value]

    starting = asyncio.create_task(EngineLoop(make, lambda error: None).start())
    assert await asyncio.to_thread(making.wait, PATIENCE_SECONDS)
    starting.cancel()
    made.set()
    with pytest.raises(asyncio.CancelledError):
        await wait_for(starting)
    assert "closed" in engine.threads


async def test_an_engine_that_fails_while_idle_is_noticed(
    stats: EngineStats, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(engine_loop, "IDLE_SECONDS", 0.01)
    failed = asyncio.get_running_loop().create_future()
    mortal = Mortal(stats)
    loop = EngineLoop(lambda: mortal, failed.set_result)  # type: ignore[arg-type, return-value]
    await loop.start()
    mortal.failed = True
    assert str(await wait_for(failed)) == "a rank has ended"
    with pytest.raises(EngineFailedError):
        await wait_for(loop.call(lambda each: each.stats()))
    # Blocks may be copied until it is stopped.
    assert "closed" not in mortal.threads
    await wait_for(loop.stop())
    assert "closed" in mortal.threads


async def test_since_when_the_engine_is_busy_is_known(stats: EngineStats) -> None:
    held, go = threading.Event(), threading.Event()
    failed = asyncio.get_running_loop().create_future()

    class Held(Tireless):
        def step(self) -> list[Event]:
            held.set()
            assert go.wait(30)
            raise RuntimeError("on fire")

    idle = EngineLoop(lambda: Idle(stats), lambda error: None)  # type: ignore[arg-type, return-value]
    await idle.start()
    await idle.call(lambda _engine: None)
    await eventually(lambda: idle.busy_since is None)
    await idle.stop()

    before = time.monotonic()
    loop = EngineLoop(lambda: Held(stats), failed.set_result)  # type: ignore[arg-type, return-value]
    await loop.start()
    await asyncio.to_thread(held.wait, 30)
    assert loop.busy_since is not None
    assert before <= loop.busy_since <= time.monotonic()
    go.set()
    await failed
    assert loop.busy_since is not None, "it does nothing any more"
    await loop.stop()
