"""The usage of a response in JSON."""

from typing import Any

from baton.request.stream_events import Usage


def usage_body(usage: Usage, reasoning_tokens: int = 0) -> dict[str, Any]:
    """Return a usage in OpenAI's form.

    Args:
        usage: of the request.
        reasoning_tokens: output tokens that the model thought with.
    """
    prompt, output = usage.prompt_tokens, usage.output_tokens
    written = prompt - usage.cached_tokens
    return {
        "input_tokens": prompt,
        "input_tokens_details": {
            "cached_tokens": usage.cached_tokens,
            "cache_write_tokens": written,
        },
        "output_tokens": output,
        "output_tokens_details": {"reasoning_tokens": reasoning_tokens},
        "total_tokens": prompt + output,
    }
