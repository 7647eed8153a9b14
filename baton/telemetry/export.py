"""Sends spans to an OTLP collector. Imported only if one is configured, because it takes 0.2 s."""

from opentelemetry.exporter.otlp.proto.grpc.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter
from opentelemetry.sdk.trace.sampling import ParentBased, TraceIdRatioBased

from baton import __version__
from baton.settings.groups import TelemetrySettings
from baton.settings.values import parse_headers
from baton.telemetry.tail import TailProcessor, tail_sampler


def otlp(settings: TelemetrySettings) -> SpanExporter:
    """Return an exporter to the collector of the settings."""
    # Without a scheme the exporter would speak TLS; here `host:4317` means what it does elsewhere.
    return OTLPSpanExporter(
        endpoint=settings.otlp_endpoint,
        insecure=not settings.otlp_endpoint.startswith("https://"),
        headers=parse_headers(settings.otlp_headers.get_secret_value()),
        timeout=settings.otlp_timeout_seconds,
    )


def provider(
    service: str, instance_id: str, settings: TelemetrySettings, exporter: SpanExporter
) -> tuple[TracerProvider, TailProcessor | None]:
    """Return a provider that records a process's spans and passes them to an exporter in batches,
    and what holds spans of traces that are not sampled; None: nothing.

    Args:
        service: name of the process (`service.name`).
        instance_id: name of the instance (`service.instance.id`).
        settings: the share of traces to keep, and how many spans wait and for how long.
        exporter: destination of the spans.
    """
    attributes = {
        "service.namespace": "baton",
        "service.name": service,
        "service.version": __version__,
        "service.instance.id": instance_id,
    }
    made = TracerProvider(
        sampler=tail_sampler(settings.sample_ratio)
        if settings.tail_spans
        else ParentBased(TraceIdRatioBased(settings.sample_ratio)),
        resource=Resource.create(attributes),
        shutdown_on_exit=False,
    )
    batches = BatchSpanProcessor(
        exporter,
        max_queue_size=settings.otlp_queue_spans,  # a full queue drops the oldest spans
        schedule_delay_millis=settings.otlp_interval_seconds * 1000,
        max_export_batch_size=min(512, settings.otlp_queue_spans),
    )
    tail = TailProcessor(batches, settings.tail_spans) if settings.tail_spans else None
    made.add_span_processor(tail or batches)
    return made, tail
