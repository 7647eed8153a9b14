"""A key is in nothing that a frontend writes, wherever a client puts it."""

import json
from typing import Any

import grpc
import httpx
from opentelemetry.proto.collector.trace.v1 import trace_service_pb2 as otlp
from opentelemetry.proto.collector.trace.v1 import trace_service_pb2_grpc as otlp_grpc

from baton.client import AsyncClient, AuthenticationError
from baton.redaction import KEY_PREFIX
from tests.integration.frontend.auth.conftest import Keys, bearer
from tests.support.processes.process import ServiceSpawner


class Collector(otlp_grpc.TraceServiceServicer):
    """An OpenTelemetry collector that keeps the bytes that it is sent."""

    def __init__(self) -> None:
        self.bytes = b""

    async def Export(self, request: Any, context: Any) -> Any:  # noqa: N802
        self.bytes += request.SerializeToString()
        return otlp.ExportTraceServiceResponse()


async def test_a_key_is_in_no_log_trace_metric_or_error(
    keys: Keys, spawn_service: ServiceSpawner
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
    }
    frontend = await spawn_service("frontend", env)
    messages: Any = [{"role": "user", "content": "hi"}]
    told: list[str] = []
    async with httpx.AsyncClient(base_url=f"http://{frontend.instance.http_address}") as client:
        for secret in (good, revoked, good[:-1] + "~"):
            for model in (stage.model, secret):
                body = {"model": model, "messages": messages, "max_tokens": 3, "user": secret}
                answer = await client.post(
                    "/v1/chat/completions",
                    json=body,
                    headers=bearer(secret) | {"x-request-id": secret, "traceparent": secret},
                )
                told.append(answer.text + str(answer.headers))
            for path in (f"/{secret}", f"/v1/models/{secret}", f"/health?key={secret}"):
                answer = await client.get(path, headers=bearer(secret))
                told.append(answer.text + str(answer.headers))
            told.append((await client.post("/v1/completions", content=secret)).text)
        statuses = [
            (await client.get("/metrics", headers=bearer(one))).status_code
            for one in (good, revoked)
        ]
    assert statuses == [403, 401]
    for secret in (good, revoked):
        async with AsyncClient(frontend.instance.address, api_key=secret, retries=0) as client:
            try:
                async for _ in client.chat(messages, model=stage.model, max_tokens=3):
                    pass
            except AuthenticationError as error:
                told.append(repr(error))
    metrics = json.dumps(await frontend.metrics())
    assert await frontend.stop() == 0
    await server.stop(0)
    log = frontend.log_path.read_text()
    assert log.count('"request.end"') >= 15
    assert collector.bytes.count(b"chat") >= 2
    assert "baton_frontend_requests_total" in metrics
    for secret in (good, revoked):
        for written in (log, metrics, collector.bytes.decode(errors="replace"), *told):
            assert secret not in written
    assert f"{KEY_PREFIX}…" in log
