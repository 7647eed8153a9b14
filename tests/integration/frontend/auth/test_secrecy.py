"""A key is in nothing that a frontend writes or says, wherever a client puts it."""

from pathlib import Path
from typing import Any
from urllib.parse import quote

import grpc
import httpx
from opentelemetry.proto.collector.trace.v1 import trace_service_pb2 as otlp
from opentelemetry.proto.collector.trace.v1 import trace_service_pb2_grpc as otlp_grpc

from baton.client import AsyncClient, AuthenticationError
from baton.host.redaction import KEY_PREFIX
from baton.rpc.channels import open_channel
from baton.v1 import inference_pb2
from baton.v1.inference_pb2_grpc import InferenceServiceStub
from tests.integration.frontend.auth.conftest import Keys, bearer
from tests.support.clock import DEADLINE_SECONDS
from tests.support.processes.process import ServiceSpawner

PATHS = (
    "/{}",
    "/v1/models/{}",
    "/v1/organization/projects/{}",
    "/v1/usage?key={}",
    "/health?key={}",
    "/metrics?{}",
    "/v1/models?api_key={}#{}",
)
HEADERS = (
    "api-key",
    "authorization",
    "content-type",
    "cookie",
    "openai-organization",
    "openai-project",
    "referer",
    "traceparent",
    "tracestate",
    "user-agent",
    "x-api-key",
    "x-request-id",
    "x-stainless-arch",
)


class Collector(otlp_grpc.TraceServiceServicer):
    """An OpenTelemetry collector that keeps the bytes that it is sent."""

    def __init__(self) -> None:
        self.bytes = b""

    async def Export(self, request: Any, context: Any) -> Any:  # noqa: N802
        self.bytes += request.SerializeToString()
        return otlp.ExportTraceServiceResponse()


def bodies(model: str, secret: str) -> list[dict[str, Any]]:
    """Return chat completions with a secret where clients may put one by mistake."""
    good: dict[str, Any] = {
        "model": model,
        "messages": [{"role": "user", "content": "hi"}],
        "max_tokens": 3,
    }
    wrong: list[dict[str, Any]] = [
        {"user": secret, "metadata": {"key": secret}, "api_key": secret, secret: secret},
        {"model": secret},
        {"max_tokens": secret},
        {"seed": secret},
        {"stop": [secret] * 9},
        {"stream_options": secret},
        {"response_format": {"type": secret}},
        {"tool_choice": secret},
        {"tools": [{"type": secret}]},
        {"messages": secret},
        {"messages": [{"role": secret, "content": "hi"}]},
        {"messages": [{"role": "user", "content": "hi", "name": secret + " "}]},
        {"messages": [{"role": "user", "content": {secret: secret}}]},
    ]
    return [good | one for one in wrong]


async def ask_http(url: str, model: str, secret: str, good: str) -> list[str]:
    """Put a secret everywhere in requests; return all that was answered."""
    told: list[str] = []
    chat, mine = "/v1/chat/completions", bearer(good)
    async with httpx.AsyncClient(base_url=url) as client:

        async def ask(method: str, path: str, **given: Any) -> None:
            answer = await client.request(method, path, **given)
            told.append(f"{answer.status_code} {answer.text} {answer.headers}")

        for body in bodies(model, secret):
            await ask("POST", chat, json=body, headers=bearer(secret))
            await ask("POST", chat, json=body, headers=mine)
        plain = bodies(model, "me")[0]
        for name in HEADERS:
            await ask("POST", chat, json=plain, headers=mine | {name: secret})
        for scheme in ("", "Basic ", "Token ", "Bearer  ", "Bearer " + "x" * 300):
            await ask("POST", chat, json=plain, headers={"authorization": scheme + secret})
        for path in PATHS:
            for text in (secret, quote(secret.replace("-", "%2D"), safe="%")):
                await ask("GET", path.format(text, text), headers=mine)
                await ask("GET", path.format(text, text), headers=bearer(secret))
        for content in (secret, f'{{"model": {secret}}}', f'"{secret}"', f'{{"{secret}'):
            kind = {"content-type": "application/json"}
            await ask("POST", "/v1/completions", content=content, headers=mine | kind)
        await ask(secret.upper(), "/v1/models", headers=mine)
        await ask("POST", "/v1/organization/projects", json={secret: 1}, headers=mine)
    return told


