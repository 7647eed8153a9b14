"""What chat and text completions look like in JSON, as far as they are alike."""

from dataclasses import dataclass
from typing import Any

from baton.stream_events import Usage


@dataclass(frozen=True, slots=True)
class ResponseOptions:
    """What an answer shall look like."""

    id: str
    """The answer's id."""
    created: int
    """Seconds since the Unix epoch."""
    model: str
    n: int
    logprobs: bool
    token_ids: bool
    """Also give token ids, as vLLM does."""
    usage: bool
    """Give usage in a last chunk of a stream."""
    exact_continuation: bool = True
    """Whether the outputs go on with the same tokens at other workers; said where they do not."""


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
            "prompt_tokens": self._prompt,
            "completion_tokens": self._output,
            "total_tokens": self._prompt + self._output,
            "prompt_tokens_details": {"cached_tokens": self._cached},
        }
