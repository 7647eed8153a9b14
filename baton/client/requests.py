"""Requests from keyword options. Ranges are the server's to check: it names the field and limit."""

import json
from collections.abc import Mapping, Sequence
from typing import Any, NotRequired, TypedDict, get_type_hints

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


class Message(TypedDict):
    """One turn of a conversation."""

    role: str
    """`system`, `user`, `assistant` or `tool`."""
    content: str
    name: NotRequired[str]
    tool_calls: NotRequired[Sequence[ToolCallMessage]]
    """Of the assistant."""
    tool_call_id: NotRequired[str]
    """Of a tool: the call that it answers."""
    reasoning: NotRequired[str]
    """Of the assistant: what it thought."""


class Options(SamplingOptions, total=False):
    """Keyword options of `generate` and `chat`; what is left out has the server's default."""

    adapter: str
    """One of the model's adapters. Default: none."""
    n: int
    """Independent outputs, 1 to 128."""
    truncate_prompt_tokens: int
    """Keep so many tokens of a longer prompt; -1: as many as leave room for the output. Default: a
    prompt that is too long is refused."""
    truncation_side: str
    """Of which end such a prompt loses tokens, `left` or `right`. Default: left."""
    add_special_tokens: bool
    """Whether those are added that the tokenizer adds around a text. Default: of `generate`."""
    request_id: str
    """Names the request in logs and traces. Default: drawn."""
    execution_id: str
    """Claims an execution: a second call with it is refused (`ConflictError`) while the first one
    runs, and for a minute after it finished. Default: drawn, so that what is tried again runs
    once."""
    timeout: float
    """Seconds for the whole call, retries included. Default: the client's."""
    resume: bool
    """Continue the stream elsewhere if its frontend is lost, unless `Started.exact_continuation` is
    false and tokens were received: tried for 30 s at a time, or not at all with `retries=0`. Needs
    n = 1."""


class GenerateOptions(Options, total=False):
    """Those of `generate`."""

    suffix: str
    """What the output leads to, with a prompt of text. Default: anything."""


class ChatOptions(Options, total=False):
    """Those of `chat`."""

    tools: Sequence[Tool]
    """Functions that the model may call."""
    tool_choice: str | ToolChoice
    """`auto`, `none`, `required`, or the name of the tool to call. Default: auto."""
    parallel_tool_calls: bool
    """Whether an answer may have more than one call. Default: true."""
    add_generation_prompt: bool
    """Whether the chat template begins the assistant's turn. Default: unless the answer goes on
    with the last message."""
    continue_final_message: bool
    """Whether the answer goes on with the last message. Default: false."""
    chat_template_kwargs: Mapping[str, Any]
    """Variables of the chat template, such as Qwen3's `enable_thinking`; plain JSON."""
    documents: Sequence[Any]
    """A variable of the chat template; plain JSON."""
    reasoning_effort: str
    """A variable of the chat template, and `enable_thinking`: whether it is not `none`."""


_SIDES = {
    "left": inference_pb2.TRUNCATION_SIDE_LEFT,
    "right": inference_pb2.TRUNCATION_SIDE_RIGHT,
}

_NAMES = frozenset(get_type_hints(GenerateOptions))
_CHAT_NAMES = frozenset(get_type_hints(ChatOptions))


def generate_request(
    prompt: str | Sequence[int], model: str, request_id: str, options: GenerateOptions
) -> inference_pb2.GenerateRequest:
    """Ask for a continuation of text, or of token ids as they are."""
    request = inference_pb2.GenerateRequest(
        context=_context(model, request_id, options),
        sampling=SamplingParams.from_options(options).to_proto(_given(options)),
        n=options.get("n", 0),
        suffix=options.get("suffix") or "",
        **_prompt_fields(options),
    )
    if isinstance(prompt, str):
        request.text = prompt
    else:
        request.token_ids.ids.extend(prompt)
        request.token_ids.SetInParent()  # an empty prompt is the server's to refuse
    return request


def chat_request(
    messages: str | Sequence[Message], model: str, request_id: str, options: ChatOptions
) -> inference_pb2.ChatRequest:
    """Ask for the next assistant turn. A string is one user message."""
    request = inference_pb2.ChatRequest(
        context=_context(model, request_id, options),
        messages=chat_messages(messages),
        sampling=SamplingParams.from_options(options).to_proto(_given(options)),
        n=options.get("n", 0),
        tools=tool_messages(options.get("tools") or ()),
        parallel_tool_calls=options.get("parallel_tool_calls"),
        add_generation_prompt=options.get("add_generation_prompt"),
        continue_final_message=bool(options.get("continue_final_message")),
        chat_template_kwargs=_json(options.get("chat_template_kwargs")),
        documents=_json(options.get("documents")),
        reasoning_effort=options.get("reasoning_effort"),
        **_prompt_fields(options),
    )
    choice = options.get("tool_choice")
    if choice is not None:
        request.tool_choice.CopyFrom(tool_choice_message(choice))
    return request


def tokenize_request(text: str | Sequence[Message], model: str) -> inference_pb2.TokenizeRequest:
    """Ask for the ids of text, or of messages as Chat would render them."""
    if isinstance(text, str):
        return inference_pb2.TokenizeRequest(model=model, text=text)
    return inference_pb2.TokenizeRequest(model=model, messages=chat_messages(text))


def chat_messages(messages: str | Sequence[Message]) -> list[inference_pb2.ChatMessage]:
    """Messages of the wire from a conversation; a string is one user message."""
    if isinstance(messages, str):
        return [inference_pb2.ChatMessage(role="user", content=messages)]
    return [
        inference_pb2.ChatMessage(
            role=message["role"],
            content=message["content"],
            name=message.get("name", ""),
            tool_calls=call_messages(message.get("tool_calls", ())),
            tool_call_id=message.get("tool_call_id", ""),
            reasoning=message.get("reasoning", ""),
        )
        for message in messages
    ]


def _prompt_fields(options: Options) -> dict[str, Any]:
    side = options.get("truncation_side")
    if side is not None and side not in _SIDES:
        raise ValueError(f"truncation_side: {side!r} is neither left nor right")
    return {
        "truncate_prompt_tokens": options.get("truncate_prompt_tokens"),
        "truncation_side": None if side is None else _SIDES[side],
        "add_special_tokens": options.get("add_special_tokens"),
    }


def _json(value: object) -> str:
    return "" if value is None else json.dumps(value, ensure_ascii=False)


def _given(options: Options) -> set[str]:
    return {name for name, value in options.items() if value is not None}


def _context(model: str, request_id: str, options: Options) -> common_pb2.RequestContext:
    return common_pb2.RequestContext(
        request_id=request_id,
        model=model,
        adapter=options.get("adapter", ""),
    )


def check_names(options: Options, *, chat: bool = False) -> None:
    """Refuse a misspelt option, which the wire would silently lose.

    Raises:
        TypeError: an option is not one of `GenerateOptions`, or, of a chat, of `ChatOptions`.
    """
    unknown = options.keys() - (_CHAT_NAMES if chat else _NAMES)
    if unknown:
        raise TypeError(f"unknown option: {', '.join(sorted(unknown))}")
