"""Session: many requests on one stream, each as a call of its own would be."""

import asyncio
from collections import defaultdict
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack
from typing import Any

import grpc
import pytest

from baton.client import AsyncClient, DeadlineError, NotFoundError
from baton.errors import BatonError, Reason
from baton.request.stream_events import Delta
from baton.rpc.channels import open_channel
from baton.rpc.server.server import Server
from baton.settings import FrontendLimits, GrpcSettings
from baton.v1 import inference_pb2
from baton.v1.inference_pb2_grpc import (
    InferenceServiceStub,
    add_InferenceServiceServicer_to_server,
)
from services.frontend.access.authenticator import NoAuthentication
from services.frontend.grpc.recording import INFERENCE
from services.frontend.grpc.servicer import InferenceServicer
from tests.support.clock import within
from tests.support.wait import eventually

PROMPT = "a prompt of some forty characters, in bytes."


def generate(stage: Any, max_tokens: int = 12, **fields: Any) -> inference_pb2.GenerateRequest:
    request = inference_pb2.GenerateRequest(text=PROMPT, **fields)
    request.context.model = stage.model
    request.sampling.max_tokens = max_tokens
    request.sampling.seed = 7
    return request


class Client:
    """Keeps what a session says, by request."""

    def __init__(self, call: Any) -> None:
        self.call = call
        self.limits: inference_pb2.SessionLimits | None = None
        self.messages: list[inference_pb2.SessionResponse] = []
        self.events: dict[int, list[inference_pb2.SessionEvent]] = defaultdict(list)
        self.error: BatonError | None = None
        self.over = asyncio.Event()
        self._reader: asyncio.Task[None] | None = None

    async def open(self) -> None:
        """Read until the limits are known."""
        first = await self.call.read()
        self.limits = first.limits
        self._reader = asyncio.create_task(self._read())

    async def start(self, request_id: int, request: Any, **fields: Any) -> None:
        kind = "chat" if isinstance(request, inference_pb2.ChatRequest) else "generate"
        start = inference_pb2.SessionStart(id=request_id, **{kind: request}, **fields)
        await self.call.write(inference_pb2.SessionRequest(starts=[start]))

    async def cancel(self, *ids: int) -> None:
        await self.call.write(inference_pb2.SessionRequest(cancels=ids))

    async def end(self, request_id: int) -> list[inference_pb2.SessionEvent]:
        """What a request said, once it has ended."""

        def ended() -> bool:
            events = self.events[request_id]
            return bool(events) and events[-1].WhichOneof("event") in ("finished", "error")

        await eventually(ended, 10.0)
        return self.events[request_id]

    async def reason(self, request_id: int) -> Reason:
        """Why a request failed."""
        last = (await self.end(request_id))[-1]
        assert last.HasField("error"), last
        return BatonError.from_status(last.error).reason

    async def begun(self, request_id: int) -> None:
        """Return once a request has had output."""
        said = self.events[request_id]
        await eventually(lambda: any(event.HasField("delta") for event in said), 10.0)

    async def _read(self) -> None:
        try:
            while (message := await self.call.read()) is not grpc.aio.EOF:
                self.messages.append(message)
                for event in expanded(message):
                    self.events[event.id].append(event)
        except grpc.aio.AioRpcError as error:
            self.error = BatonError.from_rpc_error(error)
        finally:
            self.over.set()


def expanded(message: inference_pb2.SessionResponse) -> list[inference_pb2.SessionEvent]:
    """The events of a message, columns first."""
    columns, at, events = message.deltas, 0, []
    count = len(columns.ids)
    assert len(columns.positions) == len(columns.texts) == count
    choices, counts = columns.choices or [0] * count, columns.token_counts or [1] * count
    for index in range(count):
        delta = inference_pb2.Delta(
            choice=choices[index],
            position=columns.positions[index],
            token_ids=columns.token_ids[at : at + counts[index]],
            text=columns.texts[index],
        )
        at += counts[index]
        events.append(inference_pb2.SessionEvent(id=columns.ids[index], delta=delta))
    assert at == len(columns.token_ids)
    return [*events, *message.events]


def said(events: list[Any], choice: int = 0) -> str:
    """The text of a choice; fails if a position is missing or comes twice."""
    text, at = "", 0
    for event in events:
        if event.HasField("delta") and event.delta.choice == choice:
            assert event.delta.position == at
            at += len(event.delta.token_ids)
            text += event.delta.text
    return text


