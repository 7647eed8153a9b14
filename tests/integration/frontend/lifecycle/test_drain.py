"""A frontend that stops: clients are told, nothing that they ask meanwhile is lost."""

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import grpc
import httpx
import pytest

from baton.errors import BatonError, Reason
from baton.rpc.channels import open_channel
from baton.v1 import common_pb2, inference_pb2_grpc
from tests.integration.frontend.test_session import Client, generate, said
from tests.support.clock import within
from tests.support.network.proxy import TcpProxy
from tests.support.wait import eventually

NOTICE_SECONDS = 1.0


@pytest.fixture
async def noticed(empty_stage: Any) -> Any:
    """A stage whose frontend takes requests for a while after it was told to stop."""
    await empty_stage.set({"limits.drain_notice_seconds": NOTICE_SECONDS})
    return empty_stage


class HttpClient:
    """A connection over which requests are sent one after another."""

    def __init__(self, stage: Any) -> None:
        self._stage = stage
        self._reader: asyncio.StreamReader
        self.writer: asyncio.StreamWriter

    async def open(self) -> "HttpClient":
        host, port = self._stage.http_url.removeprefix("http://").split(":")
        self._reader, self.writer = await asyncio.open_connection(host, int(port))
        return self

    def ask(self, max_tokens: int = 3) -> None:
        asked = {"model": self._stage.model, "prompt": "x", "max_tokens": max_tokens}
        self.send("POST", "/v1/completions", json.dumps({**asked, "stream": True}).encode())

    def send(self, method: str, path: str, body: bytes = b"") -> None:
        self.writer.write(self.request(method, path, body))

    @staticmethod
    def request(method: str, path: str, body: bytes = b"") -> bytes:
        kind = "content-type: application/json\r\n" if body else ""
        head = f"{method} {path} HTTP/1.1\r\nhost: x\r\n{kind}content-length: {len(body)}\r\n\r\n"
        return head.encode() + body

    async def head(self) -> str:
        """The head of the next answer, in small letters."""
        async with within(10.0):
            return (await self._reader.readuntil(b"\r\n\r\n")).decode().lower()

    async def stream_end(self) -> None:
        async with within(10.0):
            while await self._chunk():
                pass

    async def closed(self) -> bytes:
        """What came before the server closed the connection."""
        async with within(10.0):
            return await self._reader.read()

    async def _chunk(self) -> bytes:
        size = int(await self._reader.readuntil(b"\r\n"), 16)
        return (await self._reader.readexactly(size + 2))[:-2]


@pytest.fixture
async def connect() -> AsyncIterator[Any]:
    """Connect to a stage's frontend."""
    clients: list[HttpClient] = []

    async def open_one(stage: Any) -> HttpClient:
        clients.append(await HttpClient(stage).open())
        return clients[-1]

    yield open_one
    for client in clients:
        client.writer.close()


def drain(stage: Any) -> asyncio.Task[None]:
    return asyncio.create_task(stage.frontend.process.drain(30.0))


async def is_draining(stage: Any) -> None:
    async def unready() -> bool:
        async with httpx.AsyncClient() as http:
            return (await http.get(f"{stage.http_url}/health/ready")).status_code == 503

    await eventually(unready)


def listens(address: str) -> bool:
    """Whether somebody listens there; without a connection, which closing might cut."""
    port = f":{int(address.rpartition(':')[2]):04X}"
    rows = (line.split() for line in Path("/proc/net/tcp").read_text().splitlines()[1:])
    return any(row[1].endswith(port) and row[3] == "0A" for row in rows)


async def test_requests_are_taken_until_load_balancers_have_noticed(
    noticed: Any, connect: Any
) -> None:
    kept = await connect(noticed)
    kept.ask()
    assert "connection: close" not in await kept.head()
    await kept.stream_end()
    stopping = drain(noticed)
    await is_draining(noticed)
    for client in (kept, await connect(noticed)):
        client.ask()
        head = await client.head()
        assert " 200 " in head
        assert "connection: close" in head
        await client.stream_end()
        assert await client.closed() == b""
    assert not stopping.done()
    await stopping
    late = await connect(noticed)
    late.ask()
    head = await late.head()
    assert " 503 " in head
    assert "retry-after: 1\r\n" in head
    assert b'"code":"draining"' in await late.closed()


