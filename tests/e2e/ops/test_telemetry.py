"""One trace through every process, metrics on each of them, ids on every log line."""

import json
from collections import defaultdict

import grpc
import httpx
import pytest
from opentelemetry.proto.collector.trace.v1 import trace_service_pb2, trace_service_pb2_grpc
from opentelemetry.proto.trace.v1.trace_pb2 import Span

from tests.support.engine.model import MODEL, prompt_of
from tests.support.wait import eventually

TRACE_ID = "4bf92f3577b34da6a3ce929d0e0e4736"


class Collector(trace_service_pb2_grpc.TraceServiceServicer):
    """An OpenTelemetry collector that remembers."""

    def __init__(self):
        self.spans = defaultdict(dict)
        """By service: spans by name, of each name the last."""
        self.by_id = {}

    def outside(self):
        """Names of spans whose parent did not come, or not yet."""
        spans = self.by_id.values()
        return [span.name for span in spans if span.parent_span_id not in self.by_id]

    async def Export(self, request, context):  # noqa: N802
        for resource in request.resource_spans:
            attributes = {a.key: a.value.string_value for a in resource.resource.attributes}
            for scope in resource.scope_spans:
                for span in scope.spans:
                    if span.trace_id.hex() == TRACE_ID:
                        self.spans[attributes["service.name"]][span.name] = span
                        self.by_id[span.span_id] = span
        return trace_service_pb2.ExportTraceServiceResponse()


@pytest.fixture
async def collector():
    servicer = Collector()
    server = grpc.aio.server()
    trace_service_pb2_grpc.add_TraceServiceServicer_to_server(servicer, server)
    servicer.port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    yield servicer
    await server.stop(None)


async def test_a_request_is_one_trace_through_every_process(collector, local_cluster):
    settings = {"telemetry.otlp_endpoint": f"http://127.0.0.1:{collector.port}"}
    cluster = await local_cluster(own=True, settings=settings)
    async with httpx.AsyncClient(base_url=cluster.http) as http:
        answer = await http.post(
            "/v1/completions",
            json={"model": MODEL, "prompt": prompt_of(100), "max_tokens": 8, "ignore_eos": True},
            headers={
                "traceparent": f"00-{TRACE_ID}-00f067aa0ba902b7-01",
                "x-request-id": "my-request",
            },
        )
        assert answer.status_code == 200
        assert answer.headers["x-request-id"] == "my-request"

    services = {"frontend", "router", "prefill", "decode", "kvstore"}
    # Each process exports on its own, and a span when it has ended. One hangs on the client's.
    await eventually(lambda: set(collector.spans) == services and len(collector.outside()) == 1, 10)
    assert len(collector.outside()) == 1, f"these hang on nothing: {collector.outside()}"
    spans = collector.spans
    chains = [  # each from the client inwards: who called, who served, and what that called
        [("frontend", f"text_completion {MODEL}"), ("frontend", "route"), ("router", "place")],
        [("frontend", f"text_completion {MODEL}"), ("frontend", "prefill"), ("prefill", "prefill")],
        [
            ("frontend", f"text_completion {MODEL}"),
            ("frontend", "decode"),
            ("decode", "prepare"),
            ("decode", "kv.get"),
            ("kvstore", "kvstore.get"),
        ],
    ]
    for chain in chains:
        found = [spans[service][name] for service, name in chain]
        kinds = [Span.SPAN_KIND_SERVER, Span.SPAN_KIND_CLIENT] * 3
        assert [span.kind for span in found] == kinds[: len(found)], chain
        parents = [span.parent_span_id for span in found[1:]]
        assert parents == [span.span_id for span in found[:-1]], chain
    for service, work in (("prefill", "prefill"), ("decode", "prepare")):
        events = sorted(collector.spans[service][work].events, key=lambda e: e.time_unix_nano)
        happened = [event.name for event in events]
        assert happened == ["admitted", "kv.in_place", "started", "first_token", "kv.published"]
    generation = next(span for name, span in collector.spans["frontend"].items() if MODEL in name)
    attributes = {a.key: a.value for a in generation.attributes}
    assert attributes["gen_ai.usage.input_tokens"].int_value == 100
    assert attributes["gen_ai.usage.output_tokens"].int_value == 8
    assert attributes["gen_ai.request.model"].string_value == MODEL


async def test_every_process_shows_its_metrics_and_writes_json_lines_with_its_name(local_cluster):
    ids = ("frontend-0", "router-0", "kvstore-0", "prefill-0", "decode-0")
    cluster = await local_cluster(own=True, processes=ids)
    await cluster.client.generate(
        prompt_of(50), model=MODEL, max_tokens=8, ignore_eos=True
    ).answer()
    expected = {
        "frontend": "gen_ai_server_time_to_first_token_seconds_bucket",
        "router": "baton_router_",
        "kvstore": "baton_kv_",
        "prefill": "baton_worker_kv_put_bytes_total",
        "decode": 'vllm:cache_config_info{block_size="16",model="tiny",model_name="tiny"',
    }
    for identity in ids:
        service = cluster[identity]
        assert any(name.startswith(expected[service.name]) for name in await service.metrics())
        lines = [json.loads(line) for line in service.log_path.read_text().splitlines()]
        assert {line["instance"] for line in lines} == {identity}
