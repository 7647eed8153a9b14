"""Reports come at once where placements would go wrong without, and ten a second where not."""

import asyncio
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from baton.engine.base import EngineStats
from baton.request.room import choice_pages
from baton.settings import LoadSettings
from baton.worker.load import LoadReporter, misleads
from baton.worker.stream.reserved import StreamPages, reserved_pages
from tests.support.clock import within
from tests.support.engine.info import engine_info
from tests.support.loops.manual import ManualLoop

STATS = EngineStats(
    running=4,
    waiting=0,
    pending_prompt_tokens=0,
    free_pages=800,
    total_pages=1000,
    open_sequences=4,
    computed_tokens=0,
    cached_tokens=0,
    prefill_tokens_per_second=10_000.0,
    decode_step_seconds=0.006,
)
STEP = 0.006
NO_ADAPTERS = SimpleNamespace(digests=[], slots=0, load_seconds=0.0)


class World:
    """A worker's load as a test sets it, and the reports of it by the time they were told."""

    def __init__(self) -> None:
        self.clock: Any = ManualLoop()
        core: Any = SimpleNamespace(
            stats=STATS,
            streams={},
            draining=False,
            fetch_bytes_per_second=0.0,
            model="m",
            store=SimpleNamespace(leases=0, reservations=0),
            resident=NO_ADAPTERS,
            engine=SimpleNamespace(info=engine_info(16, decode_chunk_tokens=32)),
        )
        self.core = core
        self.reporter = LoadReporter(core, "w", "1", LoadSettings(), self.clock)
        self.reports = 0

    def step(self, **stats: Any) -> None:
        """One step of the engine."""
        computed = self.core.stats.computed_tokens + 64
        self.core.stats = replace(self.core.stats, computed_tokens=computed, **stats)
        self.core.on_load_changed()
        before = self.told
        self.clock.advance(STEP)
        self.reports += self.told is not before

    @property
    def told(self) -> Any:
        return self.reporter.told


@pytest.fixture
def world() -> World:
    return World()


