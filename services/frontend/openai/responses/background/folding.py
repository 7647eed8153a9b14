"""The output that events add up to, where nothing else is known of it."""

from typing import Any

import msgspec

from services.frontend.openai.responses.output import IN_PROGRESS, INCOMPLETE

_TEXTS = "response.output_text.delta", "response.reasoning_text.delta"
_FIELDS = {
    "response.function_call_arguments.delta": "arguments",
    "response.custom_tool_call_input.delta": "input",
}


def output_of(events: list[bytes]) -> list[dict[str, Any]]:
    """Return the output items of events, whole ones and one that was cut off.

    Args:
        events: server-sent events of one response, from the first one.
    """
    output: list[dict[str, Any]] = []
    for event in events:
        data = msgspec.json.decode(event.partition(b"\ndata: ")[2].rstrip())
        match data["type"]:
            case "response.output_item.added":
                output.append(data["item"])
            case "response.output_item.done":
                output[data["output_index"]] = data["item"]
            case "response.content_part.added":
                output[data["output_index"]]["content"].append(data["part"])
            case kind if kind in _TEXTS:
                output[data["output_index"]]["content"][0]["text"] += data["delta"]
            case kind if kind in _FIELDS:
                output[data["output_index"]][_FIELDS[kind]] += data["delta"]
    for item in output:
        if item["status"] == IN_PROGRESS:
            item["status"] = INCOMPLETE
    return output