async def test_a_request_behind_a_stream_that_outlives_the_notice_is_answered(
    stage: Any, connect: Any
) -> None:
    """Its client was never told: what it sends next may be on its way already."""
    stage.worker("d0").script.step_seconds = 0.02
    client = await connect(stage)
    client.ask(20)
    assert "connection: close" not in await client.head()
    stopping = drain(stage)
    await is_draining(stage)
    client.ask()  # before the frontend can close
    await client.stream_end()
    head = await client.head()
    assert " 200 " in head
    assert "connection: close" in head
    await client.stream_end()
    assert await client.closed() == b""
    await stopping


async def test_a_request_that_arrives_while_idle_connections_are_closed(
    stage: Any, connect: Any
) -> None:
    idle, arriving = await connect(stage), await connect(stage)
    request = HttpClient.request("GET", "/v1/models")
    arriving.writer.write(request[:20])
    await arriving.writer.drain()
    stopping = drain(stage)
    assert await idle.closed() == b""
    assert not stopping.done()
    arriving.writer.write(request[20:])
    head = await arriving.head()
    assert " 200 " in head
    assert "connection: close" in head
    await stopping


async def test_calls_go_on_and_new_ones_go_elsewhere(stage: Any) -> None:
    stub = stage.stub()
    stage.worker("d0").script.step_seconds = 0.01
    running = stub.Generate(generate(stage, 100))
    await running.read()
    stopping = drain(stage)
    await is_draining(stage)
    await eventually(lambda: not listens(stage.grpc_address))
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await stub.Generate(generate(stage)).read()
    assert caught.value.code() is grpc.StatusCode.UNAVAILABLE
    assert not stopping.done()
    events = []
    while (event := await running.read()) is not grpc.aio.EOF:
        events.append(event)
    assert events[-1].HasField("finished")
    assert events[-2].choice_finished.reason == common_pb2.FINISH_REASON_LENGTH
    await stopping


async def test_who_connects_during_the_notice_has_time_to_leave(noticed: Any) -> None:
    """It is told to only once nobody else may connect: its next call may be under way by then."""
    stopping = drain(noticed)
    await is_draining(noticed)
    async with TcpProxy(noticed.grpc_address) as proxy:
        channel = open_channel(proxy.address)
        stub: Any = inference_pb2_grpc.InferenceServiceStub(channel)
        async for _ in stub.Generate(generate(noticed, 1)):
            pass
        proxy.mute()
        await eventually(lambda: not listens(noticed.grpc_address))
        done, _ = await asyncio.wait([stopping], timeout=1.0)
        assert not done
        await proxy.cut()
        async with within(10.0):
            await stopping
        await channel.close(None)


async def test_sessions_are_told_to_retire_and_refuse_later(noticed: Any) -> None:
    noticed.worker("d0").script.step_seconds = 0.03
    client = Client(noticed.stub().Session())
    await client.open()
    await client.start(1, generate(noticed, 60))
    await client.begun(1)
    stopping = drain(noticed)
    await eventually(lambda: any(message.retired for message in client.messages))
    await client.start(2, generate(noticed, 3))
    assert said(await client.end(2)) == noticed.said(0, 3)
    late = Client(noticed.stub().Session())
    first = await late.call.read()
    assert first.retired
    assert first.limits.max_requests
    late.call.cancel()

    async def refused() -> bool:
        number = len(client.events) + 1
        await client.start(number, generate(noticed, 1))
        last = (await client.end(number))[-1]
        if not last.HasField("error"):
            return False
        assert BatonError.from_status(last.error).reason is Reason.DRAINING
        return True

    await eventually(refused)
    assert said(await client.end(1)) == noticed.said(0, 60)
    async with within(10.0):
        await client.over.wait()
    await stopping


async def test_clients_are_told_to_make_new_connections_now_and_then(
    empty_stage: Any, connect: Any
) -> None:
    await empty_stage.set({"limits.max_connection_age_seconds": 1})  # the first head is earlier
    empty_stage.worker("d0").script.step_seconds = 0.03
    http, session = await connect(empty_stage), Client(empty_stage.stub().Session())
    await session.open()
    await session.start(1, generate(empty_stage, 30))

    http.ask()
    assert "connection: close" not in await http.head()
    await http.stream_end()

    async def told() -> bool:
        http.ask()
        head = await http.head()
        await http.stream_end()
        return "connection: close" in head

    await eventually(told)
    assert await http.closed() == b""
    await eventually(lambda: any(message.retired for message in session.messages))
    assert said(await session.end(1)) == empty_stage.said(0, 30)
    await session.call.done_writing()
    async with within(10.0):
        await session.over.wait()
    assert session.error is None