def test_streams_that_just_run_cost_ten_reports_a_second(world: World) -> None:
    for number in range(1000):
        world.step(free_pages=800 - number // 4)
    assert world.reports == pytest.approx(1000 * STEP * 10, abs=2)
    assert world.told.computed_tokens > 63_000  # and none is older than that


@pytest.mark.parametrize(
    "news",
    [
        {"waiting": 1},
        {"pending_prompt_tokens": 300},
        {"pending_prompt_tokens": 900, "pending_cached_tokens": 600},
        {"running": 8},
        {"running": 0},
        {"free_pages": 300},
    ],
)
def test_what_changes_placements_is_reported_at_once(world: World, news: dict[str, Any]) -> None:
    world.step()
    world.clock.advance(0.06)
    world.step(free_pages=790)
    assert world.told.free_pages == 800  # nothing depends on it: it waits for others
    world.step(**news)
    assert world.told.free_pages == news.get("free_pages", 790)
    assert all(getattr(world.told, name) == value for name, value in news.items())


def test_what_waits_and_will_be_found_misleads_nobody(world: World) -> None:
    world.step()
    world.clock.advance(0.06)
    world.step(pending_prompt_tokens=900, pending_cached_tokens=899)
    assert world.told.pending_prompt_tokens == 0


def test_however_much_changes_reports_keep_their_pace(world: World) -> None:
    for number in range(1000):
        world.step(running=number % 64, pending_prompt_tokens=number % 7 * 1000)
    assert world.reports <= 1000 * STEP / LoadSettings().interval_seconds + 1


def test_draining_is_reported_at_once(world: World) -> None:
    world.step()
    world.clock.advance(0.06)
    world.core.draining = True
    world.core.on_load_changed()
    world.clock.advance(0)
    assert world.told.draining


def test_a_ticket_is_named_once_its_work_is_part_of_the_load(world: World) -> None:
    first, second = streams = [
        SimpleNamespace(
            ticket="r/1",
            counted=False,
            ended=False,
            paused=False,
            pages=StreamPages("r/1", 20, 16, False),
        )
        for _ in range(2)
    ]
    world.core.streams.update(enumerate(streams))
    for counted, tickets in ((None, []), (first, []), (second, ["r/1"])):
        if counted is not None:
            counted.counted = True
        world.clock.advance(1)
        world.step(waiting=len(tickets) + 1)
        assert list(world.told.tickets) == tickets, "all of its work is to be part"
    assert list(world.told.ticket_sequences) == [2]
    # A block that both share, and two more of each: for 4 tokens of the prompt, and 16 of output.
    assert world.told.reserved_pages == 1 + 2 * 2
    first.ended = True
    world.clock.advance(1)
    world.step(waiting=0)
    assert list(world.told.ticket_sequences) == [1]
    second.paused = True
    world.clock.advance(1)
    world.step(waiting=1)
    assert list(world.told.ticket_sequences) == [0], "neither running nor waiting"


def test_what_streams_are_counted_for_is_the_same_until_they_hold_it() -> None:
    counted = choice_pages(37, 50, 3, 16)
    waiting = [StreamPages("r", 37, 50, False)] * 3
    assert reserved_pages(waiting, 16) == counted
    for held in range(1, 3):
        mixed = [StreamPages("r", 37, 50, number < held) for number in range(3)]
        # Two full blocks are shared, the third is of each choice.
        assert reserved_pages(mixed, 16) + 2 + held == counted
    for written in range(51):
        running = [StreamPages("r", 37 + written, 50 - written, True)] * 3
        own = -(-(37 + written) // 16) - 2
        assert reserved_pages(running, 16) + 2 + 3 * own == counted
    assert reserved_pages([StreamPages("r", 300, 0, True)], 16) == 0
    apart = [StreamPages("r", 37, 50, False), StreamPages("s", 37, 50, False)]
    assert reserved_pages(apart, 16) == 2 * choice_pages(37, 50, 1, 16)


def test_what_is_not_known_of_a_worker_counts_as_slow() -> None:
    told = World().told
    unknown = replace(STATS, prefill_tokens_per_second=0.0, pending_prompt_tokens=1)
    assert misleads(told, unknown)
    assert not misleads(told, STATS)


def test_small_changes_add_up(world: World) -> None:
    """Each is compared with what was told, not with the one before."""
    world.step()
    world.clock.advance(0.06)
    for running in (5, 6, 7):
        world.core.stats = replace(world.core.stats, running=running)
        world.core.on_load_changed()
        world.clock.advance(0)
        assert world.told.running == 4
    world.core.stats = replace(world.core.stats, running=8)
    world.core.on_load_changed()
    world.clock.advance(0)
    assert world.told.running == 8


class Watcher:
    """A router's call."""

    def __init__(self) -> None:
        self.reports: list[Any] = []

    def send(self, message: Any) -> bool:
        self.reports.append(message.report)
        return True


async def test_who_watches_gets_the_load_now_and_then_the_news(world: World) -> None:
    watchers = [Watcher(), Watcher()]
    tasks = [asyncio.create_task(world.reporter.serve(watcher)) for watcher in watchers]
    await asyncio.sleep(0)
    world.clock.advance(1)
    world.step(waiting=1)
    for watcher in watchers:
        assert watcher.reports[0].waiting == 0
        assert watcher.reports[-1].waiting == 1
    tasks[0].cancel()
    await asyncio.wait(tasks[:1])
    world.clock.advance(1)
    world.step(waiting=0)
    assert [watcher.reports[-1].waiting for watcher in watchers] == [1, 0]
    tasks[1].cancel()
    await asyncio.wait(tasks)


async def test_who_heard_nothing_hears_that_nothing_changed(world: World) -> None:
    watcher = Watcher()
    task = asyncio.create_task(world.reporter.serve(watcher))
    await asyncio.sleep(0)
    world.clock.advance(LoadSettings().heartbeat_seconds)
    async with within(5):
        while len(watcher.reports) < 2:
            await asyncio.sleep(0.01)
    assert watcher.reports[0] == watcher.reports[1]
    task.cancel()
    await asyncio.wait([task])
