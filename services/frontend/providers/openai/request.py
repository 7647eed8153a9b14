"""From a client's request to the body of an upstream with OpenAI's chat completions."""

from typing import Any

from services.frontend.models.model import ProvidedBy
from services.frontend.output.definitions import CallMode, ToolUse
from services.frontend.providers.output_schema import output_schema
from services.frontend.providers.parameters import given_parameters
from services.frontend.requests.request import ChatPrompt, GenerationRequest
from services.frontend.text.chat_template import ChatMessage

PATH = "/chat/completions"
_EFFORT = "reasoning_effort"
_TAKEN = frozenset(
    (
        *("temperature", "top_p", "seed", "presence_penalty", "frequency_penalty"),
        *("stop", "max_tokens", "grammar", "logit_bias", "n", "tools", _EFFORT),
    )
)
"""Parameters that OpenAI's API has."""


def body_of(request: GenerationRequest, prompt: ChatPrompt, at: ProvidedBy) -> dict[str, Any]:
    """Return the body, without the maximum of output tokens.

    Args:
        request: the client's request, checked.
        prompt: its conversation.
        at: the model.

    Raises:
        BatonError: UNSUPPORTED_PARAMETER: the upstream does not take a field, or a value of it.
    """
    given = given_parameters(request, prompt, at, _TAKEN)
    body: dict[str, Any] = {
        "model": at.model.upstream_name,
        "messages": [_message(message) for message in prompt.messages],
        "stream": True,
    }
    if "no_stream_options" not in at.provider.quirks:
        body["stream_options"] = {"include_usage": True}
    for name, value in given.items():
        match name:
            case "grammar":
                body["response_format"] = _response_format(request)
            case "stop":
                body["stop"] = list(value)
            case "logit_bias":
                body["logit_bias"] = {str(token): bias for token, bias in value.items()}
            case "tools":
                body |= _tools(value)
            case _:
                body[name] = value
    return body


def added_tokens(_: dict[str, Any]) -> int:
    """Return the most tokens that the upstream adds to the prompt."""
    return 0


def limit_field(at: ProvidedBy) -> str:
    """Return the field of the maximum of output tokens."""
    return "max_tokens" if "max_tokens" in at.provider.quirks else "max_completion_tokens"


def _message(message: ChatMessage) -> dict[str, Any]:
    body: dict[str, Any] = {"role": message.role, "content": message.content}
    if message.name:
        body["name"] = message.name
    if message.tool_call_id:
        body["tool_call_id"] = message.tool_call_id
    if message.tool_calls:
        body["content"] = message.content or None
        body["tool_calls"] = [
            {
                "id": call.id,
                "type": "function",
                "function": {"name": call.name, "arguments": call.arguments},
            }
            for call in message.tool_calls
        ]
    return body


def _tools(use: ToolUse) -> dict[str, Any]:
    """Return the fields of tools, as the current API has them, not as functions."""
    tools = []
    for tool in use.tools:
        function = dict(tool.definition["function"])
        if tool.strict:
            function["strict"] = True
        tools.append({"type": "function", "function": function})
    fields: dict[str, Any] = {"tools": tools}
    names = None if use.allowed is None else sorted(use.allowed)
    if use.calls is not CallMode.AUTO and names is None:
        fields["tool_choice"] = use.calls.value
    elif names is not None and len(names) == 1 and use.calls is CallMode.REQUIRED:
        fields["tool_choice"] = {"type": "function", "function": {"name": names[0]}}
    elif names is not None:
        fields["tool_choice"] = {
            "type": "allowed_tools",
            "allowed_tools": {
                "mode": use.calls.value,
                "tools": [{"type": "function", "function": {"name": name}} for name in names],
            },
        }
    if not use.parallel:
        fields["parallel_tool_calls"] = False
    return fields


def _response_format(request: GenerationRequest) -> dict[str, Any]:
    _, schema = output_schema(request)
    if schema == {"type": "object"}:
        return {"type": "json_object"}
    form = {"name": "output", "schema": schema, "strict": request.strict_form}
    return {"type": "json_schema", "json_schema": form}
