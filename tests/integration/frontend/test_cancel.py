"""Clients that leave, at every stage: everything comes back within a second."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import grpc
import pytest

from baton.errors import BatonError, Reason
from baton.v1 import common_pb2, inference_pb2
from tests.support.wait import eventually


def generate(stage: Any, max_tokens: int = 4000, n: int = 1) -> inference_pb2.GenerateRequest:
    request = inference_pb2.GenerateRequest(text="x" * 40, n=n)
    request.context.model = stage.model
    request.sampling.max_tokens = max_tokens
    return request


def held(stage: Any) -> float:
    """What the frontend's gauges say that it holds."""
    gauges = ("requests_active", "tickets", "worker_streams")
    return sum(stage.frontend.sample(f"baton_frontend_{name}") for name in gauges)


async def rest(call: Any) -> list[Any]:
    """What still comes of a call."""
    events = []
    while (event := await call.read()) is not grpc.aio.EOF:
        events.append(event)
    return events


async def while_placed(stage: Any, call: Any) -> None:
    stage.router.answers.clear()
    await asyncio.sleep(0.05)


async def while_prefilling(stage: Any, call: Any) -> None:
    await eventually(lambda: bool(stage.worker("p0").streams))


async def while_decoding(stage: Any, call: Any) -> None:
    stage.worker("p0").script.first_token.set()
    for _ in range(20):
        await call.read()


STAGES = (while_placed, while_prefilling, while_decoding)


@pytest.mark.parametrize(("until", "n"), [*((until, 3) for until in STAGES), (while_decoding, 1)])
async def test_a_client_that_cancels(
    stage: Any, until: Callable[[Any, Any], Awaitable[None]], n: int
) -> None:
    stage.worker("p0").script.first_token.clear()
    if until is while_placed:
        stage.router.answers.clear()
    call = stage.stub().Generate(generate(stage, n=n))
    await until(stage, call)
    if until is while_decoding:  # the frontend has heard that prefill ended
        await eventually(lambda: stage.frontend.sample("baton_frontend_worker_streams") == n)
    assert held(stage) > 0
    call.cancel()
    await stage.quiet()
    await eventually(lambda: held(stage) == 0, 1.0)
    if until is not while_placed:
        assert stage.worker("d0").kinds().count("cancel") == n
        assert stage.worker("p0").kinds() == (
            ["prefill", "cancel"] if until is while_prefilling else ["prefill"]
        )


@pytest.mark.parametrize("until", STAGES)
async def test_a_deadline_that_passes(
    stage: Any, until: Callable[[Any, Any], Awaitable[None]]
) -> None:
    stage.worker("p0").script.first_token.clear()
    if until is while_placed:
        stage.router.answers.clear()
    call = stage.stub().Generate(generate(stage), timeout=0.4)
    await until(stage, call)
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await rest(call)
    assert caught.value.code() is grpc.StatusCode.DEADLINE_EXCEEDED
    await stage.quiet()
    await eventually(lambda: held(stage) == 0, 1.0)


async def test_the_deadline_travels_to_the_workers(stage: Any) -> None:
    call = stage.stub().Generate(generate(stage, 3), timeout=50.0)
    assert [event async for event in call]
    for worker in (stage.worker("p0"), stage.worker("d0")):
        # gRPC rounds timeouts up.
        assert 40 < worker.starts()[0].timeout.ToTimedelta().total_seconds() < 51


async def test_a_ticket_that_comes_too_late_is_given_back(stage: Any) -> None:
    stage.router.answers.clear()
    call = stage.stub().Generate(generate(stage))
    await asyncio.sleep(0.05)
    call.cancel()
    await eventually(lambda: held(stage) == 0, 1.0)
    stage.router.answers.set()  # it answers somebody who has gone
    await eventually(lambda: len(stage.router.queries) == 1)
    await stage.quiet()


@pytest.mark.parametrize("until", STAGES)
async def test_an_http_client_that_disconnects(
    stage: Any, until: Callable[[Any, Any], Awaitable[None]]
) -> None:
    for stream in (b"true", b"false"):
        stage.worker("p0").script.first_token.clear()
        if until is while_placed:
            stage.router.answers.clear()
        host, port = stage.http_url.removeprefix("http://").split(":")
        reader, writer = await asyncio.open_connection(host, int(port))
        body = b'{"model":"%s","prompt":"xxxx","max_tokens":4000,"stream":%s}' % (
            stage.model.encode(),
            stream,
        )
        writer.write(
            b"POST /v1/completions HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\n"
            b"content-length: %d\r\n\r\n%s" % (len(body), body)
        )
        if until is while_decoding:
            stage.worker("p0").script.first_token.set()
            await eventually(lambda: "generate" in stage.worker("d0").kinds())
            if stream == b"true":
                assert b"200 OK" in await reader.readline()
        else:
            await until(stage, None)
        writer.close()
        await stage.quiet()
        await eventually(lambda: held(stage) == 0, 1.0)
        stage.worker("d0").frames.clear()


async def test_one_of_200_is_cancelled_and_the_others_lose_nothing(stage: Any) -> None:
    stage.worker("d0").script.step_seconds = 0.02
    stub, total = stage.stub(), 30
    cancelled = stub.Generate(generate(stage))

    async def read(call: Any) -> str:
        return "".join([event.delta.text async for event in call])

    others = [asyncio.create_task(read(stub.Generate(generate(stage, total)))) for _ in range(199)]
    for _ in range(10):
        await cancelled.read()
    cancelled.cancel()
    async with asyncio.timeout(20.0):
        assert set(await asyncio.gather(*others)) == {stage.said(0, total)}
    assert stage.worker("d0").calls == 1
    assert stage.worker("d0").kinds().count("cancel") == 1
    await stage.quiet()
    await eventually(lambda: held(stage) == 0, 1.0)


async def test_a_draining_frontend_ends_what_runs_and_takes_nothing_new(stage: Any) -> None:
    stub = stage.stub()
    stage.worker("d0").script.step_seconds = 0.01
    running = stub.Generate(generate(stage, 30))
    await running.read()
    drained = asyncio.create_task(stage.frontend.process.drain(5.0))
    await asyncio.sleep(0.05)
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await stub.Generate(generate(stage)).read()
    assert BatonError.from_rpc_error(caught.value).reason is Reason.DRAINING
    assert not drained.done()
    events = await rest(running)
    assert events[-1].HasField("finished")
    assert events[-2].choice_finished.reason == common_pb2.FINISH_REASON_LENGTH
    await drained


async def test_a_stream_that_outlives_the_drain_is_told_so(stage: Any) -> None:
    stage.worker("d0").script.step_seconds = 0.01
    host, port = stage.http_url.removeprefix("http://").split(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    body = b'{"model":"%s","prompt":"x","max_tokens":4000,"stream":true}' % stage.model.encode()
    writer.write(
        b"POST /v1/completions HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\n"
        b"content-length: %d\r\n\r\n%s" % (len(body), body)
    )
    await reader.readuntil(b'"text":"c"')
    call = stage.stub().Generate(generate(stage))
    await call.read()
    await stage.frontend.process.drain(0.1)
    await stage.frontend.stop(drain=False)
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await rest(call)
    assert BatonError.from_rpc_error(caught.value).reason is Reason.DRAINING
    async with asyncio.timeout(2.0):
        assert b'"code":"draining"' in await reader.read()
    writer.close()
    await stage.quiet()
