"""`usage` of completions in JSON."""

from typing import Any

from baton.request.stream_events import Usage


class UsageSum:
    """`usage`, over all prompts of a body."""

    def __init__(self) -> None:
        self._prompt = self._cached = self._output = 0

    def add(self, usage: Usage) -> None:
        self._prompt += usage.prompt_tokens
        self._cached += usage.cached_tokens
        self._output += usage.output_tokens

    def body(self) -> dict[str, Any]:
        return {
            **usage_body(self._prompt, self._output),
            "prompt_tokens_details": {"cached_tokens": self._cached},
        }


def usage_body(prompt: int, output: int) -> dict[str, Any]:
    """Return `usage` for these token counts."""
    return {
        "prompt_tokens": prompt,
        "completion_tokens": output,
        "total_tokens": prompt + output,
    }
