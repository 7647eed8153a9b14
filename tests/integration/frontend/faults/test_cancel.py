"""Clients that leave, at every stage: everything comes back within a second."""

import asyncio
import json
import threading
from collections.abc import Awaitable, Callable
from typing import Any

import grpc
import pytest

from baton.errors import BatonError, Reason
from baton.v1 import inference_pb2
from services.frontend.text.tokenizer import LONG_CHARACTERS, Tokenizer, TokenizerThreads
from tests.support.clock import within
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
    await eventually(lambda: stage.router.waiting)


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
    call = stage.stub().Generate(generate(stage), timeout=1.0)
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
    await eventually(lambda: stage.router.waiting)
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


LONG = "x" * (2 * LONG_CHARACTERS)


async def leave_by_http(stage: Any, path: str) -> Callable[[], None]:
    host, port = stage.http_url.removeprefix("http://").split(":")
    _, writer = await asyncio.open_connection(host, int(port))
    body = json.dumps({"model": stage.model, "prompt": LONG}).encode()
    writer.write(
        b"POST %b HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\n"
        b"content-length: %d\r\n\r\n%b" % (path.encode(), len(body), body)
    )
    return writer.close


async def leave_by_grpc(stage: Any, method: str) -> Callable[[], None]:
    request = inference_pb2.GenerateRequest(text=LONG)
    request.context.model = stage.model
    if method == "Tokenize":
        return (
            stage.stub()
            .Tokenize(inference_pb2.TokenizeRequest(model=stage.model, text=LONG))
            .cancel
        )
    if method == "Generate":
        return stage.stub().Generate(request).cancel
    call = stage.stub().Session()
    await call.write(inference_pb2.SessionRequest(starts=[{"id": 1, "generate": request}]))
    return call.cancel


@pytest.mark.parametrize(
    ("ask", "what"),
    [
        (leave_by_http, "/v1/completions"),
        (leave_by_http, "/v1/tokenize"),
        (leave_by_grpc, "Generate"),
        (leave_by_grpc, "Tokenize"),
        (leave_by_grpc, "Session"),
    ],
)
async def test_a_client_that_leaves_while_its_prompt_waits_to_be_tokenized(
    stage: Any,
    monkeypatch: pytest.MonkeyPatch,
    ask: Callable[[Any, str], Awaitable[Callable[[], None]]],
    what: str,
) -> None:
    queued, tokenized, go_on = [0], [0], threading.Event()
    run = TokenizerThreads.run

    async def counted(threads: TokenizerThreads, *work: Any) -> Any:
        queued[0] += 1
        try:
            return await run(threads, *work)
        finally:
            queued[0] -= 1

    def encode(*_: Any, **__: Any) -> list[int]:
        tokenized[0] += 1
        assert go_on.wait(30)
        return [1]

    monkeypatch.setattr(TokenizerThreads, "run", counted)
    monkeypatch.setattr(Tokenizer, "encode", encode)
    first = stage.stub().Generate(
        inference_pb2.GenerateRequest(text=LONG, context={"model": stage.model})
    )
    try:
        await eventually(lambda: tokenized[0] == 1)
        leave = await ask(stage, what)
        await eventually(lambda: queued[0] == 2)
        leave()
        await eventually(lambda: queued[0] == 1)
    finally:
        go_on.set()
    await first.read()
    first.cancel()
    await eventually(lambda: held(stage) == 0)
    assert tokenized[0] == 1
    await stage.quiet()


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
    async with within(20.0):
        assert set(await asyncio.gather(*others)) == {stage.said(0, total)}
    assert stage.worker("d0").calls == 1
    assert stage.worker("d0").kinds().count("cancel") == 1
    await stage.quiet()
    await eventually(lambda: held(stage) == 0, 1.0)


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
    async with within(2.0):
        assert b'"code":"draining"' in await reader.read()
    writer.close()
    await stage.quiet()
