"""Each request ends once in the log and once in the metrics, refused ones too, on both surfaces."""

import asyncio
import json
import random
import re
import signal
from collections import Counter
from collections.abc import Awaitable, Callable
from typing import Any

import grpc
import httpx
import pytest

from baton.errors import BatonError, Reason
from baton.v1 import inference_pb2 as pb
from baton.v1.inference_pb2_grpc import InferenceServiceStub
from bench.harness.metrics import parse_metrics
from tests.support.engine.model import MODEL
from tests.support.wait import eventually

End = tuple[str, str, str]
"""Surface, operation and reason: what the client, the log and the metrics must agree on."""
_CLOSED = (httpx.RemoteProtocolError, httpx.ReadError, httpx.WriteError)
"""What asking on a connection ends with that the frontend just closed, for it was idle."""
CONCURRENT = 16
MANY = 48
"""As many requests as may run."""
WAYS = (
    Reason.INVALID_FIELD,
    Reason.MODEL_NOT_FOUND,
    Reason.CONTEXT_LENGTH_EXCEEDED,
    Reason.UNSUPPORTED_PARAMETER,
    Reason.MALFORMED_BODY,
    Reason.UNSUPPORTED_MEDIA_TYPE,
    Reason.BODY_TOO_LARGE,
    Reason.BODY_TIMEOUT,
    Reason.METHOD_NOT_ALLOWED,
    Reason.NOT_FOUND,
    Reason.HEAD_TOO_LARGE,
    Reason.MALFORMED_HEAD,
    Reason.UNIMPLEMENTED,
    Reason.DEADLINE,
    Reason.CANCELLED,
    Reason.OVERLOADED,
    Reason.DRAINING,
)
SHORT: dict[str, Any] = {"model": MODEL, "max_tokens": 2, "ignore_eos": True}
LONG: dict[str, Any] = {**SHORT, "max_tokens": 3000}
LIMITS = {
    "public.metrics": True,
    "engine.sim_decode_step_seconds": 0.01,
    "engine.max_waiting": 512,
    "limits.max_requests": MANY,
    "grpc.max_message_bytes": 65536,
    "http.max_body_bytes": 65536,
    "http.body_timeout_seconds": 0.5,
    "http.header_timeout_seconds": 30,  # of a client that others keep from its processor
    "drain_seconds": 5,
    "limits.drain_notice_seconds": 0,
}
_OF_STATUS = {
    400: Reason.MALFORMED_HEAD,
    408: Reason.BODY_TIMEOUT,
    431: Reason.HEAD_TOO_LARGE,
}
_SAMPLE = re.compile(
    r'baton_frontend_requests_total\{adapter="",model="([^"]*)",operation="(\w+)",reason="(\w+)",'
    r'surface="(\w+)"\}'
)


class Http:
    """Requests over HTTP, each of which returns how it ended for its client."""

    def __init__(self, url: str, http: httpx.AsyncClient) -> None:
        self._host, self._port = url.removeprefix("http://").split(":")
        self._http = http

    async def ask(self, operation: str, method: str, path: str, **options: Any) -> End:
        """Send a request and read all of the answer."""
        answer = await self._http.request(method, path, **options)
        if answer.status_code == 200:
            return "http", operation, "ok"
        code = answer.json()["error"]["code"]
        (reason,) = [each for each in Reason if each.openai_code == code]
        assert answer.status_code == reason.http_status
        return "http", operation, reason.name

    async def chat(self, **fields: Any) -> End:
        body = {**SHORT, "messages": [{"role": "user", "content": "hi"}], **fields}
        return await self.ask("chat", "POST", "/v1/chat/completions", json=body)

    async def complete(self, **fields: Any) -> End:
        body = {**SHORT, "prompt": "hi", **fields}
        return await self.ask("text_completion", "POST", "/v1/completions", json=body)

    async def leave(self, hold: asyncio.Event | None = None) -> End:
        """Close the connection in the middle of an answer, or once `hold` is set."""
        body = {**LONG, "prompt": "hi", "stream": True}
        async with self._http.stream("POST", "/v1/completions", json=body) as answer:
            lines = answer.aiter_lines()
            assert "text" in await anext(lines)
            if hold is not None:
                await hold.wait()
        return "http", "text_completion", Reason.CANCELLED.name

    async def send(self, operation: str, *pieces: bytes) -> End:
        """Send bytes as they are and read the answer's status."""
        reader, writer = await asyncio.open_connection(self._host, int(self._port))
        try:
            for piece in pieces:
                writer.write(piece)
                await writer.drain()
                await asyncio.sleep(0.02)  # a read of its own: a head in one piece is parsed whole
            status = int((await reader.readline()).split()[1])
        finally:
            writer.close()
        return "http", operation, _OF_STATUS[status].name


