"""Tools in requests: the functions that the model may call, and the calls that it made."""

import json
from collections.abc import Mapping, Sequence
from typing import Any, Literal, NotRequired, TypedDict

from baton.v1 import inference_pb2

_MODES = {
    "none": inference_pb2.TOOL_CHOICE_MODE_NONE,
    "auto": inference_pb2.TOOL_CHOICE_MODE_AUTO,
    "required": inference_pb2.TOOL_CHOICE_MODE_REQUIRED,
}


class Tool(TypedDict):
    """A function that the model may call."""

    name: str
    description: NotRequired[str]
    parameters: NotRequired[Mapping[str, Any]]
    """JSON Schema of its arguments. Omitted: it has none."""
    strict: NotRequired[bool]
    """Whether calls must match the schema; a request whose schema is not supported is rejected."""


class ToolCallMessage(TypedDict):
    """A call by the assistant, in a conversation."""

    id: str
    name: str
    arguments: str
    """Arguments of the call: a JSON object."""


class ToolChoice(TypedDict):
    """Whether a response calls tools, and which."""

    mode: Literal["none", "auto", "required"]
    names: NotRequired[Sequence[str]]
    """Tools that may be called. Omitted: all."""


def tool_messages(tools: Sequence[Tool]) -> list[inference_pb2.Tool]:
    """Return tools as wire messages."""
    return [
        inference_pb2.Tool(
            name=tool["name"],
            description=tool.get("description", ""),
            parameters=json.dumps(tool["parameters"]) if "parameters" in tool else "",
            strict=tool.get("strict", False),
        )
        for tool in tools
    ]


def tool_choice_message(choice: str | ToolChoice) -> inference_pb2.ToolChoice:
    """Return a tool choice as a wire message. A string is a mode, or the name of the tool to call.

    Raises:
        ValueError: there is no such mode.
    """
    if isinstance(choice, str):
        if choice in _MODES:
            return inference_pb2.ToolChoice(mode=_MODES[choice])
        return inference_pb2.ToolChoice(mode=_MODES["required"], names=[choice])
    if choice["mode"] not in _MODES:
        raise ValueError(f"tool_choice: must be one of {', '.join(_MODES)}")
    return inference_pb2.ToolChoice(mode=_MODES[choice["mode"]], names=choice.get("names", ()))


def call_messages(calls: Sequence[ToolCallMessage]) -> list[inference_pb2.ToolCall]:
    """Return the calls of a conversation's message as wire messages."""
    return [
        inference_pb2.ToolCall(id=call["id"], name=call["name"], arguments=call["arguments"])
        for call in calls
    ]
