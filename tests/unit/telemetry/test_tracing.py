"""Traces: propagation without a collector, and export with one."""

import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

import grpc
import pytest
from opentelemetry import trace
from opentelemetry.proto.collector.trace.v1 import trace_service_pb2, trace_service_pb2_grpc
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import SpanExporter, SpanExportResult
from pydantic import SecretStr

from baton.settings import TelemetrySettings
from baton.telemetry import tracing
from baton.telemetry.scope import TelemetryScope
from tests.support.clock import Stopwatch

SAMPLED = f"00-{'a' * 32}-{'b' * 16}-01"
NOT_SAMPLED = f"00-{'a' * 32}-{'b' * 16}-00"


class Memory(SpanExporter):
    def __init__(self, seconds: float = 0.0) -> None:
        self.spans: list[ReadableSpan] = []
        self._seconds = seconds

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        time.sleep(self._seconds)
        self.spans += spans
        return SpanExportResult.SUCCESS


@pytest.fixture
def scope():
    """A scope of the test's own: each begins to record spans once."""
    with TelemetryScope("router", "router-1").entered():
        yield
        tracing.shutdown()


def test_without_a_collector_the_callers_trace_is_carried_on(scope):
    tracing.configure("router", TelemetrySettings())
    with tracing.tracer().start_as_current_span("place", tracing.extract(SAMPLED)):
        assert tracing.inject() == SAMPLED


@pytest.mark.parametrize("text", ["", "nonsense", "00-" + "0" * 32 + "-" + "b" * 16 + "-01"])
def test_no_or_malformed_traceparent_is_no_trace(text):
    assert tracing.inject(tracing.extract(text)) == ""


def test_spans_of_a_sampled_caller_are_exported_under_its_trace(scope):
    memory = Memory()
    tracing.configure("router", TelemetrySettings(), "router-1", memory)
    with tracing.tracer().start_as_current_span("place", tracing.extract(SAMPLED)):
        child = tracing.inject()
    assert child.startswith(f"00-{'a' * 32}-")
    assert child != SAMPLED
    tracing.shutdown()
    (span,) = memory.spans
    assert span.name == "place"
    assert span.parent is not None
    assert format(span.parent.span_id, "016x") == "b" * 16
    assert span.resource.attributes["service.instance.id"] == "router-1"


def test_each_scope_exports_its_own_spans():
    exported = {}
    for name in ("router-1", "router-2"):
        with TelemetryScope("router", name).entered():
            exported[name] = Memory()
            tracing.configure("router", TelemetrySettings(), name, exported[name])
            with tracing.tracer().start_as_current_span(f"place at {name}"):
                pass
            tracing.shutdown()
    for name, memory in exported.items():
        assert [span.name for span in memory.spans] == [f"place at {name}"]


def test_callers_choice_not_to_sample_is_followed(scope):
    memory = Memory()
    tracing.configure("router", TelemetrySettings(), exporter=memory)
    with tracing.tracer().start_as_current_span("place", tracing.extract(NOT_SAMPLED)):
        assert tracing.inject().endswith("-00")
    tracing.shutdown()
    assert memory.spans == []


@pytest.mark.parametrize("scheme", ["http://", ""])
def test_spans_reach_a_collector_over_otlp(scope, scheme):
    received: list[str] = []
    headers: dict[str, str] = {}

    class Collector(trace_service_pb2_grpc.TraceServiceServicer):
        def Export(self, request, context):  # noqa: N802  # gRPC's name
            headers.update(context.invocation_metadata())
            received.extend(
                span.name
                for resource in request.resource_spans
                for batch in resource.scope_spans
                for span in batch.spans
            )
            return trace_service_pb2.ExportTraceServiceResponse()

    server = grpc.server(ThreadPoolExecutor(max_workers=1))
    trace_service_pb2_grpc.add_TraceServiceServicer_to_server(Collector(), server)
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    try:
        endpoint = f"{scheme}127.0.0.1:{port}"
        settings = TelemetrySettings(
            otlp_endpoint=endpoint, otlp_headers=SecretStr("Authorization=Bearer x=y, org=7")
        )
        tracing.configure("router", settings, "router-1")
        with tracing.tracer().start_as_current_span("place"):
            pass
        tracing.shutdown()
    finally:
        server.stop(0).wait()
    assert received == ["place"]
    assert (headers["authorization"], headers["org"]) == ("Bearer x=y", "7")


def test_shutdown_does_not_wait_for_a_stuck_collector(scope):
    tracing.configure("router", TelemetrySettings(), exporter=Memory(seconds=1.5))
    with tracing.tracer().start_as_current_span("place"):
        pass
    watch = Stopwatch()
    tracing.shutdown(seconds=0.2)
    assert watch.seconds < 1.0


def test_spans_of_a_slow_request_are_exported_though_it_was_not_sampled(scope):
    memory = Memory()
    tracing.configure("frontend", TelemetrySettings(sample_ratio=0), "f", memory)
    for slow in (False, True):
        root = tracing.tracer().start_span(f"root {slow}")
        context = trace.set_span_in_context(root)
        with tracing.current_span("route", context, trace.SpanKind.CLIENT):
            assert not int(tracing.inject()[-2:], 16) & 1, "no other process records it"
        if slow:
            tracing.keep(root)
        root.end()
    tracing.shutdown()
    assert [span.name for span in memory.spans] == ["route", "root True"]
    assert {span.context.trace_id for span in memory.spans} == {root.get_span_context().trace_id}
    assert memory.spans[0].parent.span_id == root.get_span_context().span_id


def test_a_sampled_trace_is_exported_once_though_it_is_kept(scope):
    memory = Memory()
    tracing.configure("frontend", TelemetrySettings(), "f", memory)
    root = tracing.tracer().start_span("root")
    tracing.keep(root)
    root.end()
    tracing.shutdown()
    assert [span.name for span in memory.spans] == ["root"]


def test_a_callers_decision_and_the_bound_of_held_spans_are_kept(scope):
    memory = Memory()
    settings = TelemetrySettings(sample_ratio=0, tail_spans=3)
    tracing.configure("frontend", settings, "f", memory)
    decided = tracing.tracer().start_span("decided", tracing.extract(NOT_SAMPLED))
    assert not decided.is_recording()
    tracing.keep(decided)
    decided.end()
    root = tracing.tracer().start_span("root")
    for number in range(5):  # its first two are dropped with its trace
        with tracing.current_span(
            f"{number}", trace.set_span_in_context(root), trace.SpanKind.CLIENT
        ):
            pass
    tracing.keep(root)
    root.end()
    tracing.shutdown()
    assert [span.name for span in memory.spans] == ["4", "root"]
