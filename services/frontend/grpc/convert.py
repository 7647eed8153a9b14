"""Conversion between the public messages of `baton.v1` and the frontend's own types."""

import json
from collections.abc import Sequence
from typing import Any, TypeVar

from baton.errors import invalid_field
from baton.sampling import SamplingParams
from baton.v1 import common_pb2, inference_pb2
from services.frontend.grpc.tools import calls_of, tool_use_of, tools_of
from services.frontend.output.definitions import ToolDefinition
from services.frontend.pictures.data_url import PictureUrl
from services.frontend.requests.prompt_fields import template_options, with_suffix
from services.frontend.requests.refusals import check_count
from services.frontend.requests.request import (
    ChatPrompt,
    Fallback,
    GenerationRequest,
    Prompt,
    PromptOptions,
    Resume,
    TextPrompt,
    TokenPrompt,
)
from services.frontend.text.chat_template import ChatMessage

J = TypeVar("J", dict[str, Any], list[Any])

_SIDES = frozenset(inference_pb2.TruncationSide.values())
_FALLBACKS: dict[int, Fallback] = {
    common_pb2.FALLBACK_UNSPECIFIED: Fallback.POLICY,
    common_pb2.FALLBACK_ALLOW: Fallback.ALLOW,
    common_pb2.FALLBACK_NEVER: Fallback.NEVER,
}
_KINDS: dict[type, str] = {dict: "a JSON object", list: "a JSON array"}


def generation_request(
    request: inference_pb2.GenerateRequest | inference_pb2.ChatRequest,
    request_id: str,
    max_messages: int,
) -> GenerationRequest:
    """Return a client's request, unchecked.

    Raises:
        BatonError: as for `tool_use_of`, `_conversation` and `with_suffix`, in this order;
            INVALID_FIELD: a truncation side that does not exist.
    """
    context, use, resume = request.context, None, None
    prompt: Prompt
    if isinstance(request, inference_pb2.ChatRequest):
        use = tool_use_of(request)
        prompt = _conversation(request, () if use is None else use.tools, max_messages)
    else:
        prompt = _prompt(request)
    if request.HasField("resume"):
        resume = Resume(request.resume.output_ids, request.resume.seed)
    return GenerationRequest(
        model=context.model,
        prompt=prompt,
        sampling=SamplingParams.from_proto(request.sampling),
        given=frozenset(each.name for each, _ in request.sampling.ListFields()),
        tools=use,
        prompt_options=_prompt_options(request),
        n=request.n or 1,
        resume=resume,
        execution_id=context.execution_id,
        take_over=resume is not None or context.attempt > 0,
        request_id=request_id,
        tenant=context.tenant,
        priority=context.priority,
        ttft_target_seconds=context.ttft_target_seconds,
        adapter=context.adapter,
        cache_scope=context.cache_scope,
        fallback=_fallback(context.fallback),
    )


def _fallback(value: int) -> Fallback:
    """Return whether another model may answer.

    Raises:
        BatonError: INVALID_FIELD.
    """
    if value not in _FALLBACKS:
        raise invalid_field("fallback", f"{value} is not a value of Fallback")
    return _FALLBACKS[value]


def tokenized(
    request: inference_pb2.TokenizeRequest, max_messages: int
) -> tuple[Prompt, PromptOptions]:
    """Return the subject of a tokenize request, and its options; errors as for `tools_of` and
    `_conversation`."""
    options = PromptOptions(add_special_tokens=_or_none(request, "add_special_tokens"))
    if request.messages and not request.text:
        return _conversation(request, tools_of(request.tools), max_messages), options
    return TextPrompt(request.text), options


def _conversation(
    request: inference_pb2.ChatRequest | inference_pb2.TokenizeRequest,
    tools: Sequence[ToolDefinition],
    max_messages: int,
) -> ChatPrompt:
    """Return the prompt of a conversation, with the template's options.

    Raises:
        BatonError: it has more than `max_messages`, or a message has both content and parts; or as
            for `template_options`.
    """
    messages = request.messages
    check_count("messages", len(messages), max_messages)
    made = [_message(one, f"messages[{at}]") for at, one in enumerate(messages)]
    options = template_options(
        add_generation_prompt=_or_none(request, "add_generation_prompt"),
        continue_final_message=request.continue_final_message,
        chat_template_kwargs=json_field(request, "chat_template_kwargs", dict),
        documents=json_field(request, "documents", list),
        reasoning_effort=_or_none(request, "reasoning_effort"),
        tools=[tool.definition for tool in tools],
    )
    return ChatPrompt(made, options)


def _message(message: inference_pb2.ChatMessage, where: str) -> ChatMessage:
    content, parts = message.content, _parts(message, where)
    if parts:
        content = "".join(part for part in parts if isinstance(part, str))
    return ChatMessage(
        message.role,
        content,
        message.name,
        calls_of(message.tool_calls),
        message.tool_call_id,
        message.reasoning,
        parts if any(isinstance(part, PictureUrl) for part in parts) else (),
    )


def _parts(message: inference_pb2.ChatMessage, where: str) -> list[str | PictureUrl]:
    if message.parts and message.content:
        raise invalid_field(f"{where}.parts", "cannot be combined with content")
    found: list[str | PictureUrl] = []
    for at, part in enumerate(message.parts):
        match part.WhichOneof("part"):
            case "text":
                found.append(part.text)
            case "image_url":
                found.append(PictureUrl(part.image_url, f"{where}.parts[{at}].image_url"))
            case _:
                raise invalid_field(f"{where}.parts[{at}]", "must have text or image_url")
    return found


def _prompt(request: inference_pb2.GenerateRequest) -> Prompt:
    prompt: Prompt = TextPrompt(request.text)
    if request.WhichOneof("prompt") == "token_ids":
        prompt = TokenPrompt(request.token_ids.ids)
    return with_suffix(prompt, request.suffix, _or_none(request, "add_special_tokens"))


def _prompt_options(
    request: inference_pb2.GenerateRequest | inference_pb2.ChatRequest,
) -> PromptOptions:
    if request.truncation_side not in _SIDES:
        raise invalid_field(
            "truncation_side", f"{request.truncation_side} is not a truncation side"
        )
    return PromptOptions(
        add_special_tokens=_or_none(request, "add_special_tokens"),
        truncate_tokens=_or_none(request, "truncate_prompt_tokens"),
        keep_first=request.truncation_side == inference_pb2.TRUNCATION_SIDE_RIGHT,
    )


def _or_none(request: Any, field: str) -> Any:
    """Return a field with presence; None if it is unset."""
    return getattr(request, field) if request.HasField(field) else None


def json_field(request: Any, field: str, kind: type[J]) -> J | None:
    """Return a JSON field decoded to a type; None if it is empty."""
    text = getattr(request, field)
    if not text:
        return None
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        value = None
    if not isinstance(value, kind):
        raise invalid_field(field, f"must be {_KINDS[kind]}")
    return value
