"""Build requests from keyword options. The server checks ranges and names the field and its
limit.
"""

import json
from collections.abc import Mapping, Sequence
from typing import Any, Literal, NotRequired, TypedDict, get_type_hints

from baton.client.tools import (
    Tool,
    ToolCallMessage,
    ToolChoice,
    call_messages,
    tool_choice_message,
    tool_messages,
)
from baton.sampling import SamplingOptions, SamplingParams
from baton.v1 import common_pb2, inference_pb2


class TextPart(TypedDict):
    """Text in a message with pictures."""

    type: Literal["text"]
    text: str


class PictureSource(TypedDict):
    url: str
    """A data URL: `data:image/png;base64,`."""


class PicturePart(TypedDict):
    """A picture in a message."""

    type: Literal["image_url"]
    image_url: PictureSource


class Message(TypedDict):
    """One turn of a conversation."""

    role: str
    """`system`, `user`, `assistant` or `tool`."""
    content: str | Sequence[TextPart | PicturePart]
    """Text; in a user message also text and pictures, in order."""
    name: NotRequired[str]
    tool_calls: NotRequired[Sequence[ToolCallMessage]]
    """Tool calls of an assistant message."""
    tool_call_id: NotRequired[str]
    """In a tool message: id of the call to which it responds."""
    reasoning: NotRequired[str]
    """Reasoning of an assistant message."""


class Options(SamplingOptions, total=False):
    """Keyword options of `generate` and `chat`; an omitted option has the server's default."""

    adapter: str
    """One of the model's adapters. Default: none."""
    fallback: Literal["allow", "never"]
    """Whether another model may answer if the requested one would let the request wait too long.
    Default: as the model's policy says.
    """
    n: int
    """Independent outputs, 1 to 128."""
    truncate_prompt_tokens: int
    """Keep this many tokens of a longer prompt; -1: as many as leave space for the output. Default:
    a prompt that is too long is rejected.
    """
    truncation_side: str
    """Side from which such a prompt loses tokens, `left` or `right`. Default: left."""
    add_special_tokens: bool
    """Whether to add the tokenizer's tokens around a text. Default: only for `generate`."""
    request_id: str
    """Names the request in logs and traces. Default: random."""
    execution_id: str
    """Claims an execution: a second call with it is rejected (`ConflictError`) while the first one
    runs, and for a minute after it finished. Default: random, so that a retried call runs once.
    """
    timeout: float
    """Seconds for the whole call, retries included. Default: the client's."""
    resume: bool
    """Continue the stream elsewhere if its frontend is lost, unless `Started.exact_continuation` is
    false and tokens were received. Retried for up to 30 s at a time, or not at all with
    `retries=0`. Needs n = 1.
    """


class GenerateOptions(Options, total=False):
    """Keyword options of `generate`."""

    suffix: str
    """Text that follows the output, with a text prompt. Default: none."""


class ChatOptions(Options, total=False):
    """Keyword options of `chat`."""

    tools: Sequence[Tool]
    """Functions that the model may call."""
    tool_choice: str | ToolChoice
    """`auto`, `none`, `required`, or the name of the tool to call. Default: auto."""
    parallel_tool_calls: bool
    """Whether a response may have more than one call. Default: true."""
    add_generation_prompt: bool
    """Whether the chat template begins the assistant's turn. Default: unless the response continues
    the last message.
    """
    continue_final_message: bool
    """Whether the response continues the last message. Default: false."""
    chat_template_kwargs: Mapping[str, Any]
    """Variables of the chat template, such as Qwen3's `enable_thinking`; plain JSON."""
    documents: Sequence[Any]
    """A variable of the chat template; plain JSON."""
    reasoning_effort: str
    """Variable of the chat template; also sets `enable_thinking` to whether it is not `none`."""


_SIDES = {
    "left": inference_pb2.TRUNCATION_SIDE_LEFT,
    "right": inference_pb2.TRUNCATION_SIDE_RIGHT,
}

_FALLBACKS = {"allow": common_pb2.FALLBACK_ALLOW, "never": common_pb2.FALLBACK_NEVER}

_NAMES = frozenset(get_type_hints(GenerateOptions))
_CHAT_NAMES = frozenset(get_type_hints(ChatOptions))


