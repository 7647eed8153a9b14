"""Bodies of the OpenAI API that are read.

Types are checked here, values by the validator. Defaults are those of the OpenAI API; what is
`null` is as if it were not there. What becomes of every other field stands in `fields`.
"""

from typing import TYPE_CHECKING, Any, Literal

import msgspec

from baton.sampling import PARAMETERS
from services.frontend.openai.request.field import Body
from services.frontend.openai.request.fields import OTHER_SHAPE, fields_of
from services.frontend.openai.request.shape import strict, with_others
from services.frontend.openai.service_tier import ServiceTier


class StreamOptions(msgspec.Struct):
    include_usage: bool | None = None
    continuous_usage_stats: bool | None = None


class ImageUrl(msgspec.Struct):
    url: str = ""
    detail: str | None = None


class ContentPart(msgspec.Struct):
    type: str = "text"
    text: str | None = None
    image_url: str | ImageUrl | None = None
    refusal: str | None = None
    thinking: Any = None


class FunctionBody(msgspec.Struct):
    """A call of a function, in a conversation."""

    name: str = ""
    arguments: Any = None
    """JSON as text, as OpenAI has it; some clients send the object itself."""


class MessageBody(msgspec.Struct):
    role: str = ""
    content: str | list[str | ContentPart] | None = None
    refusal: str | None = None
    name: str | None = None
    tool_calls: list[Any] | None = None
    tool_call_id: str | None = None
    reasoning_content: str | None = None
    reasoning: str | None = None
    function_call: FunctionBody | None = None
    audio: Any = None


if TYPE_CHECKING:
    SharedParameters = msgspec.Struct
else:
    SharedParameters = msgspec.defstruct(
        "SharedParameters",
        [
            (each.name, each.type | None, None)
            for each in PARAMETERS
            if each.name not in OTHER_SHAPE
        ],
        kw_only=True,
    )
    """The parameters of `baton.sampling` that bodies have in the same shape."""


class BatonOptions(msgspec.Struct, forbid_unknown_fields=True):
    """What only Baton has."""

    fallback: Literal["allow", "never"] | None = None


class Common(SharedParameters, kw_only=True):
    """What chat and text completions share."""

    model: str | None = None
    max_tokens: int | None = None
    n: int | None = None
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    stop: str | list[str] | None = None
    bad_words: str | list[str] | None = None
    logit_bias: dict[str, float] | None = None
    prompt_logprobs: int | None = None
    echo: bool | None = None
    truncate_prompt_tokens: int | None = None
    truncation_side: Literal["left", "right"] | None = None
    add_special_tokens: bool | None = None
    # Not OpenAI's; as vLLM has it.
    return_token_ids: bool | None = None
    return_tokens_as_token_ids: bool | None = None
    # Baton's; 0 is as if it were not there.
    timeout_seconds: float | None = None
    ttft_target_seconds: float | None = None
    baton: BatonOptions | None = None
    # Baton's; it must be the API key's tenant.
    tenant: str | None = None
    # The form of the output: see `response_format`.
    response_format: dict[str, Any] | None = None
    structured_outputs: dict[str, Any] | None = None
    guided_json: Any = None
    guided_regex: str | None = None
    guided_choice: list[str] | None = None
    guided_grammar: str | None = None


class ChatBody(Common, kw_only=True):
    messages: list[MessageBody] | None = None
    add_generation_prompt: bool | None = None
    continue_final_message: bool | None = None
    chat_template_kwargs: dict[str, Any] | None = None
    max_completion_tokens: int | None = None
    logprobs: bool | None = None
    top_logprobs: int | None = None
    documents: list[Any] | None = None
    reasoning_effort: str | None = None
    include_reasoning: bool | None = None
    tools: list[Any] | None = None
    tool_choice: Any = None
    parallel_tool_calls: bool | None = None
    functions: list[Any] | None = None
    function_call: Any = None
    store: bool | None = None
    # As of any type where nothing is stored: it changes nothing there.
    metadata: Any = None
    service_tier: ServiceTier | None = None


class CompletionBody(Common, kw_only=True):
    prompt: msgspec.Raw = msgspec.Raw()
    logprobs: int | None = None
    best_of: int | None = None
    suffix: str | None = None


class TokenizeBody(msgspec.Struct, kw_only=True):
    """As vLLM has it."""

    model: str | None = None
    prompt: str | None = None
    messages: list[MessageBody] | None = None
    tools: list[Any] | None = None
    add_generation_prompt: bool | None = None
    continue_final_message: bool | None = None
    chat_template_kwargs: dict[str, Any] | None = None
    add_special_tokens: bool | None = None
    documents: list[Any] | None = None
    reasoning_effort: str | None = None
    return_token_strs: bool | None = None


class DetokenizeBody(msgspec.Struct, kw_only=True):
    """As vLLM has it."""

    model: str | None = None
    tokens: list[int] = []


ANY_CHAT = with_others(ChatBody, fields_of(Body.CHAT))
"""A chat completion with all fields of the table, and any others."""
ANY_COMPLETION = with_others(CompletionBody, fields_of(Body.COMPLETION))
CHAT = strict(ANY_CHAT)
"""A chat completion with fields of the table only."""
COMPLETION = strict(ANY_COMPLETION)
