"""Both clients against a frontend that follows a script."""

import asyncio
import socket
import threading
from typing import Any

import grpc
import pytest

from baton.client import (
    BatonClientError,
    ChoiceFinished,
    ConnectionFailedError,
    ContextLengthError,
    DeadlineError,
    Delta,
    Finished,
    InternalError,
    NotFoundError,
    Started,
    StreamClosedError,
    UnavailableError,
)
from baton.errors import BatonError, Reason
from baton.v1 import common_pb2, inference_pb2
from tests.support.clock import DEADLINE_SECONDS, Stopwatch
from tests.support.network.proxy import TcpProxy
from tests.support.wait import wait_for

Response = inference_pb2.GenerateResponse


def started() -> Response:
    return Response(started=inference_pb2.Started(request_id="r1", model="tiny", seed=7))


def delta(position: int, token: int, text: str) -> Response:
    return Response(delta=inference_pb2.Delta(position=position, token_ids=[token], text=text))


def ending() -> list[Response]:
    ended = inference_pb2.ChoiceFinished(reason=common_pb2.FINISH_REASON_STOP)
    step = common_pb2.Step(name="decode", instance="decode-0", tokens=2)
    usage = common_pb2.Usage(prompt_tokens=3, cached_tokens=1, output_tokens=2)
    return [
        Response(choice_finished=ended),
        Response(finished=inference_pb2.Finished(usage=usage, steps=[step])),
    ]


def whole() -> list[Response]:
    return [started(), delta(0, 5, "a"), delta(1, 6, "b"), *ending()]


async def test_events_arrive_in_order(serve: Any, connect: Any) -> None:
    frontend, address = serve(whole())
    face = connect(address, timeout=20.0)
    stream = face.client.generate("once", model="tiny", request_id="r1", max_tokens=2)
    events = [event async for event in face.events(stream)]
    assert [type(event) for event in events] == [Started, Delta, Delta, ChoiceFinished, Finished]
    assert (stream.text, stream.token_ids, stream.request_id) == ("ab", (5, 6), "r1")
    assert events[-1].usage.cached_tokens == 1
    assert frontend.metadata[0]["x-request-id"] == "r1"
    assert 0 < frontend.timeouts[0] < 21.0  # the wire rounds up


async def test_whole_answers(serve: Any, connect: Any) -> None:
    _, address = serve(whole())
    face = connect(address)
    answer = await face.call(face.client.generate("once", model="tiny").answer)
    assert (answer.text, answer.token_ids) == ("ab", (5, 6))
    assert answer.steps[0].instance == "decode-0"


async def test_models_and_tokens(serve: Any, connect: Any) -> None:
    frontend, address = serve(whole())
    face = connect(address)
    (model,) = await face.call(face.client.models)
    assert (model.name, model.context_tokens, model.features) == ("tiny", 64, ("logprobs",))
    tokens = await face.call(face.client.tokenize, "hi", model="tiny", timeout=5.0)
    assert tokens.token_ids == (104, 105)
    assert 0 < frontend.timeouts[1] < 6.0  # the wire rounds up


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (
            BatonError(Reason.CONTEXT_LENGTH_EXCEEDED, "9 > 8 tokens", field="prompt"),
            ContextLengthError,
        ),
        (BatonError(Reason.MODEL_NOT_FOUND, "no model 'x'", field="model"), NotFoundError),
        (BatonError(Reason.INTERNAL, "internal error"), InternalError),
    ],
    ids=["context", "model", "internal"],
)
async def test_errors_are_typed(
    serve: Any, connect: Any, error: BatonError, expected: type[BatonClientError]
) -> None:
    frontend, address = serve([error])
    face = connect(address)
    with pytest.raises(expected) as caught:
        await face.call(face.client.generate("once", model="x", request_id="r9").answer)
    assert caught.value.reason == error.reason.name
    assert caught.value.field == error.field
    assert caught.value.request_id == "r9"
    assert str(caught.value) == error.message
    assert len(frontend.requests) == 1


async def test_unavailable_is_tried_again_after_the_wait_asked_for(
    serve: Any, connect: Any
) -> None:
    refusal = BatonError(Reason.OVERLOADED, "full", retry_after=0.3)
    frontend, address = serve([refusal], whole())
    face = connect(address)
    begun = asyncio.get_running_loop().time()
    answer = await face.call(face.client.generate("once", model="tiny").answer)
    assert answer.text == "ab"
    assert asyncio.get_running_loop().time() - begun >= 0.3
    first, second = frontend.requests
    assert (first.context.attempt, second.context.attempt) == (0, 1)
    second.context.attempt = 0
    assert first == second


async def test_unary_calls_are_tried_again(serve: Any, connect: Any) -> None:
    frontend, address = serve([BatonError(Reason.NO_WORKER, "none")], whole())
    face = connect(address)
    assert len(await face.call(face.client.models)) == 1
    assert len(frontend.requests) == 2


