"""One Place stream from the inside: bounds, order at the end, who is cut off and why."""

import asyncio
from collections.abc import AsyncIterator, Collection
from typing import Any

import pytest

from baton.errors import BatonError, Reason
from baton.internal.v1 import cluster_pb2, router_pb2
from baton.internal.v1.worker_pb2 import LoadReport
from baton.rpc.protocol import hello
from baton.settings import RouterLimits
from services.router.api.service import RouterService
from services.router.api.session import MAX_ANSWERS_PER_MESSAGE
from services.router.prefix_index.index import PrefixIndex
from services.router.state.fleet import Fleet
from services.router.state.tickets import TicketTable

LAYOUT = b"L" * 16

MAX_ANSWERS = RouterLimits().max_answers


class Stream:
    """The gRPC side of a Place call: questions to read, and answers, taken while `reading`."""

    def __init__(self, questions: int, *, reading: bool = True, ends: bool = False) -> None:
        self.asked = 0
        self.hello = hello()
        self.answers: list[router_pb2.FrameFromRouter] = []
        self._questions = questions
        self._reading = asyncio.Event()
        self._ends = ends
        if reading:
            self._reading.set()

    def read_on(self) -> None:
        self._reading.set()

    async def frames(self) -> AsyncIterator[router_pb2.PlaceRequest]:
        yield router_pb2.PlaceRequest(frames=[router_pb2.FrameToRouter(hello=self.hello)])
        while self.asked < self._questions:
            self.asked += 1
            query = router_pb2.PlaceQuery(
                correlation_id=self.asked, prompt_tokens=100, max_tokens=10
            )
            query.context.model = "m"
            yield router_pb2.PlaceRequest(frames=[router_pb2.FrameToRouter(query=query)])
        if not self._ends:
            await asyncio.Event().wait()

    async def write(self, message: router_pb2.PlaceResponse) -> None:
        await self._reading.wait()
        self.answers.extend(frame for frame in message.frames if not frame.HasField("hello"))


@pytest.fixture
def fleet() -> Fleet:
    fleet = Fleet(PrefixIndex(), TicketTable("r"))
    card = cluster_pb2.ModelCard(name="m", layout_id=LAYOUT, block_tokens=16, block_bytes=1000)
    fleet.set_model_cards([card])
    fleet.put(
        cluster_pb2.Instance(id="d1", role=cluster_pb2.ROLE_DECODE, model="m", layout_id=LAYOUT)
    )
    fleet.apply_report(LoadReport(instance_id="d1", free_pages=100, total_pages=100))
    return fleet


def serving(fleet: Fleet, **options: Any) -> RouterService:
    service = RouterService(fleet, **options)
    service.open()
    return service


async def refusal(call: "asyncio.Task[None]", limit: float = 3.0) -> Reason:
    with pytest.raises(BatonError) as refused:
        async with asyncio.timeout(limit):
            await call
    return refused.value.reason


def begin(service: RouterService, stream: Stream) -> "asyncio.Task[None]":
    return asyncio.create_task(service.Place(stream.frames(), stream))


async def test_a_frontend_that_reads_nothing_is_read_no_further_and_then_cut_off(
    fleet: Fleet,
) -> None:
    stream = Stream(10 * MAX_ANSWERS, reading=False)
    call = begin(serving(fleet, limits=RouterLimits(stall_seconds=0.2)), stream)
    await asyncio.sleep(0.1)
    assert not call.done()
    # What is kept, one message in the writer's hand, one answer in the reader's.
    assert stream.asked <= MAX_ANSWERS + MAX_ANSWERS_PER_MESSAGE + 1
    assert await refusal(call) is Reason.SLOW_CONSUMER
    assert len(fleet.tickets) == 0


async def test_a_frontend_that_reads_on_in_time_gets_every_answer_in_order(fleet: Fleet) -> None:
    count = 3 * MAX_ANSWERS
    stream = Stream(count, reading=False, ends=True)
    call = begin(serving(fleet, limits=RouterLimits(stall_seconds=5.0)), stream)
    await asyncio.sleep(0.1)
    stream.read_on()
    async with asyncio.timeout(10):
        await call
    answered = [
        answer.placement.correlation_id or answer.failed.correlation_id for answer in stream.answers
    ]
    assert answered == list(range(1, count + 1))


async def test_stopping_sends_what_is_answered_and_says_draining(fleet: Fleet) -> None:
    service = serving(fleet)
    stream = Stream(20)
    call = begin(service, stream)
    await asyncio.sleep(0.05)
    service.stop()
    assert await refusal(call) is Reason.DRAINING
    assert len(stream.answers) == 20
    assert await refusal(begin(service, Stream(1))) is Reason.DRAINING


async def test_a_frontend_that_reads_a_moment_later_still_gets_its_answers(fleet: Fleet) -> None:
    service = serving(fleet)
    stream = Stream(20, reading=False)
    call = begin(service, stream)
    await asyncio.sleep(0.05)
    service.stop()
    await asyncio.sleep(0.1)
    stream.read_on()
    assert await refusal(call) is Reason.DRAINING
    assert len(stream.answers) == 20


async def test_stopping_does_not_wait_for_a_frontend_that_reads_nothing(fleet: Fleet) -> None:
    service = serving(fleet)
    call = begin(service, Stream(20, reading=False))
    await asyncio.sleep(0.05)
    service.stop()
    assert await refusal(call) is Reason.DRAINING


async def test_a_router_that_does_not_know_the_cluster_refuses_sessions(fleet: Fleet) -> None:
    assert await refusal(begin(RouterService(fleet), Stream(1))) is Reason.UNAVAILABLE


async def test_a_cancelled_call_leaves_no_task_and_no_ticket(
    fleet: Fleet, tasks_of_tests: Collection[asyncio.Task[Any]]
) -> None:
    # Not all tasks: services that other tests share run in this event loop too.
    before = [task for task in tasks_of_tests if not task.done()]
    call = begin(serving(fleet), Stream(50))
    await asyncio.sleep(0.05)
    assert len(fleet.tickets) == 50
    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call
    assert len(fleet.tickets) == 0
    after = [task for task in tasks_of_tests if not task.done()]
    assert set(after) == set(before)


@pytest.mark.parametrize("version", [0, 3])
async def test_a_frontend_of_another_protocol_is_refused(fleet: Fleet, version: int) -> None:
    stream = Stream(1)
    stream.hello.protocol_version = version
    assert await refusal(begin(serving(fleet), stream)) is Reason.PROTOCOL_MISMATCH
    assert not stream.answers