def kinds(events: list[Any]) -> list[str]:
    """Kinds of events in order, runs of one kind once."""
    found: list[str] = []
    for event in events:
        kind = event.WhichOneof("event")
        if not found or found[-1] != kind:
            found.append(kind)
    return found


def endings(events: list[Any]) -> list[Any]:
    """How each choice ended, by choice."""
    ended = [event.choice_finished for event in events if event.HasField("choice_finished")]
    return sorted(ended, key=lambda one: int(one.choice))


@pytest.fixture
async def session(stage: Any) -> AsyncIterator[Callable[..., Any]]:
    """Open sessions with the stage's frontend."""
    calls = []

    async def open_session(**options: Any) -> Client:
        client = Client(stage.stub().Session(**options))
        calls.append(client)
        await client.open()
        return client

    yield open_session
    for client in calls:
        client.call.cancel()
        await client.over.wait()
    await stage.quiet()


async def test_answers_are_those_of_calls(stage: Any, session: Any) -> None:
    chat = inference_pb2.ChatRequest(
        messages=[inference_pb2.ChatMessage(role="user", content="hi")]
    )
    chat.context.model = stage.model
    chat.sampling.max_tokens = 5
    requests: dict[int, Any] = {
        1: generate(stage),
        2: generate(stage, n=2),
        3: generate(stage, 1),
        4: chat,
        5: generate(stage, 40),
    }
    requests[5].sampling.logprobs = 2
    for number, request in requests.items():
        request.context.request_id = f"call-{number}"
        request.sampling.seed = 7
    alone = {}
    for number, request in requests.items():
        rpc = stage.stub().Chat if number == 4 else stage.stub().Generate
        alone[number] = [event async for event in rpc(request)]
    client = await session()
    for number, request in requests.items():
        request.context.attempt = 1  # else an id runs once
        await client.start(number, request)
    for number, events in alone.items():
        same = await client.end(number)
        if requests[number].n < 2:  # else the choices' order is a race
            assert kinds(same) == kinds(events)
        assert same[0].started == events[0].started
        for choice in range(requests[number].n or 1):
            assert said(same, choice) == said(events, choice) != ""
        assert endings(same) == endings(events)
        logprobs = [entry for event in events for entry in event.delta.logprobs]
        assert [entry for event in same for entry in event.delta.logprobs] == logprobs
        assert same[-1].finished.usage.output_tokens == events[-1].finished.usage.output_tokens
    assert logprobs


async def test_cancelling_one_ends_only_that_one(stage: Any, session: Any) -> None:
    stage.worker("d0").script.step_seconds = 0.02
    client = await session()
    await client.start(1, generate(stage, 4000))
    await client.start(2, generate(stage, 30))
    await client.begun(1)
    await client.cancel(1, 99)
    assert await client.reason(1) is Reason.CANCELLED
    assert said(await client.end(2)) == stage.said(0, 30)
    await client.start(1, generate(stage, 3))  # the id is free again
    await eventually(lambda: kinds(client.events[1])[-1] == "finished", 10.0)
    await stage.quiet()


async def test_a_request_cancelled_as_it_begins_has_an_end(stage: Any, session: Any) -> None:
    client = await session()
    start = inference_pb2.SessionStart(id=1, generate=generate(stage, 4000))
    await client.call.write(inference_pb2.SessionRequest(starts=[start], cancels=[1]))
    assert await client.reason(1) is Reason.CANCELLED
    await stage.quiet()


async def test_the_deadline_of_one_is_its_own(stage: Any, session: Any) -> None:
    stage.worker("d0").script.step_seconds = 0.05
    client = await session()
    await client.start(1, generate(stage, 4000), timeout_seconds=0.3)
    await client.start(2, generate(stage, 12))
    assert await client.reason(1) is Reason.DEADLINE
    assert said(await client.end(2)) == stage.said(0, 12)


async def test_bad_input_is_refused_as_by_a_call(stage: Any, session: Any) -> None:
    client = await session()
    await client.start(0, generate(stage, 30))
    bad = [generate(stage) for _ in range(4)]
    bad[0].context.model = "no"
    bad[1].n = 129
    bad[2].text = "x" * 100_000
    bad[3].resume.seed = 4
    bad[3].n = 2
    for number, request in enumerate(bad, 1):
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await stage.stub().Generate(request).read()
        expected = BatonError.from_rpc_error(caught.value)
        await client.start(number, request)
        error = BatonError.from_status((await client.end(number))[-1].error)
        assert (error.reason, error.message, error.field, error.retry_after) == (
            expected.reason,
            expected.message,
            expected.field,
            expected.retry_after,
        )
    await client.call.write(inference_pb2.SessionRequest(starts=[inference_pb2.SessionStart(id=8)]))
    await client.start(9, generate(stage), timeout_seconds=-1.0)
    fields = []
    for number in (8, 9):
        error = BatonError.from_status((await client.end(number))[-1].error)
        assert error.reason is Reason.INVALID_FIELD
        fields.append(error.field)
    assert fields == ["request", "timeout_seconds"]
    assert said(await client.end(0)) == stage.said(0, 30)