async def test_attempts_end(serve: Any, connect: Any) -> None:
    frontend, address = serve([BatonError(Reason.DRAINING, "going")])
    face = connect(address, retries=1)
    with pytest.raises(UnavailableError):
        await face.call(face.client.generate("once", model="tiny").answer)
    assert len(frontend.requests) == 2


async def test_a_lost_stream_is_an_error_that_is_not_repeated(serve: Any, connect: Any) -> None:
    frontend, address = serve([started(), delta(0, 5, "a"), grpc.StatusCode.UNAVAILABLE])
    face = connect(address)
    stream = face.client.generate("once", model="tiny")
    with pytest.raises(ConnectionFailedError):
        await face.call(stream.answer)
    assert stream.text == "a"
    assert len(frontend.requests) == 1


@pytest.mark.parametrize("lost", [grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.CANCELLED])
async def test_a_lost_stream_resumes_when_asked(
    serve: Any, connect: Any, lost: grpc.StatusCode
) -> None:
    frontend, address = serve(
        [started(), delta(0, 5, "a"), lost], [started(), delta(1, 6, "b"), *ending()]
    )
    face = connect(address)
    stream = face.client.generate("once", model="tiny", resume=True)
    events = [event async for event in face.events(stream)]
    assert [type(event) for event in events] == [Started, Delta, Delta, ChoiceFinished, Finished]
    assert stream.text == "ab"
    assert list(frontend.requests[1].resume.output_ids) == [5]
    assert frontend.requests[1].resume.seed == 7


async def test_a_stream_goes_on_elsewhere_when_its_frontend_freezes(
    serve: Any, connect: Any
) -> None:
    thawed = threading.Event()
    frozen, address = serve([started(), delta(0, 5, "a"), lambda: thawed.wait(60) and None])
    other, elsewhere = serve([started(), delta(1, 6, "b"), *ending()])
    async with TcpProxy(address) as proxy:
        face = connect(f"ipv4:{proxy.address},{elsewhere}")
        stream = face.client.generate("once", model="tiny", resume=True)
        try:
            watch, events = Stopwatch(), []
            async for event in face.events(stream):
                events.append(event)
                if isinstance(event, Delta) and not proxy.muted:
                    proxy.mute()
                    watch = Stopwatch()
            # Of gRPC's own threads and of two servers: on a quiet machine it takes 2.8 s.
            assert watch.seconds < 8
        finally:
            thawed.set()
    assert stream.text == "ab"
    assert (len(frozen.requests), list(other.requests[0].resume.output_ids)) == (1, [5])


async def test_an_unreachable_frontend_is_said_to_be(connect: Any) -> None:
    with socket.socket() as held:  # bound and not listening: connections are refused
        held.bind(("127.0.0.1", 0))
        face = connect(f"127.0.0.1:{held.getsockname()[1]}", retries=1)
        with pytest.raises(ConnectionFailedError):
            await face.call(face.client.models)


async def test_deadlines_hold(serve: Any, connect: Any) -> None:
    forever = threading.Event()
    _, address = serve([started(), lambda: forever.wait(20) and None])
    face = connect(address)
    try:
        with pytest.raises(DeadlineError, match="was not complete before the call's deadline"):
            await face.call(face.client.generate("once", model="tiny", timeout=0.3).answer)
    finally:
        forever.set()


async def test_leaving_a_stream_cancels_it_on_the_server(serve: Any, connect: Any) -> None:
    forever = threading.Event()
    frontend, address = serve([started(), lambda: forever.wait(20) and None])
    face = connect(address)
    try:
        events = face.events(face.client.generate("once", model="tiny"))
        assert isinstance(await anext(events), Started)
        await events.aclose()
        assert await asyncio.to_thread(frontend.ended.acquire, timeout=DEADLINE_SECONDS)
    finally:
        forever.set()


async def test_a_closed_stream_is_not_read(serve: Any, connect: Any) -> None:
    _, address = serve(whole())
    face = connect(address)
    stream = face.client.generate("once", model="tiny")
    stream.close()
    stream.close()
    with pytest.raises(StreamClosedError):
        await face.call(stream.answer)


async def test_a_stream_closed_by_another_reader_says_so(serve: Any, connect: Any) -> None:
    forever = threading.Event()
    frontend, address = serve([started(), lambda: forever.wait(20) and None])
    face = connect(address)
    stream = face.client.generate("once", model="tiny")
    reading = asyncio.create_task(face.call(stream.answer))
    try:
        assert await asyncio.to_thread(frontend.began.acquire, timeout=DEADLINE_SECONDS)
        await asyncio.sleep(0.05)  # the reader waits for what comes after Started
        stream.close()
        with pytest.raises(StreamClosedError):
            await wait_for(reading)
    finally:
        forever.set()


async def test_text_comes_piece_by_piece(serve: Any, connect: Any) -> None:
    _, address = serve(whole())
    face = connect(address)
    stream = face.client.generate("once", model="tiny")
    if face.kind == "async":
        pieces = [piece async for piece in stream.iter_text()]
    else:
        pieces = await asyncio.to_thread(lambda: list(stream.iter_text()))
    assert pieces == ["a", "b"]