async def ask_grpc(address: str, model: str, secret: str, good: str) -> list[str]:
    """The same over gRPC."""
    told: list[str] = []
    places = ("model", "adapter", "tenant", "request_id")
    async with open_channel(address) as channel:
        stub: Any = InferenceServiceStub(channel)
        raw: Any = channel

        async def ask(call: Any) -> None:
            try:
                async for _ in call:
                    pass
            except grpc.aio.AioRpcError as error:
                told.append(f"{error} {error.trailing_metadata()}")
            told.append(str(await call.initial_metadata()))

        def request() -> Any:
            made = inference_pb2.ChatRequest()
            made.context.model = model
            made.messages.add(role="user", content="hi")
            made.sampling.max_tokens = 3
            return made

        for shown in (good, secret):
            metadata = tuple(bearer(shown).items())
            for place in places:
                asked = request()
                setattr(asked.context, place, secret)
                await ask(stub.Chat(asked, metadata=metadata, timeout=DEADLINE_SECONDS))
            asked = request()
            asked.messages[0].role = secret
            await ask(stub.Chat(asked, metadata=metadata, timeout=DEADLINE_SECONDS))
            for name in set(HEADERS) - {"authorization", "content-type", "user-agent"}:
                extra = (*metadata, (name, secret))
                await ask(stub.Chat(request(), metadata=extra, timeout=DEADLINE_SECONDS))
            extra = (*metadata, ("key-bin", secret.encode()))
            await ask(stub.Chat(request(), metadata=extra, timeout=DEADLINE_SECONDS))
        for scheme in ("", "Basic "):
            await ask(
                stub.Chat(
                    request(),
                    metadata=(("authorization", scheme + secret),),
                    timeout=DEADLINE_SECONDS,
                )
            )
        unknown = raw.unary_stream(f"/baton.v1.InferenceService/{secret}")
        await ask(unknown(b"", metadata=tuple(bearer(good).items()), timeout=DEADLINE_SECONDS))
    async with AsyncClient(address, api_key=secret, retries=0) as client:
        try:
            stream = client.chat([{"role": "user", "content": "hi"}], model=model, max_tokens=3)
            async for _ in stream:
                pass
        except AuthenticationError as error:
            told.append(repr(error))
    return told


def pieces(secret: str) -> list[str]:
    """Return a secret and its halves, without the prefix that all have."""
    text = secret.removeprefix(KEY_PREFIX)
    return [secret, text[: len(text) // 2], text[len(text) // 2 :]]


def files_in(directory: Path) -> dict[str, str]:
    return {
        str(path): path.read_bytes().decode(errors="replace")
        for path in directory.rglob("*")
        if path.is_file()
    }


async def test_a_key_is_in_nothing_that_is_written_or_said(
    keys: Keys, spawn_service: ServiceSpawner, tmp_path: Path
) -> None:
    stage, collector = keys.stage, Collector()
    server = grpc.aio.server()
    otlp_grpc.add_TraceServiceServicer_to_server(collector, server)
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    _, good = await keys.key()
    revoked_id, revoked = await keys.key()
    await keys.admin.revoke_key(revoked_id)
    env = {
        "BATON_AUTH_MODE": "keys",
        "BATON_TELEMETRY_LOG_LEVEL": "debug",
        "BATON_TELEMETRY_OTLP_ENDPOINT": f"http://127.0.0.1:{port}",
        "BATON_PUBLIC_METRICS": "true",
        "BATON_LIMITS_DRAIN_NOTICE_SECONDS": "0",
        "BATON_USAGE_SPOOL_PATH": str(tmp_path / "spool"),
        "BATON_USAGE_JSONL_PATH": str(tmp_path / "records"),
    }
    frontend = await spawn_service("frontend", env)
    url, address = f"http://{frontend.instance.http_address}", frontend.instance.address
    told = []
    for secret in (good, revoked):
        told += await ask_http(url, stage.model, secret, good)
        told += await ask_grpc(address, stage.model, secret, good)
    async with httpx.AsyncClient() as client:
        answer = await client.get(f"http://{frontend.instance.metrics_address}/metrics")
    written = {"metrics": answer.text, "answers": "\n".join(told)}
    asked = [start for worker in stage.workers for start in worker.starts()]
    written["workers"] = "\n".join(map(str, asked))
    written["routers"] = "\n".join(map(str, stage.router.queries))
    spooled = files_in(tmp_path)
    assert await frontend.stop() == 0
    await server.stop(0)
    written["log"] = frontend.log_path.read_text()
    written["traces"] = collector.bytes.decode(errors="replace")
    stored, _ = await stage.client.list(f"/baton/{stage.cluster}/")
    written["etcd"] = "\n".join(f"{key} {value!r}" for key, value in stored)
    written |= spooled | files_in(tmp_path)
    found = {
        name: text[at - 60 : at + 60]
        for name, text in written.items()
        for secret in (good, revoked)
        for piece in pieces(secret)
        if (at := text.find(piece)) >= 0
    }
    assert not found
    # And each of them had something to tell.
    assert written["log"].count('"request.end"') >= 100
    assert written["traces"].count("chat") >= 20
    assert "baton_frontend_requests_total" in written["metrics"]
    assert any('"outcome":"ok"' in text for text in spooled.values())
    assert any("records" in name and text for name, text in written.items())
    assert len(asked) >= 20
    assert "tenancy/keys/key_" in written["etcd"]
    assert f"{KEY_PREFIX}…" in written["log"]
    assert {"200", "400", "401", "403", "404"} <= {one[:3] for one in told}
