"""Clients that do not read are cut, and nobody waits for them."""

import asyncio
import socket
from collections.abc import Callable
from contextlib import AsyncExitStack
from typing import Any

import grpc
import pytest

from baton.errors import BatonError, Reason
from baton.request.stream_events import Delta, Event
from baton.rpc.channels import open_channel
from baton.rpc.server.server import Server
from baton.settings import FrontendLimits, GrpcSettings, HttpSettings
from baton.v1 import inference_pb2
from baton.v1.inference_pb2_grpc import (
    InferenceServiceStub,
    add_InferenceServiceServicer_to_server,
)
from services.frontend.access.authenticator import NoAuthentication
from services.frontend.grpc.recording import INFERENCE
from services.frontend.grpc.servicer import InferenceServicer
from services.frontend.http.body import ClientGoneError
from services.frontend.http.disconnect import WhileConnected
from services.frontend.http.protocol.connection import connection_of
from services.frontend.http.server import HttpServer
from tests.support.clock import within
from tests.support.wait import eventually


def slow_socket(host: str, port: int) -> socket.socket:
    client = socket.socket()
    client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    client.connect((host, port))
    return client


async def test_a_slow_reader_loses_its_stream_and_others_lose_nothing(empty_stage: Any) -> None:
    stage = empty_stage
    stage.pauses = False  # of the release before, whose workers go on
    await stage.set()
    stage.worker("d0").script.step_seconds = 0.0
    host, port = stage.http_url.removeprefix("http://").split(":")
    client = slow_socket(host, int(port))
    body = (
        b'{"model":"%s","prompt":"x","max_tokens":90000,"logprobs":1,"stream":true}'
        % stage.model.encode()
    )
    client.sendall(
        b"POST /v1/completions HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\n"
        b"content-length: %d\r\n\r\n%s" % (len(body), body)
    )
    # Its worker is released though the connection still stands.
    await eventually(lambda: "cancel" in stage.worker("d0").kinds(), 20.0)
    await stage.quiet()
    request = inference_pb2.GenerateRequest(text="x")
    request.context.model = stage.model
    request.sampling.max_tokens = 20
    events = [event async for event in stage.stub().Generate(request)]
    assert "".join(event.delta.text for event in events) == stage.said(0, 20)
    again = ["prepare", "generate"]
    assert stage.worker("d0").kinds() == ["prepare", "generate", "cancel", *again]
    client.close()
    ended = {"surface": "http", "operation": "text_completion", "model": stage.model}
    ended |= {"adapter": "", "reason": Reason.SLOW_CONSUMER.name}
    await eventually(lambda: stage.frontend.sample("baton_frontend_requests_total", **ended) == 1)


async def test_a_connection_that_stays_blocked_is_cut() -> None:
    left = asyncio.Event()

    async def endless(scope: Any, receive: Any, send: Any) -> None:
        await receive()
        try:
            async with WhileConnected(connection_of(scope)):
                await send({"type": "http.response.start", "status": 200, "headers": []})
                while True:
                    body = b"x" * 8192
                    await send({"type": "http.response.body", "body": body, "more_body": True})
                    await asyncio.sleep(0)
        except ClientGoneError:
            left.set()

    settings = HttpSettings(port=0)
    async with HttpServer(endless, settings, stall_seconds=0.3) as server:
        await server.start()
        client = slow_socket("127.0.0.1", server.port)
        client.sendall(b"GET / HTTP/1.1\r\nhost: x\r\n\r\n")
        async with within(5.0):
            await left.wait()
        client.close()


async def test_small_answers_leave_at_once() -> None:
    nodelay = []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 204, "headers": []})
        await send({"type": "http.response.body", "body": b""})

    async with HttpServer(app, HttpSettings(port=0), 30) as server:
        await server.start()
        reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
        writer.write(b"GET / HTTP/1.1\r\nhost: x\r\n\r\n")
        assert await reader.readline() == b"HTTP/1.1 204 No Content\r\n"
        for connection in server.connections:
            sock = connection.get_extra_info("socket")
            nodelay.append(sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY))
        writer.close()
        await writer.wait_closed()
    assert nodelay == [1]


class EndlessGeneration:
    """Speaks without end, until it is closed."""

    def __init__(self) -> None:
        self.reason: Reason | None = None
        self.closed = asyncio.Event()
        self.buffer = self
        self._reads = asyncio.Event()
        self._reads.set()

    def pause(self) -> None:
        self._reads.clear()

    def resume(self) -> None:
        self._reads.set()

    async def follow(self, sink: Callable[[list[Event]], bool]) -> None:
        while True:
            await self._reads.wait()
            sink([Delta(0, 0, (), "x" * 65536, ())])
            await asyncio.sleep(0)

    def failed(self, reason: Reason) -> None:
        self.reason = reason

    def close(self) -> None:
        self.closed.set()


class EndlessInference:
    """Answers every request with an endless generation."""

    limits = FrontendLimits()

    def __init__(self) -> None:
        self.generation = EndlessGeneration()

    def limits_of(self, _: Any) -> None:
        """Nobody has any."""

    async def start(self, *_: Any) -> EndlessGeneration:
        return self.generation


async def test_a_grpc_client_that_stays_blocked_is_cut() -> None:
    inference: Any = EndlessInference()
    servicer = InferenceServicer(inference, NoAuthentication())
    server = Server(GrpcSettings(), "frontend", stall_seconds=0.3)
    async with AsyncExitStack() as stack:
        await stack.enter_async_context(server)
        server.add(lambda s: add_InferenceServiceServicer_to_server(servicer, s), INFERENCE)
        await server.start()
        channel = await stack.enter_async_context(open_channel(server.address))
        call = InferenceServiceStub(channel).Generate(inference_pb2.GenerateRequest())
        async with within(10.0):
            await inference.generation.closed.wait()
        assert inference.generation.reason is Reason.SLOW_CONSUMER
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            async with within(10.0):
                while await call.read() is not grpc.aio.EOF:
                    pass
        assert BatonError.from_rpc_error(caught.value).reason is Reason.SLOW_CONSUMER