async def test_an_id_that_is_used_twice_loses_both(stage: Any, session: Any) -> None:
    stage.worker("d0").script.step_seconds = 0.02
    client = await session()
    await client.start(1, generate(stage, 4000))
    await client.start(2, generate(stage, 20))
    await client.begun(1)
    await client.start(1, generate(stage))
    assert await client.reason(1) is Reason.ALREADY_EXISTS
    assert said(await client.end(2)) == stage.said(0, 20)


async def test_too_many_are_refused(empty_stage: Any) -> None:
    stage = empty_stage
    await stage.set({"limits.max_session_requests": 2})
    stage.worker("d0").script.step_seconds = 0.02
    client = Client(stage.stub().Session())
    await client.open()
    assert client.limits is not None
    assert client.limits.max_requests == 2
    for number in range(3):
        await client.start(number, generate(stage, 30))
    assert await client.reason(2) is Reason.NO_CAPACITY
    assert said(await client.end(0)) == stage.said(0, 30)
    await client.end(1)
    await client.start(2, generate(stage, 3))
    await eventually(lambda: kinds(client.events[2])[-1] == "finished", 10.0)
    client.call.cancel()
    await client.over.wait()


async def test_a_client_that_says_no_more_gets_the_rest(stage: Any, session: Any) -> None:
    client = await session()
    await client.start(1, generate(stage, 30))
    await client.call.done_writing()
    async with within(10.0):
        await client.over.wait()
    assert client.error is None
    assert said(client.events[1]) == stage.said(0, 30)
    assert kinds(client.events[1])[-1] == "finished"


async def test_draining_lets_open_requests_end(stage: Any, session: Any) -> None:
    stage.worker("d0").script.step_seconds = 0.03
    client, idle = await session(), await session()
    await client.start(1, generate(stage, 30))
    await client.begun(1)
    stopping = asyncio.create_task(stage.frontend.stop())
    async with within(10.0):
        await idle.over.wait()
    assert idle.error is not None
    assert idle.error.reason is Reason.DRAINING
    await client.start(2, generate(stage))
    assert await client.reason(2) is Reason.DRAINING
    assert said(await client.end(1)) == stage.said(0, 30)
    async with within(10.0):
        await client.over.wait()
    assert client.error is not None
    assert client.error.reason is Reason.DRAINING
    await stopping


async def test_a_session_that_is_dropped_gives_everything_back(stage: Any, session: Any) -> None:
    stage.worker("d0").script.step_seconds = 0.05
    client = await session()
    for number in range(6):
        await client.start(number, generate(stage, 4000))
    await client.begun(5)
    client.call.cancel()
    await stage.quiet()
    await eventually(lambda: stage.frontend.sample("baton_frontend_requests_active") == 0, 1.0)
    ended = {"surface": "grpc", "operation": "text_completion", "model": stage.model}
    ended |= {"adapter": "", "reason": Reason.CANCELLED.name}
    await eventually(lambda: stage.frontend.sample("baton_frontend_requests_total", **ended) == 6)


async def test_the_deadline_of_the_stream_is_that_of_all(stage: Any, session: Any) -> None:
    stage.worker("d0").script.step_seconds = 0.05
    client = await session(timeout=0.5)
    await client.start(1, generate(stage, 4000))
    async with within(10.0):
        await client.over.wait()
    assert client.error is not None
    assert client.error.reason is Reason.DEADLINE
    await stage.quiet()


async def test_each_request_has_a_record_and_an_id_of_its_own(stage: Any, session: Any) -> None:
    client = await session()
    named = generate(stage)
    named.context.request_id = "my-id"
    await client.start(1, named)
    await client.start(2, generate(stage))
    first, second = [(await client.end(number))[0].started.request_id for number in (1, 2)]
    assert first == "my-id"
    assert second.startswith("req-")
    assert {query.context.request_id for query in stage.router.queries} == {first, second}
    ended = {"surface": "grpc", "operation": "text_completion", "model": stage.model}
    ended |= {"adapter": "", "reason": "ok"}
    await eventually(lambda: stage.frontend.sample("baton_frontend_requests_total", **ended) == 2)


