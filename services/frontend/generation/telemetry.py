"""What is recorded of a request when it has ended: metrics and its span."""

from opentelemetry import trace

from services.frontend.generation.orchestrator import Orchestrator
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
    run: Orchestrator, operation: str, outcome: str, span: trace.Span, seconds: float
) -> None:
    """Record an ended request and end its span.

    Args:
        run: the request, closed.
        operation: `chat` or `text_completion`.
        outcome: `ok`, or the reason of the error table that it ended for.
        span: its span.
        seconds: from its arrival to its end.
    """
    output_tokens, cached_tokens = run.output_tokens, run.cached_tokens
    prompt_tokens = len(run.request.prompt)
    REQUESTS.labels(operation, outcome).inc()
    DURATION.observe(seconds)
    PROMPT_TOKENS.inc(prompt_tokens)
    CACHED_TOKENS.inc(cached_tokens)
    OUTPUT_TOKENS.inc(output_tokens)
    if run.first_token_seconds is not None:
        FIRST_TOKEN.observe(run.first_token_seconds)
        per_choice = output_tokens / run.request.n
        if outcome == "ok" and per_choice > 1:
            PER_TOKEN.observe((seconds - run.first_token_seconds) / (per_choice - 1))
    if span.is_recording():
        span.set_attribute("gen_ai.operation.name", operation)
        span.set_attribute("gen_ai.provider.name", "baton")
        span.set_attribute("gen_ai.request.model", run.request.model.name)
        span.set_attribute("gen_ai.response.model", run.request.model.name)
        span.set_attribute("gen_ai.response.id", run.request.id)
        span.set_attribute("gen_ai.usage.input_tokens", prompt_tokens)
        span.set_attribute("gen_ai.usage.output_tokens", output_tokens)
        span.set_attribute("gen_ai.usage.cache_read.input_tokens", cached_tokens)
        if outcome != "ok":
            span.set_attribute("error.type", outcome)
            span.set_status(trace.StatusCode.ERROR)
    span.end()
