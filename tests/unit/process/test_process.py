"""Tasks and drains of a process."""

import asyncio
from contextlib import AsyncExitStack

import pytest

from baton.process.process import Process
from tests.support.clock import within


@pytest.fixture
async def process():
    async with AsyncExitStack() as stack:
        yield Process("test", "test-1", "i-1", stack, asyncio.Event())


async def forever(ended: list[str], name: str) -> None:
    try:
        await asyncio.sleep(60)
    finally:
        ended.append(name)


async def test_composed_tasks_end_between_the_parts_around_them(process):
    ended: list[str] = []
    process.stack.callback(ended.append, "earlier part")
    process.spawn(forever(ended, "task"), "task")
    process.stack.callback(ended.append, "later part")
    process.composed()
    process.spawn(forever(ended, "later task"), "later task")
    await asyncio.sleep(0)
    await process.end_tasks()
    await process.stack.aclose()
    assert ended == ["later task", "later part", "task", "earlier part"]


async def test_task_that_ends_well_is_nobodys_concern(process):
    async def work() -> int:
        return 7

    process.composed()
    assert await process.spawn(work(), "work") == 7
    await asyncio.sleep(0)
    assert process.failure is None
    assert not process.stopping.is_set()


async def test_first_failure_is_the_reason(process):
    process.die("disk on fire")
    process.die("everything else")
    assert process.failure == "disk on fire"
    assert process.stopping.is_set()


async def test_drains_run_in_order_within_the_time_they_share(process):
    done: list[str] = []

    async def quick() -> None:
        done.append("quick")

    async def slow() -> None:
        await asyncio.sleep(60)
        done.append("slow")

    process.on_drain(quick)
    process.on_drain(slow)
    process.on_drain(quick)
    async with within(5):
        await process.drain(0.05)
    assert done == ["quick"]
