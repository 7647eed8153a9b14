"""Clients that read slowly get all of their answers; their streams wait at the workers."""

import asyncio
import json
import socket
from collections import defaultdict
from collections.abc import AsyncIterator
from typing import Any

import grpc
import pytest

from baton.errors import BatonError, Reason
from baton.v1 import inference_pb2
from baton.v1.inference_pb2_grpc import InferenceServiceStub
from tests.integration.frontend.conftest import Stage
from tests.support.clock import within
from tests.support.wait import eventually

CHOICES = 8
TOKENS = 400
"""Of each choice; eight of them with 20 alternatives each are 0.8 MB as messages, and 8 MB as
objects: more than all buffers on the way take."""
STALL_SECONDS = 0.5


def slow_stub(stage: Stage) -> Any:
    """A client of the frontend that reads no more ahead than it says; grpc takes megabytes else."""
    options = [("grpc.http2.bdp_probe", 0), ("grpc.http2.lookahead_bytes", 16 * 1024)]
    channel = grpc.aio.insecure_channel(stage.grpc_address, options)
    stage.stack.push_async_callback(channel.close, None)
    return InferenceServiceStub(channel)


def request_of(stage: Stage, **sampling: Any) -> inference_pb2.GenerateRequest:
    request = inference_pb2.GenerateRequest(text="x", n=CHOICES)
    request.context.model = stage.model
    fields = {"max_tokens": TOKENS, "logprobs": 20, "seed": 1} | sampling
    for name, value in fields.items():
        setattr(request.sampling, name, value)
    return request


def expected(stage: Stage) -> list[str]:
    return [stage.said(choice, TOKENS) for choice in range(CHOICES)]


class Reader:
    """The texts of a call's choices, read one message after the other."""

    def __init__(self, call: Any) -> None:
        self.call = call
        self.texts: dict[int, str] = defaultdict(str)
        self.logprobs: dict[int, int] = defaultdict(int)

    async def read(self, count: int = 1 << 60, sleep: float = 0.0) -> bool:
        """Read so many messages; return whether more may come."""
        for _ in range(count):
            event = await self.call.read()
            if event is grpc.aio.EOF:
                return False
            self.texts[event.delta.choice] += event.delta.text
            self.logprobs[event.delta.choice] += len(event.delta.logprobs)
            assert all(len(one.top) == 20 for one in event.delta.logprobs)
            if sleep:
                await asyncio.sleep(sleep)
        return True

    def check(self, stage: Stage) -> None:
        assert [self.texts[choice] for choice in range(CHOICES)] == expected(stage)
        assert [self.logprobs[choice] for choice in range(CHOICES)] == [TOKENS] * CHOICES


async def paused(stage: Stage) -> None:
    """Wait until all streams of a request wait at the first decode worker."""
    worker = stage.worker("d0")
    await eventually(lambda: worker.paused == worker.streams.keys() and worker.paused)


@pytest.fixture
async def stage(empty_stage: Stage) -> AsyncIterator[Stage]:
    """A stage at whose end nobody holds anything, and no stream waits."""
    await empty_stage.set()
    yield empty_stage
    await nothing_waits(empty_stage)


async def nothing_waits(stage: Stage) -> None:
    await stage.quiet(10.0)
    await eventually(lambda: stage.frontend.sample("baton_frontend_paused_requests") == 0)


async def test_a_slow_reader_over_grpc_gets_all_tokens(stage: Stage) -> None:
    reader = Reader(slow_stub(stage).Generate(request_of(stage)))
    await reader.read(20, sleep=0.05)
    await paused(stage)
    await reader.read()
    reader.check(stage)
    assert stage.frontend.sample("baton_frontend_pauses_total") >= 1
    assert stage.frontend.sample("baton_frontend_paused_seconds_total") > 0
    assert "cancel" not in stage.worker("d0").kinds()


async def test_a_slow_reader_over_http_gets_all_tokens(stage: Stage) -> None:
    reader, writer = await slow_post(stage)
    pieces = []
    for _ in range(20):
        pieces.append(await reader.read(200))
        await asyncio.sleep(0.05)
    await paused(stage)
    while piece := await reader.read(65536):
        pieces.append(piece)
    writer.close()
    texts, logprobs = chunks_of(b"".join(pieces))
    assert texts == expected(stage)
    assert logprobs == [TOKENS] * CHOICES


async def slow_post(stage: Stage) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """Ask over HTTP, on a socket that takes little."""
    host, port = stage.http_url.removeprefix("http://").split(":")
    client = socket.socket()
    client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    client.setblocking(False)
    await asyncio.get_running_loop().sock_connect(client, (host, int(port)))
    reader, writer = await asyncio.open_connection(sock=client, limit=1024)
    asked = {"model": stage.model, "prompt": "x", "n": CHOICES, "max_tokens": TOKENS}
    body = json.dumps(asked | {"logprobs": 5, "seed": 1, "stream": True}).encode()
    writer.write(
        b"POST /v1/completions HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\n"
        b"connection: close\r\ncontent-length: %d\r\n\r\n%b" % (len(body), body)
    )
    return reader, writer


