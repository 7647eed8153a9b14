"""Traces: spans made by hand, W3C trace context between processes, OTLP to a collector.

Without a collector a scope has no provider: spans are then empty objects that only carry the
caller's trace on, which costs a microsecond each.
"""

from collections.abc import Mapping
from threading import Thread

from opentelemetry import trace
from opentelemetry.context import Context
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter
from opentelemetry.sdk.trace.sampling import ParentBased, TraceIdRatioBased
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from baton import __version__
from baton.settings.groups import TelemetrySettings
from baton.settings.values import parse_headers
from baton.telemetry.scope import current

_MAX_TRACEPARENT = 256
_propagator = TraceContextTextMapPropagator()


def configure(
    service: str,
    settings: TelemetrySettings,
    instance_id: str = "",
    exporter: SpanExporter | None = None,
) -> None:
    """Begin to record the scope's spans, once, if there is somewhere to send them.

    Args:
        service: name of the process (`service.name`).
        settings: the collector and the share of traces to keep; a caller's choice is followed.
        instance_id: name of the instance (`service.instance.id`).
        exporter: where spans go instead of the collector.
    """
    if exporter is None:
        if not settings.otlp_endpoint:
            return
        exporter = _otlp(settings)
    attributes = {
        "service.namespace": "baton",
        "service.name": service,
        "service.version": __version__,
        "service.instance.id": instance_id,
    }
    provider = TracerProvider(
        sampler=ParentBased(TraceIdRatioBased(settings.sample_ratio)),
        resource=Resource.create(attributes),
        shutdown_on_exit=False,
    )
    provider.add_span_processor(
        BatchSpanProcessor(
            exporter,
            max_queue_size=settings.otlp_queue_spans,  # a full queue drops the oldest spans
            schedule_delay_millis=settings.otlp_interval_seconds * 1000,
            max_export_batch_size=min(512, settings.otlp_queue_spans),
        )
    )
    scope = current()
    scope.provider, scope.tracer = provider, provider.get_tracer("baton", __version__)


def shutdown(seconds: float = 3.0) -> None:
    """Send what is left and stop. Blocks for at most `seconds`, whatever the collector does."""
    scope = current()
    if scope.provider is None:
        return
    # The provider's own shutdown waits 30 s for a collector that does not answer.
    flush = Thread(target=scope.provider.shutdown, name="trace-flush", daemon=True)
    scope.provider, scope.tracer = None, trace.NoOpTracer()
    flush.start()
    flush.join(seconds)


def tracer() -> trace.Tracer:
    """Return what makes spans: `with tracer().start_as_current_span("route"): ...`."""
    return current().tracer


def inject(context: Context | None = None) -> str:
    """W3C `traceparent` of the current span, or of `context`'s. Empty where there is no trace."""
    carrier: dict[str, str] = {}
    _propagator.inject(carrier, context)
    return carrier.get("traceparent", "")


def extract(traceparent: str) -> Context:
    """The context that a `traceparent` names; an empty one where it is empty or malformed."""
    carrier: Mapping[str, str] = {"traceparent": traceparent[:_MAX_TRACEPARENT]}
    return _propagator.extract(carrier, Context())


def _otlp(settings: TelemetrySettings) -> SpanExporter:
    # Imported here: it takes 0.2 s that a process without a collector should not pay.
    from opentelemetry.exporter.otlp.proto.grpc.trace_exporter import OTLPSpanExporter

    # Without a scheme the exporter would speak TLS; here `host:4317` means what it does elsewhere.
    return OTLPSpanExporter(
        endpoint=settings.otlp_endpoint,
        insecure=not settings.otlp_endpoint.startswith("https://"),
        headers=parse_headers(settings.otlp_headers.get_secret_value()),
        timeout=settings.otlp_timeout_seconds,
    )