class Grpc:
    """The same over gRPC."""

    def __init__(self, channel: grpc.aio.Channel) -> None:
        self._channel = channel
        self._stub: Any = InferenceServiceStub(channel)

    async def ask(self, operation: str, call: Any) -> End:
        """Read all of a call's answers."""
        try:
            if hasattr(call, "__aiter__"):
                async for _ in call:
                    pass
            else:
                await call
        except grpc.aio.AioRpcError as error:
            return "grpc", operation, _reason(error).name
        return "grpc", operation, "ok"

    async def chat(self, **fields: Any) -> End:
        request = pb.ChatRequest(messages=[pb.ChatMessage(role="user", content="hi")])
        return await self.ask("chat", self._stub.Chat(_filled(request, **fields), timeout=30))

    async def generate(self, seconds: float = 30, text: str = "hi", **fields: Any) -> End:
        request = _filled(pb.GenerateRequest(text=text), **fields)
        return await self.ask("text_completion", self._stub.Generate(request, timeout=seconds))

    async def tokenize(self) -> End:
        request = pb.TokenizeRequest(model=MODEL, text="hi")
        return await self.ask("tokenize", self._stub.Tokenize(request, timeout=30))

    async def list_models(self) -> End:
        call = self._stub.ListModels(pb.ListModelsRequest(), timeout=30)
        return await self.ask("list_models", call)

    async def raw(self, operation: str, path: str, message: bytes) -> End:
        return await self.ask(operation, self._channel.unary_unary(path)(message, timeout=30))

    async def leave(self) -> End:
        call = self._stub.Generate(_filled(pb.GenerateRequest(text="hi"), **LONG), timeout=60)
        try:
            for _ in range(3):
                await call.read()
        finally:
            call.cancel()
        return "grpc", "text_completion", Reason.CANCELLED.name


def _filled(request: Any, **fields: Any) -> Any:
    fields = {**SHORT, **fields}
    request.context.model = fields.pop("model")
    for name, value in fields.items():
        setattr(request.sampling, name, value)
    return request


def _reason(error: grpc.aio.AioRpcError) -> Reason:
    if error.code() is grpc.StatusCode.DEADLINE_EXCEEDED:
        return Reason.DEADLINE
    return BatonError.from_rpc_error(error).reason


def accepted(http: Http, rpc: Grpc) -> list[Callable[[], Awaitable[End]]]:
    """Requests that are answered."""
    return [
        http.chat,
        lambda: http.chat(stream=True),
        http.complete,
        lambda: http.complete(prompt=["one", "two", "three"], stream=True),
        lambda: http.ask("tokenize", "POST", "/v1/tokenize", json={"model": MODEL, "prompt": "x"}),
        lambda: http.ask("list_models", "GET", "/v1/models"),
        rpc.chat,
        rpc.generate,
        rpc.tokenize,
        rpc.list_models,
    ]


def refused(http: Http, rpc: Grpc) -> list[Callable[[], Awaitable[End]]]:
    """Requests that are refused or left, in every way that needs no crowd."""
    post = b"POST /v1/completions HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\n"
    return [
        lambda: http.chat(temperature=9),
        lambda: http.chat(model="nobody"),
        lambda: http.chat(messages=[{"role": "user", "content": "x" * 20_000}]),
        lambda: http.chat(modalities=["audio"]),
        lambda: http.complete(prompt=["one", "two"], n=129),
        lambda: http.complete(prompt="x" * 70_000),
        lambda: http.ask("text_completion", "POST", "/v1/completions", content=b"{"),
        lambda: http.ask("text_completion", "POST", "/v1/completions", data={"prompt": "x"}),
        lambda: http.ask("text_completion", "GET", "/v1/completions"),
        lambda: http.ask("unknown", "POST", "/health"),
        lambda: http.ask("unknown", "GET", "/nothing"),
        lambda: http.ask("list_models", "GET", "/v1/models/nobody"),
        lambda: http.send("text_completion", post + b"content-length: 9\r\n\r\n", b"{"),
        lambda: http.send("unknown", b"GET / HTTP/1.1\r\n", b"a: b\r\n", b"x: " + b"y" * 70_000),
        lambda: http.send("unknown", b"what is this\r\n\r\n"),
        http.leave,
        lambda: rpc.chat(temperature=9),
        lambda: rpc.chat(model="nobody"),
        lambda: rpc.generate(text="x" * 20_000),
        lambda: rpc.generate(text="x" * 70_000),
        lambda: rpc.generate(0.15, **LONG),
        lambda: rpc.raw("chat", "/baton.v1.InferenceService/Chat", b"\xff\xff\xff"),
        lambda: rpc.raw("unknown", "/baton.v1.InferenceService/Nothing", b""),
        rpc.leave,
    ]


