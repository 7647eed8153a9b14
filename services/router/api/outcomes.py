"""The outcomes of queries in metrics and traces, and rejections on the wire."""

from collections.abc import Mapping

from opentelemetry.trace import Span, SpanKind

from baton.errors import BatonError
from baton.internal.v1 import router_pb2
from baton.telemetry import tracing
from services.router import metrics

Attributes = Mapping[str, str | int | float]


def begin_span(query: router_pb2.PlaceQuery) -> Span | None:
    """Return a span of the query's trace, to be ended with its outcome; None: not recorded."""
    if not tracing.recording():
        return None
    parent = tracing.extract(query.traceparent) if query.traceparent else None
    return tracing.tracer().start_span("place", parent, SpanKind.SERVER)


def end_span(span: Span | None, attributes: Attributes) -> None:
    """End a query's span."""
    if span is not None:
        span.set_attributes(dict(attributes))
        span.end()


def placement_attributes(
    request_id: str, model: str, placement: router_pb2.Placement, waited: float
) -> Attributes:
    """Return the span attributes of a placement.

    Args:
        request_id: of the request.
        model: of the request.
        placement: the answer.
        waited: seconds in queues of routers.
    """
    prediction = placement.prediction
    return {
        "baton.request_id": request_id,
        "gen_ai.request.model": model,
        "baton.ticket": placement.ticket,
        "baton.prefill": placement.prefill.instance_id,
        "baton.decode": placement.decode.instance_id,
        "baton.cached_tokens": prediction.cached_tokens,
        "baton.waited_seconds": waited,
        "baton.queue_seconds": prediction.queue_seconds,
        "baton.transfer_seconds": prediction.transfer_seconds,
        "baton.prefill_seconds": prediction.prefill_seconds,
        "baton.reason": prediction.reason,
    }


def refuse(failed: router_pb2.PlaceFailed, correlation_id: int, error: BatonError) -> None:
    """Fill in why there is no placement, and count it."""
    failed.correlation_id = correlation_id
    failed.status.CopyFrom(error.to_status())
    # Without the model: the name may not be one of a model.
    metrics.PLACEMENTS.labels("", error.reason.name.lower()).inc()
