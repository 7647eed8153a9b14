"""A placement is a span of its request's trace, and counts in /metrics."""

from typing import Any

import grpc
from opentelemetry.proto.collector.trace.v1 import trace_service_pb2 as otlp
from opentelemetry.proto.collector.trace.v1 import trace_service_pb2_grpc as otlp_grpc
from opentelemetry.proto.trace.v1.trace_pb2 import Span

from tests.support.wait import eventually

TRACE_ID, SPAN_ID = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"


class Collector(otlp_grpc.TraceServiceServicer):
    """An OpenTelemetry collector that keeps what it is sent."""

    def __init__(self) -> None:
        self.spans: list[Span] = []

    async def Export(self, request: Any, context: Any) -> Any:  # noqa: N802
        for resource in request.resource_spans:
            for scope in resource.scope_spans:
                self.spans += scope.spans
        return otlp.ExportTraceServiceResponse()


async def test_a_placement_is_a_span_in_the_trace_of_its_request(world) -> None:
    collector = Collector()
    server = grpc.aio.server()
    otlp_grpc.add_TraceServiceServicer_to_server(collector, server)
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    try:
        await world.store("store-a")
        await world.decode("d1")
        endpoint = f"http://127.0.0.1:{port}"
        router = await world.router({"telemetry.otlp_endpoint": endpoint})
        frontend = world.frontend(router)
        placement = await frontend.place(traceparent=f"00-{TRACE_ID}-{SPAN_ID}-01")
        await eventually(lambda: collector.spans)
    finally:
        await server.stop(0)
    span = next(span for span in collector.spans if span.name == "place")
    assert span.trace_id.hex() == TRACE_ID
    assert span.parent_span_id.hex() == SPAN_ID
    assert span.kind == Span.SPAN_KIND_SERVER
    attributes = {each.key: each.value.string_value for each in span.attributes}
    assert attributes["baton.decode"] == "d1"
    assert attributes["baton.ticket"] == placement.ticket
    assert attributes["gen_ai.request.model"] == "m"


async def test_placements_and_refusals_are_counted_by_outcome(world) -> None:
    await world.store("store-a")
    await world.decode("d1")
    router = await world.router()
    frontend = world.frontend(router)
    await frontend.place()
    await frontend.ask(context={"model": "nobody"})
    for model, outcome in (("m", "local"), ("", "model_not_found")):
        placed = {"model": model, "outcome": outcome}
        assert router.sample("baton_router_placements_total", **placed) == 1
