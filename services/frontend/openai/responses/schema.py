"""The body of a response; types as in `request.schema`."""

from typing import Any, Literal

import msgspec

from services.frontend.openai.request.schema import BatonOptions, SharedParameters
from services.frontend.openai.request.shape import strict, with_others
from services.frontend.openai.responses.fields import RESPONSE_FIELDS
from services.frontend.openai.service_tier import ServiceTier

_WINDOWS = {"soonest": 0, "2h": 2 * 3600, "8h": 8 * 3600}
"""Completion windows, in seconds."""


class TextConfig(msgspec.Struct):
    format: dict[str, Any] | None = None
    verbosity: str | None = None


class ReasoningConfig(msgspec.Struct):
    effort: str | None = None
    summary: Any = None
    generate_summary: Any = None
    context: str | None = None
    mode: str | None = None


class BackgroundOptions(msgspec.Struct):
    completion_window: Literal["soonest", "2h", "8h"] | None = None


class ConversationName(msgspec.Struct):
    id: str


class ResponseBody(SharedParameters, kw_only=True):
    model: str | None = None
    input: str | list[Any] | None = None
    instructions: str | None = None
    stream: bool | None = None
    max_output_tokens: int | None = None
    stop: str | list[str] | None = None
    top_logprobs: int | None = None
    include: list[str] | None = None
    tools: list[Any] | None = None
    tool_choice: Any = None
    parallel_tool_calls: bool | None = None
    text: TextConfig | None = None
    reasoning: ReasoningConfig | None = None
    metadata: dict[str, str] | None = None
    truncation: str | None = None
    context_management: list[Any] | None = None
    store: bool | None = None
    previous_response_id: str | None = None
    conversation: str | ConversationName | None = None
    background: bool | None = None
    background_options: BackgroundOptions | None = None
    service_tier: ServiceTier | None = None
    # Not OpenAI's; as chat completions have it.
    chat_template_kwargs: dict[str, Any] | None = None
    # Baton's; 0 is as if it were not there.
    timeout_seconds: float | None = None
    ttft_target_seconds: float | None = None
    baton: BatonOptions | None = None
    # Baton's; it must be the API key's tenant.
    tenant: str | None = None

    @property
    def window_seconds(self) -> int:
        """Seconds in which it is to be complete, in the background; 0: soonest."""
        options = self.background_options
        return 0 if options is None else _WINDOWS[options.completion_window or "soonest"]

    @property
    def tier(self) -> ServiceTier | None:
        """The tier that it asks for: one that has hours is in no hurry."""
        return "flex" if self.window_seconds else self.service_tier

    @property
    def conversation_id(self) -> str:
        """The id of the conversation that it moves on; empty: none."""
        given = self.conversation
        return given.id if isinstance(given, ConversationName) else given or ""


ANY_RESPONSE = with_others(ResponseBody, RESPONSE_FIELDS)
"""A response with all fields of the table, and any others."""
RESPONSE = strict(ANY_RESPONSE)
"""A response with fields of the table only."""
