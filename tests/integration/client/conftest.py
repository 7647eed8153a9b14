"""A frontend that follows a script, and both clients behind one face."""

import asyncio
import queue
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from concurrent import futures
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import grpc
import pytest
from grpc_status import rpc_status

from baton.client import AsyncClient, Client
from baton.client.session import pool
from baton.errors import BatonError, Reason
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
    peers: set[str] = field(default_factory=set)
    """Whence calls came: one address per connection."""
    began: threading.Semaphore = field(default_factory=lambda: threading.Semaphore(0))
    """Released once per Generate call that has begun."""
    ended: threading.Semaphore = field(default_factory=lambda: threading.Semaphore(0))
    """Released once per Generate call that is over on the server."""
    sessions: int = 0
    """Session calls so far."""
    knows_sessions: bool = True
    room: int = 64
    """Requests of one session."""
    refusals: int = 0
    """Requests that a session had no room for."""
    retired: bool = False
    """Sessions are told to retire with their first event."""
    stop: Callable[[], None] = lambda: None
    """Ends its server at once."""

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

    def Session(self, requests: Any, context: Any) -> Iterator[Any]:  # noqa: N802
        """Plays a script per request, each on a thread of its own."""
        self.sessions += 1
        self.peers.add(context.peer())
        if not self.knows_sessions:
            context.abort(grpc.StatusCode.UNIMPLEMENTED, "scripted")
        said: queue.SimpleQueue[Any] = queue.SimpleQueue()
        limits = inference_pb2.SessionLimits(max_requests=self.room)
        said.put(inference_pb2.SessionResponse(limits=limits))
        open_ids: set[int] = set()

        def end(number: int) -> None:
            if number in open_ids:
                open_ids.discard(number)
                self.ended.release()

        def play(start: Any, script: Script) -> None:
            for step in script:
                event = inference_pb2.SessionEvent(id=start.id)
                if isinstance(step, Response):
                    event.MergeFromString(_shifted(step))
                    said.put(inference_pb2.SessionResponse(events=[event], retired=self.retired))
                elif isinstance(step, BatonError):
                    event.error.CopyFrom(step.to_status())
                    said.put(inference_pb2.SessionResponse(events=[event]))
                elif isinstance(step, grpc.StatusCode):
                    said.put(step)
                else:
                    step()
            end(start.id)

        def read() -> None:
            for message in _until_cancelled(requests):
                for start in message.starts:
                    if len(open_ids) >= self.room:
                        self.refusals += 1
                        event = inference_pb2.SessionEvent(id=start.id)
                        event.error.CopyFrom(BatonError(Reason.NO_CAPACITY, "full").to_status())
                        said.put(inference_pb2.SessionResponse(events=[event]))
                        continue
                    script = self.scripts[min(len(self.requests), len(self.scripts) - 1)]
                    open_ids.add(start.id)
                    self.requests.append(start.generate)
                    self.timeouts.append(start.timeout_seconds)
                    identity = start.generate.context.request_id
                    carried = {"x-request-id": identity, "traceparent": start.traceparent}
                    self.metadata.append(carried)
                    self.began.release()
                    threading.Thread(target=play, args=(start, script), daemon=True).start()
                for number in message.cancels:
                    end(number)
            said.put(None)

        def over() -> None:
            for number in list(open_ids):
                end(number)
            said.put(None)

        context.add_callback(over)
        threading.Thread(target=read, daemon=True).start()
        while (message := said.get()) is not None:
            if isinstance(message, grpc.StatusCode):
                context.abort(message, "scripted")
            yield message

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
        self.peers.add(context.peer())
        self.timeouts.append(context.time_remaining())
        self.metadata.append(dict(context.invocation_metadata()))


SERVER_OPTIONS = [
    ("grpc.so_reuseport", 0),
    ("grpc.http2.min_ping_interval_without_data_ms", 500),  # as Baton's own server
]


@pytest.fixture
def serve() -> Iterator[Callable[..., tuple[ScriptedFrontend, str]]]:
    """Start a scripted frontend; answers it and its address."""
    servers = []

    def start(
        *scripts: Script, host: str = "127.0.0.1", port: int = 0
    ) -> tuple[ScriptedFrontend, str]:
        frontend = ScriptedFrontend(list(scripts))
        server = grpc.server(futures.ThreadPoolExecutor(4), options=SERVER_OPTIONS)
        inference_pb2_grpc.add_InferenceServiceServicer_to_server(frontend, server)
        port = server.add_insecure_port(f"{host}:{port}")
        server.start()
        servers.append(server)
        frontend.stop = lambda: server.stop(0).wait() and None
        return frontend, f"{host}:{port}"

    yield start
    for server in servers:
        server.stop(0).wait()


def _until_cancelled(messages: Iterator[Any]) -> Iterator[Any]:
    with suppress(grpc.RpcError):
        yield from messages


def _shifted(response: Response) -> bytes:
    """A response as the fields of a SessionEvent."""
    event = inference_pb2.SessionEvent()
    kind = response.WhichOneof("event")
    if kind is not None:
        getattr(event, kind).CopyFrom(getattr(response, kind))
    return event.SerializeToString()


class Face:
    """One way to call either client from asyncio; blocking calls run on a thread."""

    def __init__(self, kind: str, address: str, **options: Any) -> None:
        self.kind = kind.split()[0]
        self.client: Any = (Client if self.kind == "sync" else AsyncClient)(address, **options)

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


@pytest.fixture(params=["sync", "async", "sync session", "async session"])
async def connect(
    request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[Callable[..., Face]]:
    """Make a client of either kind; one that uses sessions uses them from the first stream on."""
    if request.param.endswith("session"):
        monkeypatch.setattr(pool, "MANY", 0)
    faces: list[Face] = []

    def make(address: str, **options: Any) -> Face:
        faces.append(Face(request.param, address, **options))
        return faces[-1]

    yield make
    for face in faces:
        await face.close()
