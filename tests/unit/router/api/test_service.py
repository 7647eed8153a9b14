"""One Place stream from the inside: bounds, order at the end, who is cut off and why."""

import asyncio
from collections.abc import Callable, Collection
from typing import Any

import pytest

from baton.errors import BatonError, Reason
from baton.internal.v1 import router_pb2
from baton.rpc.protocol import VERSION, hello
from baton.settings import RouterLimits
from services.router.admission.waiting import QueueSettings
from services.router.api.dispatcher import QueryDispatcher
from services.router.api.service import RouterService
from services.router.policy.placement_service import PlacementService
from services.router.prefix_index.index import PrefixIndex
from services.router.state.fleet import Fleet
from services.router.state.instances import (
    InstanceState,
    LoadReport,
    ModelLayout,
    ReportedClassLoad,
    Role,
)
from services.router.state.tickets import TicketTable
from tests.support.clock import within
from tests.support.doubles.call import ScriptedCall
from tests.support.wait import eventually

LAYOUT = b"L" * 16
NO_GATE = QueueSettings(gate=1e9)

MAX_ANSWERS = RouterLimits().max_answers


class Stream(ScriptedCall):
    """The call of a frontend that asks so many questions, as fast as the router lets it."""

    def __init__(self, questions: int, *, reading: bool = True, ends: bool = False) -> None:
        super().__init__(takes=None if reading else 0)
        self.asked = 0
        self.hello = hello()
        self._questions = questions
        self._ends = ends

    @property
    def answers(self) -> list[router_pb2.FrameFromRouter]:
        frames = [frame for message in self.sent for frame in message.frames]
        return [frame for frame in frames if not frame.HasField("hello")]

    def receive(self, on_message: Callable[[Any], None], on_end: Callable[[], None]) -> None:
        super().receive(on_message, on_end)
        self.say_frames([router_pb2.FrameToRouter(hello=self.hello)])
        self.release_requests()

    def say_frames(self, frames: list[router_pb2.FrameToRouter]) -> None:
        self.say(router_pb2.PlaceRequest(frames=frames))

    def release_requests(self) -> None:
        super().release_requests()
        while self.asked < self._questions and not self.held:
            self.asked += 1
            query = router_pb2.PlaceQuery(
                correlation_id=self.asked, prompt_tokens=100, max_tokens=10
            )
            query.context.model = "m"
            self.say_frames([router_pb2.FrameToRouter(query=query)])
        if self._ends and self.asked == self._questions:
            self.half_close()


@pytest.fixture
def fleet() -> Fleet:
    fleet = Fleet(PrefixIndex(), TicketTable("r"))
    fleet.set_layouts([ModelLayout("m", LAYOUT, block_tokens=16, block_bytes=1000)])
    fleet.put(InstanceState("d1", Role.DECODE, model="m", layout_id=LAYOUT))
    fleet.apply_report(LoadReport("d1", free_pages=100, total_pages=100), 0.0)
    return fleet


def serving(fleet: Fleet, **options: Any) -> RouterService:
    service = RouterService(QueryDispatcher(PlacementService(fleet), NO_GATE), **options)
    service.open()
    return service


async def refusal(call: "asyncio.Task[None]", limit: float = 3.0) -> Reason:
    with pytest.raises(BatonError) as refused:
        async with within(limit):
            await call
    return refused.value.reason


def begin(service: RouterService, stream: Stream) -> "asyncio.Task[None]":
    call: Any = stream
    return asyncio.create_task(service.Place(None, call))


async def test_a_frontend_that_reads_nothing_is_read_no_further_and_then_cut_off(
    fleet: Fleet,
) -> None:
    stream = Stream(10 * MAX_ANSWERS, reading=False)
    call = begin(serving(fleet, limits=RouterLimits(stall_seconds=0.2)), stream)
    await eventually(lambda: stream.asked >= MAX_ANSWERS)
    assert not call.done()
    assert stream.asked <= MAX_ANSWERS + 1  # kept, and one message sent
    assert await refusal(call) is Reason.SLOW_CONSUMER
    assert len(fleet.tickets) == 0


async def test_a_frontend_that_reads_on_in_time_gets_every_answer_in_order(fleet: Fleet) -> None:
    count = 3 * MAX_ANSWERS
    stream = Stream(count, reading=False, ends=True)
    call = begin(serving(fleet, limits=RouterLimits(stall_seconds=5.0)), stream)
    await eventually(lambda: stream.asked >= MAX_ANSWERS)
    stream.read_on()
    async with within(10):
        await call
    answered = [
        answer.placement.correlation_id or answer.failed.correlation_id for answer in stream.answers
    ]
    assert answered == list(range(1, count + 1))


