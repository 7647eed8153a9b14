"""What is recorded of a request when it has ended: metrics and its span."""

from opentelemetry import trace

from services.frontend.generation.progress import RequestProgress
from services.frontend.metrics import (
    CACHED_TOKENS,
    DURATION,
    FIRST_TOKEN,
    OUTPUT_TOKENS,
    PER_TOKEN,
    PROMPT_TOKENS,
    REQUESTS,
)


def record(
    progress: RequestProgress, operation: str, outcome: str, span: trace.Span, seconds: float
) -> None:
    """Record an ended request and end its span.

    Args:
        progress: what it came to.
        operation: `chat` or `text_completion`.
        outcome: `ok`, or the reason of the error table that it ended for.
        span: its span.
        seconds: from its arrival to its end.
    """
    request, usage = progress.request, progress.usage
    prompt_tokens, output_tokens = len(request.prompt), progress.output_tokens
    cached_tokens = usage.cached_tokens
    REQUESTS.labels(operation, outcome).inc()
    DURATION.observe(seconds)
    PROMPT_TOKENS.inc(prompt_tokens)
    CACHED_TOKENS.inc(cached_tokens)
    OUTPUT_TOKENS.inc(output_tokens)
    if usage.first_token_seconds is not None:
        FIRST_TOKEN.observe(usage.first_token_seconds)
        per_choice = output_tokens / request.n
        if outcome == "ok" and per_choice > 1:
            PER_TOKEN.observe((seconds - usage.first_token_seconds) / (per_choice - 1))
    if span.is_recording():
        span.set_attribute("gen_ai.operation.name", operation)
        span.set_attribute("gen_ai.provider.name", "baton")
        span.set_attribute("gen_ai.request.model", request.model.name)
        span.set_attribute("gen_ai.response.model", request.model.name)
        span.set_attribute("gen_ai.response.id", request.id)
        span.set_attribute("gen_ai.usage.input_tokens", prompt_tokens)
        span.set_attribute("gen_ai.usage.output_tokens", output_tokens)
        span.set_attribute("gen_ai.usage.cache_read.input_tokens", cached_tokens)
        if outcome != "ok":
            span.set_attribute("error.type", outcome)
            span.set_status(trace.StatusCode.ERROR)
    span.end()
