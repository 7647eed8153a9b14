"""A body goes through each pass once, in the order that decides which of its errors is told."""

import json
import sys
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

from baton.errors import BatonError
from services.frontend.openai.request import parse
from services.frontend.openai.request.decode import read_chat, read_completion

FOLDER = str(Path(parse.__file__).parent)
FUNCTION = {"name": "f", "parameters": {"type": "object"}}
TOOLS = {
    "tools": [{"type": "function", "function": FUNCTION}] * 2,
    "tool_choice": {"type": "function", "function": {"name": "f"}},
}
FUNCTIONS = {"functions": [FUNCTION] * 2, "function_call": {"name": "f"}}
CALL = {"type": "function", "function": {"name": "f", "arguments": "{}"}}
MESSAGES = [
    {"role": "user", "content": [{"type": "text", "text": "a"}, "b"]},
    {"role": "assistant", "content": None, "tool_calls": [CALL, CALL]},
    {"role": "tool", "content": "c"},
    {"role": "assistant", "content": None, "function_call": {"name": "f"}},
    {"role": "function", "name": "f", "content": "d"},
]
PARAMETERS = {
    "response_format": {"type": "json_schema", "json_schema": {"schema": {"type": "object"}}},
    "logit_bias": {"1": 1, "2": 2},
    "stop": ["x"],
    "n": 2,
}
NAMES = parse.RequestNames("id")


def chat(**fields: Any) -> None:
    body = {"model": "m", "messages": MESSAGES, **PARAMETERS, **fields}
    parse.chat_request(read_chat(json.dumps(body).encode()), NAMES, 100)


def complete() -> None:
    body = {"model": "m", "prompt": "x", **PARAMETERS}
    parse.completion_requests(read_completion(json.dumps(body).encode()), NAMES, 100)


def entered(ask: Callable[[], None]) -> list[str]:
    """Return the modules of the folder that a call goes through, in order."""
    found: list[str] = []

    def note(frame: FrameType, event: str, _: object) -> None:
        path = Path(frame.f_code.co_filename)
        if event == "call" and str(path.parent) == FOLDER and found[-1:] != [path.stem]:
            found.append(path.stem)

    before = sys.getprofile()
    sys.setprofile(note)
    try:
        ask()
    finally:
        sys.setprofile(before)
    return found


@pytest.mark.parametrize("tools", [{}, TOOLS, FUNCTIONS])
def test_a_chat_goes_through_each_pass_once(tools: dict[str, Any]) -> None:
    passes = ["functions", "tools", "template", "conversation", "response_format", "parameters"]
    assert entered(lambda: chat(**tools)) == ["decode", "checks", "parse", *passes]


def test_a_completion_goes_through_each_pass_once() -> None:
    passes = ["decode", "checks", "response_format", "parameters", "prompts"]
    assert [each for each in entered(complete) if each != "parse"] == passes


WRONG = [
    ({"top_logprobs": 1}, "top_logprobs"),
    ({"function_call": {"name": "f"}}, "function_call"),
    ({"tools": ["f"]}, "tools[0].type"),
    ({"chat_template_kwargs": {"tools": 1}}, "chat_template_kwargs.tools"),
    ({"messages": [{"role": "user"}]}, "messages[0].content"),
    ({"response_format": {"type": 1}}, "response_format.type"),
    ({"logit_bias": {"x": 1}}, "logit_bias"),
]
"""Fields with an error of each pass, in order."""


@pytest.mark.parametrize("at", range(len(WRONG)))
def test_the_error_of_the_earliest_pass_is_told(at: int) -> None:
    fields: dict[str, Any] = {}
    for each, _ in WRONG[at:]:
        fields |= each
    with pytest.raises(BatonError) as caught:
        chat(**fields)
    assert caught.value.field == WRONG[at][1]
