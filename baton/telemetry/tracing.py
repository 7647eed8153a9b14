"""Traces: manual spans, W3C trace context between processes, OTLP to a collector.

Without a collector a scope has no provider: spans are then empty objects that only propagate the
caller's trace, at a microsecond each.
"""

from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from threading import Thread
from typing import TYPE_CHECKING, NamedTuple

from opentelemetry import trace
from opentelemetry.context import Context, get_current
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from baton import __version__
from baton.settings.groups import TelemetrySettings
from baton.telemetry.scope import current

if TYPE_CHECKING:
    from opentelemetry.sdk.trace.export import SpanExporter

_MAX_TRACEPARENT = 256
_propagator = TraceContextTextMapPropagator()
_NOTHING = nullcontext()


def configure(
    service: str,
    settings: TelemetrySettings,
    instance_id: str = "",
    exporter: "SpanExporter | None" = None,
) -> None:
    """Start recording the scope's spans, once, if there is a destination.

    Args:
        service: name of the process (`service.name`).
        settings: the collector and the share of traces to keep; a caller's choice is followed.
        instance_id: name of the instance (`service.instance.id`).
        exporter: where spans go instead of the collector.
    """
    if exporter is None and not settings.otlp_endpoint:
        return
    from baton.telemetry.export import otlp, provider

    scope = current()
    made, scope.tail = provider(service, instance_id, settings, exporter or otlp(settings))
    scope.provider, scope.tracer = made, made.get_tracer("baton", __version__)


def shutdown(seconds: float = 3.0) -> None:
    """Send the remaining spans and stop. Block for at most `seconds`, regardless of the
    collector."""
    scope = current()
    if scope.provider is None:
        return
    # The provider's own shutdown waits 30 s for a collector that does not answer.
    flush = Thread(target=scope.provider.shutdown, name="trace-flush", daemon=True)
    scope.provider, scope.tracer = None, trace.NoOpTracer()
    flush.start()
    flush.join(seconds)


def recording() -> bool:
    """Return whether spans have a destination; else creating them may be skipped."""
    return current().provider is not None


class RequestTrace(NamedTuple):
    """The span of a request, and what is derived from it once instead of for each use."""

    span: trace.Span
    context: Context
    """Has the span as its current one."""
    traceparent: str
    """W3C, of the span; empty: the request has no trace."""
    exemplar: dict[str, str] | None
    """Of histograms; None: the span is not exported."""

    @property
    def id(self) -> str:
        """The trace's id in hexadecimal; empty: there is none."""
        return self.traceparent[3:35]

    def child(self, name: str, kind: trace.SpanKind) -> tuple[trace.Span, str]:
        """Start a span under the request's; return it and its `traceparent`."""
        scope = current()
        if scope.provider is None:
            return self.span, self.traceparent
        span = scope.tracer.start_span(name, self.context, kind)
        return span, inject(trace.set_span_in_context(span, self.context))


UNTRACED = RequestTrace(trace.INVALID_SPAN, Context(), "", None)
"""Of a request whose caller has no trace, while spans have no destination."""


def request_trace(name: str) -> RequestTrace:
    """Start the span of a request that this process serves, under the caller's if there is one."""
    scope = current()
    if scope.provider is None and not get_current():
        return UNTRACED
    span = scope.tracer.start_span(name, kind=trace.SpanKind.SERVER)
    context = trace.set_span_in_context(span)
    return RequestTrace(span, context, inject(context), exemplar(span))


def keep(span: trace.Span) -> None:
    """Export the trace of a root that is about to end, also if it was not sampled: this process's
    spans, for others have none of it."""
    tail = current().tail
    if tail is not None and span.is_recording():
        tail.keep(span.get_span_context().trace_id)


def exemplar(span: trace.Span) -> dict[str, str] | None:
    """Return a histogram's exemplar that names a span's trace; None: it is not exported."""
    if not span.is_recording():
        return None
    context = span.get_span_context()
    return {"trace_id": format(context.trace_id, "032x")} if context.trace_flags.sampled else None


def tracer() -> trace.Tracer:
    """Return the tracer: `with tracer().start_as_current_span("route"): ...`."""
    return current().tracer


def current_span(
    name: str, context: Context, kind: trace.SpanKind
) -> AbstractContextManager[object]:
    """Return a context manager with a new current span, a child of the context's span.

    If no spans are recorded, it does nothing, and calls within the block get the caller's trace.
    """
    scope = current()
    if scope.provider is None:
        return _NOTHING
    return scope.tracer.start_as_current_span(name, context, kind)


def inject(context: Context | None = None) -> str:
    """Return W3C `traceparent` of the current span, or of `context`'s; empty if there is no
    trace."""
    if context is None and not get_current():
        return ""
    carrier: dict[str, str] = {}
    _propagator.inject(carrier, context)
    return carrier.get("traceparent", "")


def extract(traceparent: str) -> Context:
    """Return the context of a `traceparent`; an empty one if it is empty or malformed."""
    carrier: Mapping[str, str] = {"traceparent": traceparent[:_MAX_TRACEPARENT]}
    return _propagator.extract(carrier, Context())
