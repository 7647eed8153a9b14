"""A session without a socket: what leaves in which message, and what a slow reader may cost."""

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from baton.errors import BatonError, Reason
from baton.request.stream_events import (
    ChoiceFinished,
    Delta,
    Finished,
    FinishReason,
    Started,
    Usage,
)
from baton.settings import FrontendLimits
from baton.tenancy.directory.principal import LOCAL
from baton.v1 import inference_pb2
from services.frontend.grpc.session.outgoing import Outgoing
from services.frontend.grpc.session.session import (
    BEGIN_PER_TURN,
    MAX_CANCELS,
    MESSAGE_BYTES,
    GrpcSession,
)
from services.frontend.requests.record import RequestRecord
from tests.support.clock import DEADLINE_SECONDS
from tests.support.doubles.call import ScriptedCall
from tests.support.examples import examples
from tests.support.wait import eventually

FINISHED = Finished(Usage(1, 0, 1, 1, 0.0, 0.0), ())


class Buffer:
    def __init__(self) -> None:
        self.paused = False

    def pause(self) -> None:
        self.paused = True

    def resume(self) -> None:
        self.paused = False


class Generation:
    """Says what the test tells it to."""

    def __init__(self) -> None:
        self.buffer = Buffer()
        self.closed = False
        self.reason: Reason | None = None
        self.sink: Callable[[list[Any]], bool]
        self.over: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    async def follow(self, sink: Callable[[list[Any]], bool]) -> None:
        self.sink = sink
        sink([Started("r", "m", 1, 1)])
        await self.over

    def finish(self) -> None:
        self.sink([ChoiceFinished(0, FinishReason.STOP, ""), FINISHED])
        self.over.set_result(None)

    def failed(self, reason: Reason) -> None:
        self.reason = reason

    def close(self) -> None:
        self.closed = True


class Inference:
    draining = False
    limits = FrontendLimits()

    def __init__(self) -> None:
        self.generations: list[Generation] = []

    async def start(self, request: Any, record: RequestRecord, seconds: Any) -> Generation:
        self.generations.append(Generation())
        return self.generations[-1]


class Running:
    """A session that serves, and what is around it."""

    def __init__(self, most: int) -> None:
        self.inference, self.call = Inference(), ScriptedCall()
        inference: Any = self.inference
        self.session = GrpcSession(inference, self.call, most, lambda: LOCAL)
        self.serving = asyncio.create_task(self.session.serve())

    async def start(self, *ids: int) -> list[Generation]:
        """Begin requests and return what runs them; forget what was sent."""
        starts = [
            inference_pb2.SessionStart(id=number, generate=inference_pb2.GenerateRequest())
            for number in ids
        ]
        self.call.say(inference_pb2.SessionRequest(starts=starts))
        await self.turn()
        self.call.sent.clear()
        return self.inference.generations[-len(ids) :]

    async def turn(self) -> None:
        for _ in range(5):
            await asyncio.sleep(0)


@pytest.fixture
async def serve() -> AsyncIterator[Callable[..., Any]]:
    served: list[Running] = []

    async def start(most: int = 8) -> Running:
        served.append(Running(most))
        await served[-1].turn()
        return served[-1]

    yield start
    for one in served:
        one.serving.cancel()
        await asyncio.wait([one.serving])


def delta(position: int, text: str = "x", choice: int = 0) -> Delta:
    return Delta(choice, position, [position + 5], text, ())


async def test_one_turn_is_one_message(serve: Any) -> None:
    running = await serve()
    assert running.call.sent[0].limits.max_requests == 8
    generations = await running.start(3, 4, 5)
    for generation in generations:
        generation.sink([delta(0)])
    generations[0].sink([delta(1, "y")])
    generations[1].finish()
    await running.turn()
    (message,) = running.call.sent
    assert list(message.deltas.ids) == [3, 4, 5, 3]
    assert list(message.deltas.positions) == [0, 0, 0, 1]
    assert list(message.deltas.token_ids) == [5, 5, 5, 6]
    assert list(message.deltas.texts) == ["x", "x", "x", "y"]
    assert not message.deltas.choices
    assert not message.deltas.token_counts
    assert [event.id for event in message.events] == [4, 4]
    assert generations[1].closed


async def test_many_starts_begin_over_several_turns_and_all_else_comes_behind_them(
    serve: Any,
) -> None:
    running = await serve(1000)
    count = 3 * BEGIN_PER_TURN
    starts = [
        inference_pb2.SessionStart(id=number, generate=inference_pb2.GenerateRequest())
        for number in range(count)
    ]
    running.call.say(inference_pb2.SessionRequest(starts=starts, cancels=[count - 1]))
    assert running.call.held
    running.call.half_close()
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert BEGIN_PER_TURN <= len(running.inference.generations) < count
    await eventually(lambda: len(running.inference.generations) >= count - 1)
    await running.turn()
    assert not running.call.held
    assert not running.serving.done()
    for generation in running.inference.generations:
        generation.finish()
    await running.serving
    errors = [
        event for said in running.call.sent for event in said.events if event.HasField("error")
    ]
    assert [event.id for event in errors] == [count - 1]


