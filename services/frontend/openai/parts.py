"""Reasoning and calls of tools in JSON, as chat completions have them."""

from collections.abc import Iterator, Sequence
from typing import Any

from baton.stream_events import CallArguments, CallBegun, Part, Reasoning, Text


class AnswerParts:
    """Collects what an answer has beside its text."""

    def __init__(self) -> None:
        self._reasoning: list[str] = []
        self._calls: list[dict[str, Any]] = []
        self._arguments: list[list[str]] = []

    def add(self, parts: Sequence[Part]) -> None:
        """Add what comes next."""
        for part in parts:
            match part:
                case Reasoning():
                    self._reasoning.append(part.text)
                case CallBegun():
                    self._calls.append({"id": part.id, "type": "function", "name": part.name})
                    self._arguments.append([])
                case CallArguments():
                    self._arguments[part.index].append(part.text)

    def add_to(self, message: dict[str, Any], *, reasoning: bool) -> None:
        """Put it into a message that has its text; `reasoning` is whether that is wanted."""
        if self._reasoning and reasoning:
            message["reasoning_content"] = "".join(self._reasoning)
        if self._calls:
            message["content"] = message["content"] or None
            message["tool_calls"] = [
                {
                    "id": call["id"],
                    "type": call["type"],
                    "function": {"name": call["name"], "arguments": "".join(arguments)},
                }
                for call, arguments in zip(self._calls, self._arguments, strict=True)
            ]


def deltas_of(parts: Sequence[Part], *, reasoning: bool) -> Iterator[dict[str, Any]]:
    """Yield the `delta` of each part that has one; `reasoning` is whether that is wanted."""
    for part in parts:
        match part:
            case Text():
                yield {"content": part.text}
            case Reasoning():
                if reasoning:
                    yield {"reasoning_content": part.text}
            case CallBegun():
                function = {"name": part.name, "arguments": ""}
                call = {"index": part.index, "id": part.id, "type": "function"}
                yield {"tool_calls": [{**call, "function": function}]}
            case CallArguments():
                call = {"index": part.index, "function": {"arguments": part.text}}
                yield {"tool_calls": [call]}