def generate_request(
    prompt: str | Sequence[int], model: str, request_id: str, options: GenerateOptions
) -> inference_pb2.GenerateRequest:
    """Return a request to continue a text, or token ids without further processing."""
    request = inference_pb2.GenerateRequest(
        context=context_of(model, request_id, options),
        sampling=SamplingParams.from_options(options).to_proto(given(options)),
        n=options.get("n", 0),
        suffix=options.get("suffix") or "",
        **_prompt_fields(options),
    )
    if isinstance(prompt, str):
        request.text = prompt
    else:
        request.token_ids.ids.extend(prompt)
        request.token_ids.SetInParent()  # the server rejects an empty prompt
    return request


def chat_request(
    messages: str | Sequence[Message], model: str, request_id: str, options: ChatOptions
) -> inference_pb2.ChatRequest:
    """Return a request for the next assistant turn. A string is one user message."""
    request = inference_pb2.ChatRequest(
        context=context_of(model, request_id, options),
        messages=chat_messages(messages),
        sampling=SamplingParams.from_options(options).to_proto(given(options)),
        n=options.get("n", 0),
        tools=tool_messages(options.get("tools") or ()),
        parallel_tool_calls=options.get("parallel_tool_calls"),
        add_generation_prompt=options.get("add_generation_prompt"),
        continue_final_message=bool(options.get("continue_final_message")),
        chat_template_kwargs=json_text(options.get("chat_template_kwargs")),
        documents=json_text(options.get("documents")),
        reasoning_effort=options.get("reasoning_effort"),
        **_prompt_fields(options),
    )
    choice = options.get("tool_choice")
    if choice is not None:
        request.tool_choice.CopyFrom(tool_choice_message(choice))
    return request


def tokenize_request(text: str | Sequence[Message], model: str) -> inference_pb2.TokenizeRequest:
    """Return a request for the ids of text, or of messages as Chat would render them."""
    if isinstance(text, str):
        return inference_pb2.TokenizeRequest(model=model, text=text)
    return inference_pb2.TokenizeRequest(model=model, messages=chat_messages(text))


def chat_messages(messages: str | Sequence[Message]) -> list[inference_pb2.ChatMessage]:
    """Return a conversation as wire messages; a string is one user message."""
    if isinstance(messages, str):
        return [inference_pb2.ChatMessage(role="user", content=messages)]
    return [
        inference_pb2.ChatMessage(
            role=message["role"],
            **content_fields(message["content"]),
            name=message.get("name", ""),
            tool_calls=call_messages(message.get("tool_calls", ())),
            tool_call_id=message.get("tool_call_id", ""),
            reasoning=message.get("reasoning", ""),
        )
        for message in messages
    ]


def content_fields(content: str | Sequence[TextPart | PicturePart]) -> dict[str, Any]:
    """Return the fields of a message with this content."""
    if isinstance(content, str):
        return {"content": content}
    part = inference_pb2.ContentPart
    parts = [
        part(text=each["text"])
        if each["type"] == "text"
        else part(image_url=each["image_url"]["url"])
        for each in content
    ]
    return {"parts": parts}


def _prompt_fields(options: Options) -> dict[str, Any]:
    side = options.get("truncation_side")
    if side is not None and side not in _SIDES:
        raise ValueError(f"truncation_side: {side!r} is not left or right")
    return {
        "truncate_prompt_tokens": options.get("truncate_prompt_tokens"),
        "truncation_side": None if side is None else _SIDES[side],
        "add_special_tokens": options.get("add_special_tokens"),
    }


def json_text(value: object) -> str:
    """Return a value as JSON; empty: None."""
    return "" if value is None else json.dumps(value, ensure_ascii=False)


def given(options: SamplingOptions) -> set[str]:
    """Return the names of options that are set."""
    return {name for name, value in options.items() if value is not None}


def context_of(
    model: str, request_id: str, options: Mapping[str, Any]
) -> common_pb2.RequestContext:
    """Return the context of a request."""
    return common_pb2.RequestContext(
        request_id=request_id,
        model=model,
        adapter=options.get("adapter", ""),
        fallback=_fallback(options),
    )


def _fallback(options: Mapping[str, Any]) -> common_pb2.Fallback.ValueType:
    said = options.get("fallback")
    if said is not None and said not in _FALLBACKS:
        raise ValueError(f"fallback: {said!r} is not allow or never")
    return common_pb2.FALLBACK_UNSPECIFIED if said is None else _FALLBACKS[said]


def check_names(options: Options, *, chat: bool = False) -> None:
    """Reject a misspelt option, which the wire would silently drop.

    Raises:
        TypeError: an option is not one of `GenerateOptions` or, for a chat, of `ChatOptions`.
    """
    unknown = options.keys() - (_CHAT_NAMES if chat else _NAMES)
    if unknown:
        raise TypeError(f"unknown option: {', '.join(sorted(unknown))}")
