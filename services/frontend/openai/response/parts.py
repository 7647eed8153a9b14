"""Reasoning and tool calls in JSON, in the format of chat completions."""

from collections.abc import Iterator, Sequence
from typing import Any

from baton.request.stream_events import (
    CallArguments,
    CallBegun,
    ChoiceFinished,
    FinishReason,
    Part,
    Reasoning,
    Text,
)
from services.frontend.openai.response.options import ResponseOptions


class AnswerParts:
    """Collects the parts of an output other than its text."""

    def __init__(self) -> None:
        self._reasoning: list[str] = []
        self._calls: list[CallBegun] = []
        self._arguments: list[list[str]] = []

    def add(self, parts: Sequence[Part]) -> None:
        """Add the next parts."""
        for part in parts:
            match part:
                case Reasoning():
                    self._reasoning.append(part.text)
                case CallBegun():
                    self._calls.append(part)
                    self._arguments.append([])
                case CallArguments():
                    self._arguments[part.index].append(part.text)

    def add_to(self, message: dict[str, Any], options: ResponseOptions) -> None:
        """Add the requested parts to a message that has its text."""
        if self._reasoning and options.reasoning:
            message["reasoning_content"] = "".join(self._reasoning)
        if not self._calls:
            return
        message["content"] = message["content"] or None
        functions = [
            {"name": call.name, "arguments": "".join(arguments)}
            for call, arguments in zip(self._calls, self._arguments, strict=True)
        ]
        if options.functions:
            (message["function_call"],) = functions
            return
        message["tool_calls"] = [
            {"id": call.id, "type": "function", "function": function}
            for call, function in zip(self._calls, functions, strict=True)
        ]


def reason_of(finished: ChoiceFinished, options: ResponseOptions) -> str:
    """Return the `finish_reason` of a choice."""
    if options.functions and finished.reason is FinishReason.TOOL_CALLS:
        return "function_call"
    return finished.reason.value


def deltas_of(parts: Sequence[Part], options: ResponseOptions) -> Iterator[dict[str, Any]]:
    """Yield the `delta` of each requested part that has one."""
    for part in parts:
        match part:
            case Text():
                yield {"content": part.text}
            case Reasoning():
                if options.reasoning:
                    yield {"reasoning_content": part.text}
            case CallBegun():
                function = {"name": part.name, "arguments": ""}
                if options.functions:
                    yield {"function_call": function}
                    continue
                call = {"index": part.index, "id": part.id, "type": "function"}
                yield {"tool_calls": [{**call, "function": function}]}
            case CallArguments():
                if options.functions:
                    yield {"function_call": {"arguments": part.text}}
                    continue
                call = {"index": part.index, "function": {"arguments": part.text}}
                yield {"tool_calls": [call]}
