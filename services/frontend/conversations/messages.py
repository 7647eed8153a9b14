"""From a message in a conversation to the response that it asks for."""

from dataclasses import replace
from typing import Any

from baton.errors import invalid_field
from baton.v1 import conversations_pb2, inference_pb2
from services.frontend.conversations.convert import items_of
from services.frontend.grpc.convert import generation_request, json_field
from services.frontend.openai.conversations.bodies import message_body
from services.frontend.openai.responses.input.item_types import COMPACTION
from services.frontend.openai.responses.input.prepare import PreparedResponse
from services.frontend.output.definitions import CallMode, ToolUse
from services.frontend.requests.request import GenerationRequest


def generation_of(
    request: conversations_pb2.SendMessageRequest, identity: str, max_messages: int
) -> GenerationRequest:
    """Return what a message says besides its text, as Chat has it; without a prompt.

    Raises:
        BatonError: as of `generation_request`.
    """
    chat = inference_pb2.ChatRequest(
        context=request.context, sampling=request.sampling, tools=request.tools
    )
    if request.HasField("tool_choice"):
        chat.tool_choice.CopyFrom(request.tool_choice)
    if request.HasField("parallel_tool_calls"):
        chat.parallel_tool_calls = request.parallel_tool_calls
    return generation_request(chat, identity, max_messages)


def response_body(
    request: conversations_pb2.SendMessageRequest,
    asked: GenerationRequest,
    max_values: int,
) -> dict[str, Any]:
    """Return the body of the response that a message asks for.

    Args:
        request: the message.
        asked: as of `generation_of`.
        max_values: the most values in its items.

    Raises:
        BatonError: as of `message_body` and `items_of`.
    """
    body: dict[str, Any] = {"content": _content(request)}
    options = {
        "model": request.context.model,
        "instructions": request.instructions,
        "metadata": dict(request.metadata),
        "chat_template_kwargs": json_field(request, "chat_template_kwargs", dict),
        "truncation": "auto" if request.truncate else None,
        "max_output_tokens": asked.sampling.max_tokens if "max_tokens" in asked.given else None,
    }
    body |= {name: value for name, value in options.items() if value}
    if request.HasField("compact_threshold"):
        least = (
            {"compact_threshold": request.compact_threshold} if request.compact_threshold else {}
        )
        body["context_management"] = [{"type": COMPACTION, **least}]
    if request.HasField("reasoning_effort"):
        body["reasoning"] = {"effort": request.reasoning_effort}
    if request.HasField("parallel_tool_calls"):
        body["parallel_tool_calls"] = request.parallel_tool_calls
    if asked.tools is not None:
        body["tools"] = _tools(asked.tools)
        body["tool_choice"] = _choice(asked.tools)
    items = items_of(request.items, max_values)
    return message_body(body, request.conversation_id, items)


def with_options(prepared: PreparedResponse, asked: GenerationRequest) -> PreparedResponse:
    """Return a prepared response with what its message says besides its text."""
    read = prepared.asked.generation
    generation = replace(
        asked,
        model=read.model,
        prompt=read.prompt,
        prompt_options=read.prompt_options,
        execution_id=read.execution_id,
    )
    return prepared._replace(asked=replace(prepared.asked, generation=generation))


def _content(request: conversations_pb2.SendMessageRequest) -> Any:
    if not request.parts:
        return request.content
    if request.content:
        raise invalid_field("parts", "cannot be combined with content")
    return [
        {"type": "input_image", "image_url": part.image_url}
        if part.WhichOneof("part") == "image_url"
        else {"type": "input_text", "text": part.text}
        for part in request.parts
    ]


def _tools(use: ToolUse) -> list[dict[str, Any]]:
    return [
        {"type": "function", **tool.definition["function"], "strict": tool.strict}
        for tool in use.tools
    ]


def _choice(use: ToolUse) -> Any:
    if use.allowed is None or use.calls is CallMode.NONE:
        return use.calls.value
    named = [{"type": "function", "name": name} for name in sorted(use.allowed)]
    return {"type": "allowed_tools", "mode": use.calls.value, "tools": named}