async def test_cancels_of_one_message_are_bounded(serve: Any) -> None:
    running = await serve()
    running.call.say(inference_pb2.SessionRequest(cancels=range(MAX_CANCELS)))
    with pytest.raises(BatonError) as refused:
        running.call.say(inference_pb2.SessionRequest(cancels=range(MAX_CANCELS + 1)))
    assert (refused.value.reason, refused.value.field) == (Reason.INVALID_FIELD, "cancels")


async def test_what_follows_an_event_stays_behind_it() -> None:
    outgoing = Outgoing()
    outgoing.add(1, [Delta(0, 0, [1, 2], "ab", ()), delta(7, choice=1)])
    outgoing.add(1, [ChoiceFinished(0, FinishReason.STOP, ""), delta(8, choice=1)])
    outgoing.add(2, [delta(0)])
    message = outgoing.message()
    assert list(message.deltas.ids) == [1, 1, 2]
    assert list(message.deltas.choices) == [0, 1, 0]
    assert list(message.deltas.token_counts) == [2, 1, 1]
    assert [event.WhichOneof("event") for event in message.events] == ["choice_finished", "delta"]
    assert 0.5 < outgoing.size / message.ByteSize() < 2


async def test_all_requests_pause_while_the_client_does_not_read(serve: Any) -> None:
    running = await serve()
    first, second = await running.start(1, 2)
    running.call.takes = 0
    first.sink([delta(0)])
    await running.turn()
    assert first.buffer.paused
    assert second.buffer.paused
    (third,) = await running.start(3)
    assert third.buffer.paused
    running.call.read_on()
    assert not any(one.buffer.paused for one in running.inference.generations)


async def test_what_waited_leaves_in_messages_of_bounded_size(serve: Any) -> None:
    running = await serve()
    generations = await running.start(1, 2, 3)
    running.call.on_pause()
    running.call.takes = 0
    kept = delta(0, "x" * (MESSAGE_BYTES // 2))
    for generation in generations:
        generation.buffer.resume = lambda one=generation: one.sink([kept])  # type: ignore[misc]
    running.call.on_resume()
    await running.turn()
    (message,) = running.call.sent  # of two: then it had to pause again
    assert list(message.deltas.ids) == [1, 2]
    running.call.sent.clear()
    running.call.on_resume()
    await running.turn()
    (message,) = running.call.sent  # the one that was left came first
    assert list(message.deltas.ids) == [3, 1]


async def test_a_client_that_begins_requests_and_reads_nothing_is_cut(serve: Any) -> None:
    running = await serve(2)
    running.call.on_pause()
    for number in range(3):
        running.call.say(
            inference_pb2.SessionRequest(starts=[inference_pb2.SessionStart(id=number)])
        )
        await running.turn()
    with pytest.raises(BatonError) as caught:
        await running.serving
    assert caught.value.reason is Reason.SLOW_CONSUMER


async def test_the_end_of_the_call_closes_every_request(serve: Any) -> None:
    running = await serve()
    generations = await running.start(1, 2)
    running.serving.cancel()
    await asyncio.wait([running.serving])
    assert all(generation.closed for generation in generations)
    assert {generation.reason for generation in generations} == {Reason.CANCELLED}


OPERATIONS = st.lists(
    st.tuples(
        st.sampled_from(["start", "cancel", "say", "finish", "pause", "resume", "turn"]),
        st.integers(0, 5),
    ),
    max_size=60,
)


@settings(max_examples=examples(40))
@given(OPERATIONS)
def test_whatever_clients_do_each_request_has_one_end(operations: list[tuple[str, int]]) -> None:
    async def play() -> None:
        running = Running(4)
        await running.turn()
        messages, generations = running.call.sent, running.inference.generations
        started = 0
        for operation, number in operations:
            live = [one for one in generations if not one.closed and not one.over.done()]
            if operation == "start":
                started += 1
                start = inference_pb2.SessionStart(id=number)
                start.generate.SetInParent()
                running.call.say(inference_pb2.SessionRequest(starts=[start]))
            elif operation == "cancel":
                running.call.say(inference_pb2.SessionRequest(cancels=[number]))
            elif operation == "pause":
                running.call.on_pause()
            elif operation == "resume":
                running.call.on_resume()
            elif operation == "turn":
                await running.turn()
            elif live:
                one = live[number % len(live)]
                if operation == "say":
                    one.sink([delta(0)])
                else:
                    one.finish()
            if running.serving.done():  # it began too many while paused
                break
        await running.turn()
        for one in generations:
            if not one.closed:
                one.finish()
        running.call.half_close()
        await asyncio.wait([running.serving], timeout=DEADLINE_SECONDS)
        assert running.serving.done()
        assert all(one.closed for one in generations)
        if running.serving.exception() is None:
            check(messages, started)

    asyncio.run(play())


def check(messages: list[inference_pb2.SessionResponse], started: int) -> None:
    """Whatever is said of an id lies between its Started and its one end."""
    open_ids: set[int] = set()
    ends = 0
    for message in messages:
        assert open_ids.issuperset(message.deltas.ids)
        for event in message.events:
            kind = event.WhichOneof("event")
            if kind == "started":
                assert event.id not in open_ids
                open_ids.add(event.id)
            elif kind == "error":
                open_ids.discard(event.id)
                ends += 1
            elif kind == "finished":
                open_ids.remove(event.id)
                ends += 1
            else:
                assert event.id in open_ids
    assert not open_ids
    assert ends <= started
