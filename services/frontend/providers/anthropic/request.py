"""From a client's request to the body of an upstream with Anthropic's Messages."""

import json
from collections.abc import Sequence
from typing import Any

from baton.errors import BatonError, invalid_field
from baton.tenancy.records.providers import OLD_ANTHROPIC
from services.frontend.models.model import ProvidedBy
from services.frontend.output.definitions import CallMode, ToolUse
from services.frontend.providers.output_schema import output_schema
from services.frontend.providers.parameters import given_parameters
from services.frontend.requests.refusals import unsupported
from services.frontend.requests.request import ChatPrompt, GenerationRequest
from services.frontend.text.chat_template import ChatMessage, ChatToolCall

PATH = "/messages"
_EFFORT = "reasoning_effort"
_EFFORTS = frozenset(("low", "medium", "high", "xhigh", "max"))
_NO_THINKING = "none"
_TAKEN = frozenset(("stop", "max_tokens", "grammar", "tools", _EFFORT))
"""Parameters that the API has."""
_TAKEN_BEFORE = _TAKEN | {"temperature", "top_p", "top_k"}
"""Those of the old version: the current one rejects requests that have them."""
_INSTRUCTION_TOKENS = 1024
"""More than the prompt that the API itself adds for tools (up to 530 tokens) or a schema."""


def limit_field(_: ProvidedBy) -> str:
    """Return the field of the maximum of output tokens."""
    return "max_tokens"


def added_tokens(body: dict[str, Any]) -> int:
    """Return the most tokens that the upstream adds to the prompt."""
    return _INSTRUCTION_TOKENS if "tools" in body or "output_config" in body else 0


def body_of(request: GenerationRequest, prompt: ChatPrompt, at: ProvidedBy) -> dict[str, Any]:
    """Return the body, without the maximum of output tokens.

    Args:
        request: the client's request, checked.
        prompt: its conversation.
        at: the model.

    Raises:
        BatonError: the upstream does not take a field, or a value of it.
    """
    taken = _TAKEN_BEFORE if OLD_ANTHROPIC in at.provider.quirks else _TAKEN
    given = given_parameters(request, prompt, at, taken)
    body: dict[str, Any] = {
        "model": at.model.upstream_name,
        "messages": _messages(prompt.messages),
        "stream": True,
    }
    system = [one.content for one in prompt.messages if one.role == "system"]
    if system:
        body["system"] = "\n\n".join(system)
    output: dict[str, Any] = {}
    for name, value in given.items():
        match name:
            case "grammar":
                output["format"] = {"type": "json_schema", "schema": _schema(request)}
            case "stop":
                body["stop_sequences"] = list(value)
            case "tools":
                body |= _tools(value)
            case "reasoning_effort" if value == _NO_THINKING:
                body["thinking"] = {"type": "disabled"}
            case "reasoning_effort":
                output["effort"] = _effort(value)
            case _:
                body[name] = value
    if output:
        body["output_config"] = output
    return body


def _messages(messages: Sequence[ChatMessage]) -> list[dict[str, Any]]:
    """Return the turns. Results of tools are the user's, those in a row one turn: the API wants all
    results of a turn's calls in the next one."""
    turns: list[dict[str, Any]] = []
    results: list[dict[str, Any]] | None = None
    for index, message in enumerate(messages):
        if message.role == "system":
            continue
        if message.role != "tool":
            results = None
            turns.append({"role": message.role, "content": _content(index, message)})
            continue
        if results is None:
            results = []
            turns.append({"role": "user", "content": results})
        result = {"type": "tool_result", "tool_use_id": message.tool_call_id}
        results.append(result | {"content": message.content})
    return turns


def _content(index: int, message: ChatMessage) -> str | list[dict[str, Any]]:
    if not message.tool_calls:
        return message.content
    blocks: list[dict[str, Any]] = []
    if message.content:
        blocks.append({"type": "text", "text": message.content})
    for number, call in enumerate(message.tool_calls):
        field = f"messages[{index}].tool_calls[{number}].function.arguments"
        block = {"type": "tool_use", "id": call.id, "name": call.name}
        blocks.append(block | {"input": _arguments(call, field)})
    return blocks


def _arguments(call: ChatToolCall, field: str) -> dict[str, Any]:
    try:
        found = json.loads(call.arguments or "{}")
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, dict):
        raise invalid_field(field, "is not a JSON object, which the model's provider needs")
    return found


def _tools(use: ToolUse) -> dict[str, Any]:
    """Return the fields of tools. Those that may not be called are left out."""
    tools = []
    for tool in use.tools if use.calls is CallMode.NONE else use.callable_tools:
        made: dict[str, Any] = {"name": tool.name}
        if description := tool.definition["function"].get("description"):
            made["description"] = description
        made["input_schema"] = tool.parameters or {"type": "object", "properties": {}}
        if tool.strict:
            made["strict"] = True
        tools.append(made)
    if use.calls is CallMode.NONE:
        return {"tools": tools, "tool_choice": {"type": "none"}}
    choice: dict[str, Any] = {"type": "auto"}
    if use.calls is CallMode.REQUIRED:
        choice = {"type": "any"} if len(tools) > 1 else {"type": "tool", "name": tools[0]["name"]}
    if not use.parallel:
        choice["disable_parallel_tool_use"] = True
    return {"tools": tools, "tool_choice": choice}


def _effort(value: str) -> str:
    if value not in _EFFORTS:
        known = ", ".join((_NO_THINKING, *sorted(_EFFORTS)))
        why = f"{value[:32]!r} by the model's provider, which takes {known}"
        raise unsupported(_EFFORT, why=why)
    return value


def _schema(request: GenerationRequest) -> dict[str, Any]:
    field, schema = output_schema(request)
    if schema == {"type": "object"}:
        raise _any_object(field)
    return schema


def _any_object(field: str) -> BatonError:
    return unsupported(field, why="the model's provider needs a JSON schema, not any JSON object")