async def test_queries_of_one_message_are_answered_by_one(fleet: Fleet) -> None:
    stream = Stream(0)
    queries = [
        router_pb2.PlaceQuery(correlation_id=number, prompt_tokens=100, max_tokens=10)
        for number in range(1, 65)
    ]
    for query in queries:
        query.context.model = "m" if query.correlation_id % 2 else "unknown"
    frames = [router_pb2.FrameToRouter(query=query) for query in queries]
    call = begin(serving(fleet), stream)
    await asyncio.sleep(0)
    stream.say_frames(frames)
    async with within(5):
        while len(stream.answers) < 64:
            await asyncio.sleep(0)
    call.cancel()
    assert [
        frame.placement.correlation_id or frame.failed.correlation_id
        for frame in stream.sent[-1].frames
    ] == list(range(1, 65))
    assert sum(frame.HasField("placement") for frame in stream.answers) == 32


def told(stream: Stream) -> list[int]:
    return [one.line_room.lines for one in stream.answers if one.HasField("line_room")]


async def test_frontends_share_the_places_that_lines_could_have(fleet: Fleet) -> None:
    def report(running: int) -> None:
        higher = ReportedClassLoad(1, running, 1), ReportedClassLoad(2, 30)
        load = LoadReport("d1", free_pages=100, total_pages=100, max_running=64, classes=higher)
        fleet.apply_report(load, 0.0)

    report(3)
    service, streams = serving(fleet), [Stream(0), Stream(0), Stream(0)]
    calls = [begin(service, stream) for stream in streams]
    await asyncio.sleep(0)
    ask = router_pb2.FrameToRouter(ask_line_room=router_pb2.AskLineRoom())
    streams[0].say_frames([ask])
    await eventually(lambda: told(streams[0]) == [75])  # 60 places, and a quarter to wait
    streams[1].say_frames([ask])
    await eventually(lambda: told(streams[1]) == [38])
    await eventually(lambda: told(streams[0]) == [75, 38])
    report(63)
    await eventually(lambda: told(streams[1]) == [38, 8])  # so that it is known that some wait
    streams[1].half_close()
    await calls[1]
    report(3)
    await eventually(lambda: told(streams[0]) == [75, 38, 8, 75])
    assert not told(streams[2]), "it has not asked"
    for call in calls:
        call.cancel()


async def test_stopping_sends_what_is_answered_and_says_draining(fleet: Fleet) -> None:
    service = serving(fleet)
    stream = Stream(20)
    call = begin(service, stream)
    await eventually(lambda: len(fleet.tickets) == 20)
    service.stop()
    assert await refusal(call) is Reason.DRAINING
    assert len(stream.answers) == 20
    assert await refusal(begin(service, Stream(1))) is Reason.DRAINING


async def test_a_frontend_that_reads_a_moment_later_still_gets_its_answers(fleet: Fleet) -> None:
    service = serving(fleet)
    stream = Stream(20, reading=False)
    call = begin(service, stream)
    await eventually(lambda: len(fleet.tickets) == 20)
    service.stop()
    await asyncio.sleep(0.1)
    stream.read_on()
    assert await refusal(call) is Reason.DRAINING
    assert len(stream.answers) == 20


async def test_stopping_does_not_wait_for_a_frontend_that_reads_nothing(fleet: Fleet) -> None:
    service = serving(fleet)
    call = begin(service, Stream(20, reading=False))
    await eventually(lambda: len(fleet.tickets) == 20)
    service.stop()
    assert await refusal(call) is Reason.DRAINING


async def test_a_router_that_does_not_know_the_cluster_refuses_sessions(fleet: Fleet) -> None:
    assert (
        await refusal(
            begin(RouterService(QueryDispatcher(PlacementService(fleet), NO_GATE)), Stream(1))
        )
        is Reason.UNAVAILABLE
    )


async def test_a_cancelled_call_leaves_no_task_and_no_ticket(
    fleet: Fleet, tasks_of_tests: Collection[asyncio.Task[Any]]
) -> None:
    # Not all tasks: services that other tests share run in this event loop too.
    before = [task for task in tasks_of_tests if not task.done()]
    call = begin(serving(fleet), Stream(50))
    await eventually(lambda: len(fleet.tickets) == 50)
    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call
    assert len(fleet.tickets) == 0
    after = [task for task in tasks_of_tests if not task.done()]
    assert set(after) == set(before)


@pytest.mark.parametrize("version", [0, VERSION + 2])
async def test_a_frontend_of_another_protocol_is_refused(fleet: Fleet, version: int) -> None:
    stream = Stream(1)
    stream.hello.protocol_version = version
    assert await refusal(begin(serving(fleet), stream)) is Reason.PROTOCOL_MISMATCH
    assert not stream.answers
