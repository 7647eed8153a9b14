"""Sends spans to an OTLP collector. Imported only if one is configured, because it takes 0.2 s."""

from opentelemetry.exporter.otlp.proto.grpc.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter
from opentelemetry.sdk.trace.sampling import ParentBased, TraceIdRatioBased

from baton import __version__
from baton.settings.groups import TelemetrySettings
from baton.settings.values import parse_headers


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
) -> TracerProvider:
    """Return a provider that records a process's spans and passes them to an exporter in batches.

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
        sampler=ParentBased(TraceIdRatioBased(settings.sample_ratio)),
        resource=Resource.create(attributes),
        shutdown_on_exit=False,
    )
    made.add_span_processor(
        BatchSpanProcessor(
            exporter,
            max_queue_size=settings.otlp_queue_spans,  # a full queue drops the oldest spans
            schedule_delay_millis=settings.otlp_interval_seconds * 1000,
            max_export_batch_size=min(512, settings.otlp_queue_spans),
        )
    )
    return made
