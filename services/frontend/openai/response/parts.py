"""Reasoning and tool calls in JSON, in the format of chat completions."""

from collections.abc import Iterator, Sequence
from typing import Any

from baton.request.stream_events import (
    CallArguments,
    CallBegun,
    CallEnded,
    ChoiceFinished,
    FinishReason,
    Part,
    Reasoning,
    Text,
)
from services.frontend.openai.response.options import ResponseOptions
from services.frontend.openai.tools.choice import CUSTOM, FUNCTION
from services.frontend.output.custom.reader import InputReader


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
        calls = list(zip(self._calls, map("".join, self._arguments), strict=True))
        if options.functions:
            ((call, arguments),) = calls
            message["function_call"] = {"name": call.name, "arguments": arguments}
            return
        message["tool_calls"] = [
            {"id": call.id, "type": CUSTOM, CUSTOM: _custom(call.name, arguments)}
            if call.name in options.custom
            else {
                "id": call.id,
                "type": FUNCTION,
                FUNCTION: {"name": call.name, "arguments": arguments},
            }
            for call, arguments in calls
        ]


def reason_of(finished: ChoiceFinished, options: ResponseOptions) -> str:
    """Return the `finish_reason` of a choice."""
    if options.functions and finished.reason is FinishReason.TOOL_CALLS:
        return "function_call"
    return finished.reason.value


def _custom(name: str, arguments: str) -> dict[str, str]:
    """Return a call of a custom tool."""
    reader = InputReader()
    return {"name": name, "input": reader.push(arguments) + reader.end()}


class DeltaParts:
    """The deltas of one output's parts.

    Args:
        options: of the response.
    """

    def __init__(self, options: ResponseOptions) -> None:
        self._options = options
        self._readers: dict[int, InputReader] = {}
        """Of calls of custom tools, by their index."""

    def take(self, parts: Sequence[Part]) -> Iterator[dict[str, Any]]:
        """Yield the `delta` of each requested part that has one."""
        options = self._options
        for part in parts:
            match part:
                case Text():
                    yield {"content": part.text}
                case Reasoning():
                    if options.reasoning:
                        yield {"reasoning_content": part.text}
                case CallBegun():
                    yield self._begun(part)
                case CallArguments():
                    if (reader := self._readers.get(part.index)) is not None:
                        yield from _input(part.index, reader.push(part.text))
                    elif options.functions:
                        yield {"function_call": {"arguments": part.text}}
                    else:
                        call = {"index": part.index, "function": {"arguments": part.text}}
                        yield {"tool_calls": [call]}
                case CallEnded():
                    if (reader := self._readers.get(part.index)) is not None:
                        yield from _input(part.index, reader.end())

    def _begun(self, part: CallBegun) -> dict[str, Any]:
        function = {"name": part.name, "arguments": ""}
        if self._options.functions:
            return {"function_call": function}
        call: dict[str, Any] = {"index": part.index, "id": part.id}
        if part.name in self._options.custom:
            self._readers[part.index] = InputReader()
            call |= {"type": CUSTOM, CUSTOM: {"name": part.name, "input": ""}}
        else:
            call |= {"type": FUNCTION, FUNCTION: function}
        return {"tool_calls": [call]}


def _input(index: int, text: str) -> Iterator[dict[str, Any]]:
    if text:
        yield {"tool_calls": [{"index": index, CUSTOM: {"input": text}}]}
