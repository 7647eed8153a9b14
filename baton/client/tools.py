"""Tools in requests: what the model may call, and what it has called."""

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
    """JSON Schema of its arguments. Left out: it has none."""
    strict: NotRequired[bool]
    """Calls keep to the schema, or the request is refused."""


class ToolCallMessage(TypedDict):
    """A call that the assistant made, in a conversation."""

    id: str
    name: str
    arguments: str
    """A JSON object."""


class ToolChoice(TypedDict):
    """Whether and what an answer calls."""

    mode: Literal["none", "auto", "required"]
    names: NotRequired[Sequence[str]]
    """Tools that may be called. Left out: all."""


def tool_messages(tools: Sequence[Tool]) -> list[inference_pb2.Tool]:
    """Return tools as the wire has them."""
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
    """Return a choice as the wire has it. A string is a mode, or the name of the one to call.

    Raises:
        ValueError: there is no such mode.
    """
    if isinstance(choice, str):
        if choice in _MODES:
            return inference_pb2.ToolChoice(mode=_MODES[choice])
        return inference_pb2.ToolChoice(mode=_MODES["required"], names=[choice])
    if choice["mode"] not in _MODES:
        raise ValueError(f"tool_choice: one of {', '.join(_MODES)}")
    return inference_pb2.ToolChoice(mode=_MODES[choice["mode"]], names=choice.get("names", ()))


def call_messages(calls: Sequence[ToolCallMessage]) -> list[inference_pb2.ToolCall]:
    """Return the calls of a message as the wire has them."""
    return [
        inference_pb2.ToolCall(id=call["id"], name=call["name"], arguments=call["arguments"])
        for call in calls
    ]
