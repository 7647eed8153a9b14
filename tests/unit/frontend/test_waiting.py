"""Requests wait for a worker: bounded, in order, and each hears of its end once."""

import asyncio
from typing import Any

import pytest

from baton.errors import BatonError, Reason
from baton.settings import FrontendLimits
from services.frontend.placement.waiting import WorkerWait, WorkerWaitQueue
from tests.support.loops.manual import ManualLoop

MIB = 1024 * 1024
NONE = BatonError(Reason.NO_WORKER, "no worker", field="model", retry_after=2.0)


class Waiting:
    """A queue on a clock that is turned by hand, and what its requests are told."""

    def __init__(self, **limits: Any) -> None:
        self.loop = ManualLoop()
        loop: Any = self.loop
        self.queue = WorkerWaitQueue(FrontendLimits(**limits), loop=loop)
        self.woken: list[str] = []
        self.failed: dict[str, BatonError] = {}

    def enter(
        self, name: str, model: str = "m", size: int = 1, changes: int | None = None
    ) -> WorkerWait:
        def fail(error: BatonError) -> None:
            assert name not in self.failed
            self.failed[name] = error

        changes = self.queue.changes if changes is None else changes
        return self.queue.enter(model, size, NONE, lambda: self.woken.append(name), fail, changes)

    def wake(self, *models: str) -> None:
        self.queue.wake(models.__contains__)
        self.loop.advance(0)


def test_a_worker_wakes_those_who_ask_for_its_model_in_the_order_of_their_coming() -> None:
    waiting = Waiting()
    for name, model in (("a", "m"), ("b", "n"), ("c", "m")):
        waiting.enter(name, model)
    waiting.wake("o")
    assert not waiting.woken
    waiting.wake("m")
    assert waiting.woken == ["a", "c"]
    assert len(waiting.queue) == 1
    waiting.wake("m", "n")
    assert waiting.woken == ["a", "c", "b"]
    waiting.loop.advance(100)
    assert not waiting.failed


def test_a_few_go_on_per_turn_of_the_loop() -> None:
    waiting = Waiting()
    for number in range(100):
        waiting.enter(str(number))
    seen: list[int] = []
    waiting.queue.wake(lambda _: True)
    for _ in range(4):
        waiting.loop.call_soon(lambda: seen.append(len(waiting.woken)))
    waiting.loop.advance(0)
    assert seen[0] == 32
    assert waiting.woken == [str(number) for number in range(100)]
    assert len(waiting.queue) == 0


def test_one_that_comes_back_waits_for_the_next_worker() -> None:
    waiting = Waiting()
    changes = waiting.queue.changes
    waiting.queue.enter("m", 1, NONE, lambda: waiting.enter("again"), pytest.fail, changes)
    waiting.wake("m")
    assert (len(waiting.queue), waiting.woken) == (1, [])
    waiting.wake("m")
    assert waiting.woken == ["again"]


def test_a_worker_that_came_while_one_was_looked_for_is_not_missed() -> None:
    waiting = Waiting(wait_for_worker_seconds=5)
    before = waiting.queue.changes
    waiting.wake("m")
    waiting.enter("a", changes=before)
    assert (len(waiting.queue), waiting.woken) == (1, [])
    waiting.loop.advance(0)
    assert (len(waiting.queue), waiting.woken) == (0, ["a"])
    waiting.enter("b", changes=before).leave()
    waiting.enter("c")
    waiting.loop.advance(6)
    assert waiting.woken == ["a"]
    assert list(waiting.failed) == ["c"]


def test_the_wait_is_bounded_in_time_and_says_so() -> None:
    waiting = Waiting(wait_for_worker_seconds=5)
    waiting.enter("a")
    waiting.loop.advance(4.9)
    waiting.enter("b")
    assert not waiting.failed
    waiting.loop.advance(0.2)
    assert list(waiting.failed) == ["a"]
    error = waiting.failed["a"]
    assert error.message == "no worker: none appeared within 5 s"
    assert (error.reason, error.field, error.retry_after) == (Reason.NO_WORKER, "model", 2.0)
    waiting.wake("m")
    assert waiting.woken == ["b"]