def logged(frontend: Any, skip: int) -> list[dict[str, Any]]:
    """The frontend's `request.end` lines after the first `skip`."""
    lines = frontend.log_path.read_text().splitlines()
    return [json.loads(line) for line in lines if '"request.end"' in line][skip:]


async def counted(client: httpx.AsyncClient) -> Counter[End]:
    """What the frontend's metrics say."""
    found: Counter[End] = Counter()
    for name, value in parse_metrics((await client.get("/metrics")).text).items():
        if match := _SAMPLE.fullmatch(name):
            _, operation, reason, surface = match.groups()
            found[surface, operation, reason] += round(value)
    return found


async def load(ways: list[Callable[[], Awaitable[End]]]) -> Counter[End]:
    """Run all, some at once; count how they ended for their clients."""
    places = asyncio.Semaphore(CONCURRENT)

    async def one(way: Callable[[], Awaitable[End]]) -> End:
        async with places:
            return await way()

    return Counter(await asyncio.gather(*map(one, ways)))


@pytest.mark.parametrize(
    "requests", [pytest.param(300, id="300"), pytest.param(2000, id="2000", marks=pytest.mark.soak)]
)
async def test_client_log_and_metrics_agree_exactly(local_cluster: Any, requests: int) -> None:
    cluster = await local_cluster(own=True, processes=("frontend-0",), settings=LIMITS)
    frontend = cluster.frontend
    pool = httpx.Limits(max_connections=None, max_keepalive_connections=64)
    async with (
        httpx.AsyncClient(base_url=cluster.http, limits=pool) as client,
        grpc.aio.insecure_channel(
            frontend.address, [("grpc.max_send_message_length", -1)]
        ) as channel,
    ):
        before, lines = await counted(client), len(logged(frontend, 0))
        http, rpc = Http(cluster.http, client), Grpc(channel)
        good, bad = accepted(http, rpc), refused(http, rpc)
        crowd = requests // 50
        third = requests // 3 - 2 * crowd - MANY
        ways = [bad[i % len(bad)] for i in range(third)]
        ways += [good[i % len(good)] for i in range(requests - third - 2 * crowd - MANY)]
        random.Random(5).shuffle(ways)
        ended = await load(ways)

        hold, stay = asyncio.Event(), asyncio.Event()
        held = [asyncio.create_task(http.leave(hold)) for _ in range(MANY - 1)]
        last = asyncio.create_task(http.leave(stay))
        await eventually(lambda: _active(client, MANY), 20)
        ended += await load([http.chat, rpc.generate] * (crowd // 2))  # more than may run
        hold.set()
        ended += Counter(await asyncio.gather(*held))
        await eventually(lambda: _active(client, 1), 5)
        frontend.signal(signal.SIGTERM)
        await eventually(lambda: _draining(client), 5)
        refusing, asked = False, requests
        while not refusing:  # what it says of its health may come before that
            try:
                end = await http.chat()
            except _CLOSED:
                continue  # nobody read it
            ended[end] += 1
            asked += 1
            refusing = end[-1] == Reason.DRAINING.name
        ended += await load([http.chat] * crowd)
        metrics = await counted(client) - before
        stay.set()
        ended[await last] += 1
    assert await frontend.wait(10) == 0
    log = logged(frontend, lines)
    told = Counter((line["surface"], line["operation"], line["reason"]) for line in log)
    assert told == ended
    metrics["http", "text_completion", Reason.CANCELLED.name] += 1  # it ended after they were read
    assert metrics == ended
    assert ended.total() == asked
    assert sum(count for (*_, reason), count in ended.items() if reason != "ok") >= requests // 3
    assert len({line["request_id"] for line in log}) == asked
    assert {reason for *_, reason in ended} >= {each.name for each in WAYS}


async def _active(client: httpx.AsyncClient, count: int) -> bool:
    metrics = parse_metrics((await client.get("/metrics")).text)
    return metrics["baton_frontend_requests_active"] == count


async def _draining(client: httpx.AsyncClient) -> bool:
    try:
        return (await client.get("/health")).status_code == 503
    except _CLOSED:
        return False
