"""The APIs of upstreams, by name."""

from collections.abc import Callable
from typing import Any, NamedTuple, Protocol

from services.frontend.models.model import ProvidedBy
from services.frontend.providers.anthropic import request as anthropic
from services.frontend.providers.anthropic.stream import AnthropicStream
from services.frontend.providers.openai import request as openai
from services.frontend.providers.openai.stream import OpenAiStream
from services.frontend.requests.request import ChatPrompt, GenerationRequest
from services.frontend.workers.events import ProviderOutput, ProviderUsage


class UpstreamStream(Protocol):
    """Reads the events of one answer. Pure."""

    done: bool
    """Whether the upstream said that the stream has ended."""

    @property
    def usage(self) -> ProviderUsage | None:
        """What the upstream counted; None: nothing, so far."""

    @property
    def complete(self) -> bool:
        """Whether all choices have ended."""

    def read(self, data: bytes) -> list[ProviderOutput]:
        """Return the output in an event.

        Raises:
            BadAnswerError: it is no event of the API.
            UpstreamFailure: the upstream reports an error.
        """


class UpstreamFormat(NamedTuple):
    """Requests and streams of an API."""

    path: str
    """Follows the provider's URL."""
    body_of: Callable[[GenerationRequest, ChatPrompt, ProvidedBy], dict[str, Any]]
    """Returns a body, without the maximum of output tokens."""
    limit_field: Callable[[ProvidedBy], str]
    """Returns the field of that maximum."""
    stream: Callable[[int, str], UpstreamStream]
    """Returns the reader of an answer, of choices and the request's id."""
    added_tokens: Callable[[dict[str, Any]], int]
    """Returns the most tokens that the upstream adds to the prompt of a body."""


FORMATS = {
    "openai": UpstreamFormat(
        openai.PATH,
        openai.body_of,
        openai.limit_field,
        OpenAiStream,
        openai.added_tokens,
    ),
    "anthropic": UpstreamFormat(
        anthropic.PATH,
        anthropic.body_of,
        anthropic.limit_field,
        AnthropicStream,
        anthropic.added_tokens,
    ),
}
