"""What is null in a body is as if it were not there, wherever it may be left out."""

from collections.abc import Iterator
from copy import deepcopy
from typing import Any

import msgspec
import pytest

from baton.errors import BatonError, Reason
from services.frontend.openai.request.decode import read_chat
from services.frontend.openai.request.parse import RequestNames, chat_request

Path = tuple[str | int, ...]

FUNCTION = {"name": "f", "description": "d", "parameters": {}}
CALL = {"id": "1", "type": "function", "index": 0, "function": {"name": "f", "arguments": "{}"}}
ASKED = {"role": "user", "content": "x", "name": "n"}
BODIES: dict[str, dict[str, Any]] = {
    "tools": {
        "messages": [
            {"role": "system", "content": [{"type": "text", "text": "x"}], "name": "n"},
            ASKED,
            {
                "role": "assistant",
                "content": "x",
                "refusal": "x",
                "annotations": [],
                "audio": {},
                "reasoning_content": "x",
                "reasoning": "x",
                "tool_calls": [CALL],
            },
            {"role": "tool", "content": "x", "tool_call_id": "1"},
        ],
        "tools": [{"type": "function", "function": {**FUNCTION, "strict": False}}],
        "tool_choice": "required",
        "stream": True,
        "stream_options": {"include_usage": True, "continuous_usage_stats": True},
    },
    "functions": {
        "messages": [
            ASKED,
            {"role": "assistant", "content": "", "function_call": {"name": "f", "arguments": "{}"}},
            {"role": "function", "name": "f", "content": "x"},
        ],
        "functions": [FUNCTION],
        "function_call": "auto",
    },
    "form": {
        "messages": [ASKED],
        "response_format": {
            "type": "json_schema",
            "json_schema": {"name": "x", "description": "d", "schema": {}, "strict": True},
        },
    },
    "structured": {
        "messages": [ASKED],
        "structured_outputs": {"regex": "x", "json": None, "choice": None, "grammar": None},
    },
}
NEEDED = {("tools", 0, "type"), ("response_format", "type"), ("messages", 0, "content", 0, "type")}
NEEDED_NAMES = {"role", "name"}


def paths(value: Any, path: Path = ()) -> Iterator[Path]:
    """Yield where the fields of all objects are."""
    items = value.items() if isinstance(value, dict) else enumerate(value)
    for key, each in items:
        if isinstance(key, str):
            yield (*path, key)
        if isinstance(each, dict | list):
            yield from paths(each, (*path, key))


def outcome(body: dict[str, Any]) -> Any:
    """Return what is asked, or what is wrong with it and where."""
    try:
        asked = chat_request(read_chat(msgspec.json.encode(body)), RequestNames("id"), 100)
    except BatonError as error:
        return error.reason, error.field
    return repr(asked)


@pytest.mark.parametrize("name", BODIES)
def test_null_is_as_if_a_field_were_not_there(name: str) -> None:
    whole = BODIES[name]
    assert isinstance(outcome(whole), str)
    seen = 0
    for path in paths(whole):
        *parents, last = path
        null = deepcopy(whole)
        at: Any = null
        for key in parents:
            at = at[key]
        at[last] = None
        without = deepcopy(whole)
        at = without
        for key in parents:
            at = at[key]
        del at[last]
        if path in NEEDED or (last in NEEDED_NAMES and outcome(null) != outcome(without)):
            reason, field = outcome(null)
            assert reason is Reason.INVALID_FIELD
            assert field.startswith(str(path[0]))
        else:
            assert outcome(null) == outcome(without), path
            seen += 1
    assert seen >= 3