def chunks_of(answer: bytes) -> tuple[list[str], list[int]]:
    """Return each choice's text, and how many log probabilities it has, out of a chunked answer."""
    _, _, rest = answer.partition(b"\r\n\r\n")
    body = b""
    while rest:
        size, _, rest = rest.partition(b"\r\n")
        body, rest = body + rest[: int(size, 16)], rest[int(size, 16) + 2 :]
    events = [line.removeprefix("data: ") for line in body.decode().split("\n\n") if line]
    assert events[-1] == "[DONE]"
    texts, logprobs = [""] * CHOICES, [0] * CHOICES
    for event in map(json.loads, events[:-1]):
        for choice in event["choices"]:
            texts[choice["index"]] += choice["text"]
            if choice["logprobs"]:
                logprobs[choice["index"]] += len(choice["logprobs"]["tokens"])
    return texts, logprobs


async def test_requests_of_a_session_that_is_read_slowly_get_all_tokens(stage: Stage) -> None:
    call = slow_stub(stage).Session()
    starts = [
        inference_pb2.SessionStart(id=number, generate=request_of(stage)) for number in range(2)
    ]
    await call.write(inference_pb2.SessionRequest(starts=starts))
    texts: dict[tuple[int, int], str] = defaultdict(str)
    finished = messages = 0
    while finished < 2:
        async with within(20.0):
            message = await call.read()
        assert message is not grpc.aio.EOF
        for event in message.events:
            texts[event.id, event.delta.choice] += event.delta.text
            finished += event.HasField("finished")
        messages += 1
        if messages < 20:
            await asyncio.sleep(0.05)
        if messages == 20:
            await paused(stage)
    await call.done_writing()
    found = [[texts[number, choice] for choice in range(CHOICES)] for number in range(2)]
    assert found == [expected(stage)] * 2


async def test_who_reads_nothing_is_cut_and_who_reads_little_is_not(empty_stage: Stage) -> None:
    stage = empty_stage
    await stage.set({"limits.stall_seconds": STALL_SECONDS})
    little, nothing = (Reader(slow_stub(stage).Generate(request_of(stage))) for _ in range(2))
    cut = {"reason": Reason.SLOW_CONSUMER.name}
    await nothing.read(1)
    for _ in range(20):  # four times as long as who reads nothing has
        assert await little.read(30)
        await asyncio.sleep(STALL_SECONDS / 5)
    ended = {"surface": "grpc", "operation": "text_completion", "model": stage.model, "adapter": ""}
    await eventually(
        lambda: stage.frontend.sample("baton_frontend_requests_total", **ended, **cut) == 1
    )
    assert stage.frontend.sample("baton_frontend_slow_clients_total", surface="grpc") == 1
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await nothing.read()
    assert BatonError.from_rpc_error(caught.value).reason is Reason.SLOW_CONSUMER
    await little.read()
    little.check(stage)
    await nothing_waits(stage)


async def test_a_client_that_leaves_while_its_streams_wait_leaves_nothing(stage: Stage) -> None:
    call = slow_stub(stage).Generate(request_of(stage))
    await Reader(call).read(1)
    reader, writer = await slow_post(stage)
    await reader.read(100)
    await eventually(lambda: stage.frontend.sample("baton_frontend_paused_requests") == 2)
    call.cancel()
    writer.transport.abort()
    await stage.quiet()
    assert not stage.worker("d0").paused


async def test_streams_that_wait_at_a_worker_that_dies_go_on_at_another(stage: Stage) -> None:
    reader = Reader(slow_stub(stage).Generate(request_of(stage)))
    await reader.read(1)
    await paused(stage)
    await stage.members["d0"].crash()
    await eventually(lambda: stage.worker("d0").calls == 0)
    assert not stage.worker("d1").streams, "its client does not read yet"
    await reader.read()
    reader.check(stage)


async def test_workers_that_do_not_know_it_are_told_nothing(empty_stage: Stage) -> None:
    stage = empty_stage
    stage.pauses = False
    await stage.set()
    reader = Reader(slow_stub(stage).Generate(request_of(stage, max_tokens=20_000)))
    await reader.read(1)
    await eventually(lambda: "cancel" in stage.worker("d0").kinds())
    assert "pause" not in stage.worker("d0").kinds()
    await stage.quiet()
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await reader.read()
    assert BatonError.from_rpc_error(caught.value).reason is Reason.SLOW_CONSUMER
