"""Bodies of the OpenAI API that are read, as far as this server knows them.

Types are checked here, values by the validator. Defaults are those of the OpenAI API; what is
`null` is as if it were not there. Parameters that are documented nowhere are ignored.
"""

from typing import TYPE_CHECKING, Any

import msgspec

from baton.sampling import PARAMETERS
from services.frontend.requests.validate import STRUCTURED_OUTPUT, unsupported


class StreamOptions(msgspec.Struct):
    include_usage: bool | None = None


class ContentPart(msgspec.Struct):
    type: str = ""
    text: str | None = None


class MessageBody(msgspec.Struct):
    role: str = ""
    content: str | list[ContentPart] | None = None
    name: str | None = None
    tool_calls: Any = None
    function_call: Any = None
    audio: Any = None


if TYPE_CHECKING:
    _Parameters = msgspec.Struct
else:
    _Parameters = msgspec.defstruct(
        "_Parameters",
        [
            (each.name, each.type | None, None)
            for each in PARAMETERS
            if each.name not in ("grammar", "logprobs", "max_tokens", "stop")
        ],
        kw_only=True,
    )
    """The parameters of `baton.sampling` that bodies have in the same shape."""


class Common(_Parameters, kw_only=True):
    """What chat and text completions share."""

    model: str | None = None
    max_tokens: int | None = None
    n: int | None = None
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    stop: str | list[str] | None = None
    # Not OpenAI's; as vLLM has it.
    return_token_ids: bool | None = None
    # Nobody's: who names a tenant that is not the key's is told so.
    tenant: str | None = None
    # Refused unless they ask for nothing; see `refuse_unsupported`.
    best_of: Any = None
    guided_choice: Any = None
    guided_grammar: Any = None
    guided_json: Any = None
    guided_regex: Any = None
    prompt_logprobs: Any = None
    response_format: Any = None
    structured_outputs: Any = None
    use_beam_search: Any = None


class ChatBody(Common, kw_only=True):
    messages: list[MessageBody] | None = None
    max_completion_tokens: int | None = None
    logprobs: bool | None = None
    top_logprobs: int | None = None
    # Refused unless they ask for nothing.
    audio: Any = None
    function_call: Any = None
    functions: Any = None
    modalities: Any = None
    parallel_tool_calls: Any = None
    prediction: Any = None
    reasoning_effort: Any = None
    tool_choice: Any = None
    tools: Any = None
    verbosity: Any = None
    web_search_options: Any = None


class CompletionBody(Common, kw_only=True):
    prompt: msgspec.Raw = msgspec.Raw()
    logprobs: int | None = None
    # Refused unless they ask for nothing.
    echo: Any = None
    suffix: Any = None


class TokenizeBody(msgspec.Struct):
    """As vLLM has it."""

    model: str | None = None
    prompt: str | None = None
    messages: list[MessageBody] | None = None


_NOTHING: dict[str, tuple[Any, ...]] = {
    "audio": (),
    "best_of": (1,),
    "echo": (False,),
    "function_call": ("none",),
    "functions": ([],),
    "guided_choice": ([],),
    "guided_grammar": ("",),
    "guided_json": (),
    "guided_regex": ("",),
    "modalities": (["text"],),
    "parallel_tool_calls": (True, False),
    "prediction": (),
    "prompt_logprobs": (),
    "reasoning_effort": (),
    "response_format": ({"type": "text"},),
    "structured_outputs": (),
    "suffix": ("",),
    "tool_choice": ("none", "auto"),
    "tools": ([],),
    "use_beam_search": (False,),
    "verbosity": (),
    "web_search_options": (),
}
"""Documented parameters that are not supported, and the values with which they ask for nothing."""

_FEATURES = dict.fromkeys(
    (
        "guided_choice",
        "guided_grammar",
        "guided_json",
        "guided_regex",
        "response_format",
        "structured_outputs",
    ),
    STRUCTURED_OUTPUT,
)
"""The feature that a parameter asks for, where its own name is not that of the feature."""

_REFUSED = {
    body: tuple(name for name in _NOTHING if name in body.__struct_fields__)
    for body in (ChatBody, CompletionBody)
}


def refuse_unsupported(body: ChatBody | CompletionBody) -> None:
    """Refuse documented parameters that are not supported, by name.

    Raises:
        BatonError: UNSUPPORTED_PARAMETER.
    """
    for name in _REFUSED[type(body)]:
        value = getattr(body, name)
        if value is not None and value not in _NOTHING[name]:
            raise unsupported(name, _FEATURES.get(name, ""))
