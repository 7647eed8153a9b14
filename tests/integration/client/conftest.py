"""A frontend that follows a script, and both clients behind one face."""

import asyncio
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from concurrent import futures
from dataclasses import dataclass, field
from typing import Any

import grpc
import pytest
from grpc_status import rpc_status

from baton.client import AsyncClient, Client
from baton.errors import BatonError
from baton.v1 import inference_pb2, inference_pb2_grpc

Response = inference_pb2.GenerateResponse
Script = list[Response | BatonError | grpc.StatusCode | Callable[[], None]]


@dataclass
class ScriptedFrontend(inference_pb2_grpc.InferenceServiceServicer):
    """Plays one script per Generate call, in order; the last one again and again.

    A response is sent; a BatonError or a status ends the call; a callable is called.
    """

    scripts: list[Script]
    requests: list[inference_pb2.GenerateRequest] = field(default_factory=list)
    timeouts: list[float] = field(default_factory=list)
    metadata: list[dict[str, str]] = field(default_factory=list)
    began: threading.Semaphore = field(default_factory=lambda: threading.Semaphore(0))
    """Released once per Generate call that has begun."""
    ended: threading.Semaphore = field(default_factory=lambda: threading.Semaphore(0))
    """Released once per Generate call that is over on the server."""

    def Generate(self, request: Any, context: Any) -> Iterator[Response]:  # noqa: N802
        context.add_callback(self.ended.release)
        script = self.scripts[min(len(self.requests), len(self.scripts) - 1)]
        self._note(request, context)
        self.began.release()
        for step in script:
            if isinstance(step, Response):
                yield step
            elif isinstance(step, BatonError):
                context.abort_with_status(rpc_status.to_status(step.to_status()))
            elif isinstance(step, grpc.StatusCode):
                context.abort(step, "scripted")
            else:
                step()

    def ListModels(self, request: Any, context: Any) -> inference_pb2.ListModelsResponse:  # noqa: N802
        step = self.scripts[min(len(self.requests), len(self.scripts) - 1)][0]
        self._note(request, context)
        if isinstance(step, BatonError):
            context.abort_with_status(rpc_status.to_status(step.to_status()))
        model = inference_pb2.Model(name="tiny", context_tokens=64, features=["logprobs"])
        return inference_pb2.ListModelsResponse(models=[model])

    def Tokenize(self, request: Any, context: Any) -> inference_pb2.TokenizeResponse:  # noqa: N802
        self._note(request, context)
        ids = [ord(letter) for letter in request.text]
        return inference_pb2.TokenizeResponse(token_ids=ids, context_tokens=64)

    def Chat(self, request: Any, context: Any) -> Iterator[Any]:  # noqa: N802
        raise NotImplementedError

    def _note(self, request: Any, context: Any) -> None:
        self.requests.append(request)
        self.timeouts.append(context.time_remaining())
        self.metadata.append(dict(context.invocation_metadata()))


@pytest.fixture
def serve() -> Iterator[Callable[..., tuple[ScriptedFrontend, str]]]:
    """Start a scripted frontend; answers it and its address."""
    servers = []

    def start(*scripts: Script) -> tuple[ScriptedFrontend, str]:
        frontend = ScriptedFrontend(list(scripts))
        server = grpc.server(futures.ThreadPoolExecutor(4), options=[("grpc.so_reuseport", 0)])
        inference_pb2_grpc.add_InferenceServiceServicer_to_server(frontend, server)
        port = server.add_insecure_port("127.0.0.1:0")
        server.start()
        servers.append(server)
        return frontend, f"127.0.0.1:{port}"

    yield start
    for server in servers:
        server.stop(0).wait()


class Face:
    """One way to call either client from asyncio; blocking calls run on a thread."""

    def __init__(self, kind: str, address: str, **options: Any) -> None:
        self.kind = kind
        self.client: Any = (Client if kind == "sync" else AsyncClient)(address, **options)

    async def events(self, stream: Any) -> AsyncIterator[Any]:
        """The stream's events, with the stream's context around them."""
        if self.kind == "async":
            async with stream:
                async for event in stream:
                    yield event
            return
        with stream:
            end = object()
            while (event := await asyncio.to_thread(next, stream, end)) is not end:
                yield event

    async def call(self, method: Callable[..., Any], *args: Any, **options: Any) -> Any:
        """A call that answers once."""
        if self.kind == "async":
            return await method(*args, **options)
        return await asyncio.to_thread(method, *args, **options)

    async def close(self) -> None:
        await self.call(self.client.close)


@pytest.fixture(params=["sync", "async"])
async def connect(request: pytest.FixtureRequest) -> AsyncIterator[Callable[..., Face]]:
    """Make a client of either kind."""
    faces: list[Face] = []

    def make(address: str, **options: Any) -> Face:
        faces.append(Face(request.param, address, **options))
        return faces[-1]

    yield make
    for face in faces:
        await face.close()