class EndlessGeneration:
    """Speaks while it is not paused, until it is closed."""

    def __init__(self) -> None:
        self.buffer = self
        self.said = 0
        self.reason: Reason | None = None
        self.closed = asyncio.Event()
        self._speaks = asyncio.Event()
        self._speaks.set()

    def pause(self) -> None:
        self._speaks.clear()

    def resume(self) -> None:
        self._speaks.set()

    async def follow(self, sink: Callable[[list[Delta]], bool]) -> None:
        while True:
            await self._speaks.wait()
            self.said += 16384
            sink([Delta(0, 0, (), "x" * 16384, ())])
            await asyncio.sleep(0)

    def failed(self, reason: Reason) -> None:
        self.reason = reason

    def close(self) -> None:
        self.closed.set()


class EndlessInference:
    """Answers every request with an endless generation."""

    draining = False
    limits = FrontendLimits()

    def __init__(self) -> None:
        self.generations: list[EndlessGeneration] = []

    def limits_of(self, _: Any) -> None:
        """Nobody has any."""

    async def start(self, *_: Any) -> EndlessGeneration:
        self.generations.append(EndlessGeneration())
        return self.generations[-1]


async def test_a_client_that_does_not_read_is_cut() -> None:
    inference: Any = EndlessInference()
    servicer = InferenceServicer(inference, NoAuthentication())
    async with AsyncExitStack() as stack:
        server = Server(GrpcSettings(), "frontend", stall_seconds=0.3)
        await stack.enter_async_context(server)
        server.add(lambda s: add_InferenceServiceServicer_to_server(servicer, s), INFERENCE)
        await server.start()
        channel = await stack.enter_async_context(open_channel(server.address))
        call = InferenceServiceStub(channel).Session()
        starts = [inference_pb2.SessionStart(id=number) for number in range(8)]
        for start in starts:
            start.generate.SetInParent()
        await call.write(inference_pb2.SessionRequest(starts=starts))
        await eventually(lambda: len(inference.generations) == 8)
        async with within(10.0):
            for generation in inference.generations:
                await generation.closed.wait()
        assert {one.reason for one in inference.generations} == {Reason.SLOW_CONSUMER}
        # The client's own window may have grown to some MiB meanwhile.
        assert sum(one.said for one in inference.generations) < 32 * 1024 * 1024
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            async with within(10.0):
                while await call.read() is not grpc.aio.EOF:
                    pass
        assert BatonError.from_rpc_error(caught.value).reason is Reason.SLOW_CONSUMER


async def test_the_client_gets_the_same_from_sessions_as_from_calls(stage: Any) -> None:
    options: dict[str, Any] = {"model": stage.model, "max_tokens": 30, "seed": 7}
    async with AsyncClient(stage.grpc_address) as client:
        alone = await client.generate(PROMPT, **options).answer()

        async def cancelled() -> None:
            async with client.generate(PROMPT, **{**options, "max_tokens": 4000}) as stream:
                async for _ in stream:
                    if len(stream.token_ids) >= 5:
                        return

        async def late() -> None:
            with pytest.raises(DeadlineError):
                await client.generate(
                    PROMPT, **{**options, "max_tokens": 4000}, timeout=0.3
                ).answer()

        async def refused() -> None:
            with pytest.raises(NotFoundError) as caught:
                await client.generate(PROMPT, model="no", request_id="r9").answer()
            assert (caught.value.field, caught.value.request_id) == ("model", "r9")

        others = [cancelled(), late(), refused(), late(), cancelled()]
        streams = [client.generate(PROMPT, **options) for _ in range(8)]
        answers, *_ = await asyncio.gather(
            asyncio.gather(*(stream.answer() for stream in streams)), *others
        )
        for answer in answers:
            assert (answer.text, answer.token_ids) == (alone.text, alone.token_ids)
            assert answer.usage.output_tokens == 30
    await eventually(lambda: sessions(stage, "CANCELLED") + sessions(stage, "OK") == 1)
    await stage.quiet()


def sessions(stage: Any, code: str) -> float:
    """Sessions that ended so."""
    method = "/baton.v1.InferenceService/Session"
    count: float = stage.frontend.sample("baton_rpc_calls_total", method=method, code=code)
    return count
