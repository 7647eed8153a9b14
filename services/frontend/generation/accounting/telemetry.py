"""Metrics and span of an ended generation."""

from opentelemetry.trace import StatusCode

from baton.telemetry.tracing import RequestTrace
from services.frontend.generation.accounting.progress import Progress
from services.frontend.metrics import PER_TOKEN


def record_generation(
    progress: Progress, operation: str, outcome: str, trace: RequestTrace, seconds: float
) -> None:
    """Record an ended generation and end its span.

    Args:
        progress: its outputs and usage.
        operation: `chat` or `text_completion`.
        outcome: `ok`, or the error's reason.
        trace: its trace.
        seconds: from its arrival to its end.
    """
    request, usage = progress.request, progress.usage
    if outcome == "ok" and usage.first_token_seconds is not None:
        per_choice = progress.output_tokens / request.n
        if per_choice > 1:
            mean = (seconds - usage.first_token_seconds) / (per_choice - 1)
            PER_TOKEN.labels(operation, request.model.name).observe(mean, trace.exemplar)
    span = trace.span
    if span.is_recording():
        span.set_attribute("gen_ai.operation.name", operation)
        span.set_attribute("gen_ai.provider.name", request.model.owner)
        span.set_attribute("gen_ai.request.model", request.requested or request.model.name)
        span.set_attribute("gen_ai.response.model", request.model.name)
        span.set_attribute("gen_ai.response.id", request.id)
        if request.context.adapter:
            span.set_attribute("baton.adapter", request.context.adapter)
        span.set_attribute("gen_ai.usage.input_tokens", usage.prompt_tokens)
        span.set_attribute("gen_ai.usage.output_tokens", progress.output_tokens)
        span.set_attribute("gen_ai.usage.cache_read.input_tokens", usage.cached_tokens)
        if outcome != "ok":
            span.set_attribute("error.type", outcome)
            span.set_status(StatusCode.ERROR)
    span.end()