def test_it_is_bounded_in_number_and_bytes_and_those_who_leave_make_room() -> None:
    waiting = Waiting(max_waiting=2, max_waiting_bytes=MIB)
    first = waiting.enter("a")
    waiting.enter("b", size=MIB - 1)
    with pytest.raises(BatonError, match=r"limits\.max_waiting\b") as caught:
        waiting.enter("c")
    assert (caught.value.reason, caught.value.retry_after) == (Reason.NO_WORKER, 2.0)
    first.leave()
    first.leave()
    with pytest.raises(BatonError, match=r"limits\.max_waiting_bytes"):
        waiting.enter("c", size=2)
    waiting.enter("c")
    waiting.loop.advance(100)
    assert sorted(waiting.failed) == ["b", "c"]
    assert len(waiting.queue) == 0
    assert not waiting.woken


def test_one_that_leaves_or_fails_after_it_was_woken_hears_nothing_more() -> None:
    waiting = Waiting()
    first = waiting.enter("a")
    waiting.enter("b")
    waiting.queue.wake(lambda _: True)
    first.leave()
    waiting.queue.fail_all(BatonError(Reason.DRAINING, "stopping"))
    waiting.loop.advance(100)
    assert not waiting.woken
    assert {name: error.reason for name, error in waiting.failed.items()} == {"b": Reason.DRAINING}
    assert len(waiting.queue) == 0


async def test_a_task_waits_until_it_is_woken_cancelled_or_told_of_the_end() -> None:
    queue = WorkerWaitQueue(FrontendLimits(wait_for_worker_seconds=60))
    tasks = [asyncio.create_task(queue.wait("m", 1, NONE)) for _ in range(3)]
    await asyncio.sleep(0)
    assert len(queue) == 3
    tasks[0].cancel()
    await asyncio.wait(tasks[:1])
    assert len(queue) == 2
    queue.wake(lambda model: model == "m")
    await asyncio.gather(*tasks[1:])
    assert len(queue) == 0
    late = WorkerWaitQueue(FrontendLimits(wait_for_worker_seconds=0))
    with pytest.raises(BatonError, match="none appeared within 0 s"):
        await late.wait("m", 1, NONE)


def test_a_request_waits_longer_while_a_worker_is_started_for_its_model() -> None:
    loop: Any = ManualLoop()
    queue = WorkerWaitQueue(FrontendLimits(wait_for_worker_seconds=5), 60, loop)
    queue.is_starting = {"kept"}.__contains__
    failed: dict[str, float] = {}
    for model in ("kept", "gone"):
        queue.enter(
            model, 1, NONE, pytest.fail, lambda _, m=model: failed.update({m: loop.time()}), 0
        )
    began = loop.time()
    loop.advance(59)
    assert list(failed) == ["gone"]
    loop.advance(2)
    assert failed["kept"] - began >= 60


def test_the_oldest_request_asks_again_and_waits_no_longer_for_that() -> None:
    loop: Any = ManualLoop()
    queue = WorkerWaitQueue(FrontendLimits(wait_for_worker_seconds=5), 60, loop)
    queue.is_starting = {"kept"}.__contains__
    woken: list[str] = []
    failed: dict[str, float] = {}

    def enter(name: str, model: str, began: float | None = None) -> WorkerWait:
        return queue.enter(
            model,
            1,
            NONE,
            lambda: woken.append(name),
            lambda _: failed.update({name: loop.time()}),
            queue.changes,
            began,
        )

    began = loop.time()
    first = enter("first", "kept")
    enter("other", "gone")
    loop.advance(1)
    enter("second", "kept")
    queue.ask_again()
    loop.advance(0)
    assert woken == ["first"]
    assert len(queue) == 2
    enter("first", "kept", first.began)
    queue.ask_again()
    loop.advance(0)
    assert woken == ["first", "first"], "it is still the oldest"
    enter("first", "kept", first.began)
    loop.advance(59)
    assert failed["first"] == began + 60
    assert "second" not in failed
    loop.advance(1)
    assert failed["second"] == began + 61
