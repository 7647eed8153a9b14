"""What chat and text completions look like in JSON, as far as they are alike."""

from collections.abc import Sequence
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
    fingerprint: str
    """Of the weights that answer: `system_fingerprint`."""
    n: int
    """Outputs of each prompt that are given."""
    drawn: int
    """Outputs of each prompt that there are; of more than `n` the likeliest are given."""
    logprobs: bool
    token_ids: bool
    """Also give token ids, as vLLM does."""
    usage: bool
    """Give usage in a last chunk of a stream."""
    continuous_usage: bool = False
    """Give usage so far in every chunk of a stream."""
    tokens_as_ids: bool = False
    """Log probabilities name tokens as `token_id:N`."""
    prompt_logprobs: bool = False
    """Also give those of the prompt."""
    echo: Sequence[str] = ()
    """Texts that come before the outputs, one of each prompt; none: nothing is echoed."""
    echo_logprobs: bool = False
    """The echoed prompts have log probabilities, too."""
    reasoning: bool = True
    """Give what the model thinks before it answers."""
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
            **usage_body(self._prompt, self._output),
            "prompt_tokens_details": {"cached_tokens": self._cached},
        }


def usage_body(prompt: int, output: int) -> dict[str, Any]:
    """Return `usage` of so many tokens."""
    return {
        "prompt_tokens": prompt,
        "completion_tokens": output,
        "total_tokens": prompt + output,
    }
