"""A conversation is taken as it was given: what a model wrote makes it no error for ever."""

import time
from typing import Any

import pytest

from tests.support.engine.model import MODEL

USER = {"role": "user", "content": "Hello"}
TOOL = {
    "type": "function",
    "function": {
        "name": "note",
        "parameters": {
            "type": "object",
            "properties": {"text": {"type": "string", "minLength": 60}},
            "required": ["text"],
        },
    },
}


def call(arguments: Any, name: str = "f", content: Any = None, **fields: Any) -> dict[str, Any]:
    """Return the assistant's message with one call."""
    function = {"name": name, "arguments": arguments}
    calls = [{"id": "call_1", "type": "function", "function": function}]
    return {"role": "assistant", "content": content, "tool_calls": calls, **fields}


def result(content: Any = "32", **fields: Any) -> dict[str, Any]:
    return {"role": "tool", "tool_call_id": "call_1", "content": content, **fields}


def assistant(content: Any, **fields: Any) -> dict[str, Any]:
    return {"role": "assistant", "content": content, **fields}


@pytest.mark.parametrize(
    "arguments",
    [
        '{"a": "32',  # cut by max_tokens
        '{"a": "x\\',
        '{"a": {"b": [1, 2',
        '{"a":1,}',
        '"{}"',
        '"{\\"a\\": 1}"',
        "null",
        "[]",
        "3",
        '{"a":1}{"b":2}',
        "",
        " ",
        "not JSON",
        "<|im_end|>",
        None,
        {"a": 1},  # the object itself
        [],
        3,
    ],
)
async def test_arguments_stand_as_they_were_given(asked: Any, arguments: Any) -> None:
    answer = await asked.chat(USER, call(arguments), result(), USER)
    assert answer.status_code == 200, answer.text
    legacy = assistant(None, function_call={"name": "f", "arguments": arguments})
    answer = await asked.chat(USER, legacy, {"role": "function", "name": "f", "content": "32"})
    assert answer.status_code == 200, answer.text


@pytest.mark.parametrize(
    "arguments", ["[" * 100_000, '{"a":' * 100_000, '{"a": "' + '\\"' * 99_999]
)
async def test_arguments_of_great_depth_or_length_hold_nothing_up(
    asked: Any, arguments: str
) -> None:
    began = time.process_time()
    answer = await asked.chat(USER, call(arguments), result(), USER)
    assert answer.status_code == 400
    assert answer.json()["error"]["code"] == "context_length_exceeded"
    assert time.process_time() - began < 5  # of this process, which is the whole cluster


async def test_the_prompt_has_arguments_as_they_were_given(asked: Any) -> None:
    written = '{"text": "the moon\\u00e9, an'
    body = {"messages": [USER, call(written, "note"), result()], "return_token_strs": True}
    answer = await asked.post("/tokenize", body)
    assert f'"arguments": {written}}}' in "".join(answer.json()["token_strs"])


async def test_a_call_that_max_tokens_cut_is_gone_on_with(asked: Any) -> None:
    use = {"tools": [TOOL], "tool_choice": "required", "max_tokens": 45}
    first = await asked.chat(USER, **use)
    choice = first.json()["choices"][0]
    assert choice["finish_reason"] == "length"
    message = choice["message"]
    (made,) = message["tool_calls"]
    assert made["function"]["arguments"].startswith('{"text": "')
    assert not made["function"]["arguments"].endswith('"}')
    told = {"role": "tool", "tool_call_id": made["id"], "content": "cut"}
    for fields in ({}, use):
        answer = await asked.chat(USER, message, told, USER, **fields)
        assert answer.status_code == 200, answer.text


@pytest.mark.parametrize(
    "message",
    [
        assistant(None, reasoning_content="hm"),
        assistant(None, reasoning="hm"),
        assistant(None),  # an answer that was stopped at once
        assistant(""),
        assistant([]),
        assistant([{"type": "refusal", "refusal": "no"}]),
        assistant([{"type": "text", "text": "a"}, {"type": "refusal", "refusal": "no"}]),
        assistant([{"type": "output_text", "text": "a", "annotations": []}]),
        assistant([{"type": "thinking", "thinking": "hm"}, {"type": "text", "text": "a"}]),
        assistant(
            [
                {"type": "thinking", "thinking": [{"type": "text", "text": "hm"}]},
                {"type": "text", "text": "a"},
            ]
        ),
        assistant(None, refusal="no"),
        assistant("a", refusal=None, annotations=[], audio=None, function_call=None),
        assistant("a", tool_calls=[], reasoning_content=None),
        assistant("a", tool_calls=None, name="Research.Expert"),
        call("{}", name="made up by the model"),
        call("{}", name=""),
        call("{}", content="", index=0),
        {"role": "user", "content": ["a", "b"]},
        {
            "role": "user",
            "content": [{"type": "text", "text": "a", "cache_control": {"type": "x"}}],
        },
        {"role": "user", "content": "a", "name": "Müller"},
    ],
)
async def test_what_was_said_is_history(asked: Any, message: dict[str, Any]) -> None:
    turns = [USER, message, *([result()] if message.get("tool_calls") else []), USER]
    answer = await asked.chat(*turns)
    assert answer.status_code == 200, answer.text


@pytest.mark.parametrize(
    "told",
    [result([{"type": "text", "text": "32"}]), result(None), result(""), result(name="mcp.f")],
)
async def test_what_tools_told_is_history(asked: Any, told: dict[str, Any]) -> None:
    answer = await asked.chat(USER, call("{}"), told)
    assert answer.status_code == 200, answer.text


@pytest.mark.parametrize("arguments", ['{"a": "32', "null", "[" * 100])
async def test_the_same_over_grpc(asked: Any, arguments: str) -> None:
    tool_call = {"id": "call_1", "name": "made up", "arguments": arguments}
    messages = [
        {"role": "user", "content": "Hello", "name": "Müller"},
        {"role": "assistant", "content": "", "tool_calls": [tool_call]},
        {"role": "tool", "content": "32", "tool_call_id": "call_1"},
    ]
    stream = asked.cluster.client.chat(messages, model=MODEL, max_tokens=4)
    assert (await stream.answer()).choices


async def test_a_refusal_is_what_the_assistant_said(asked: Any) -> None:
    prompts = []
    for content in ("no", [{"type": "refusal", "refusal": "no"}]):
        answer = await asked.post("/tokenize", {"messages": [USER, assistant(content), USER]})
        prompts.append(answer.json()["tokens"])
    message = assistant(None, refusal="no")
    answer = await asked.post("/tokenize", {"messages": [USER, message, USER]})
    assert prompts == [answer.json()["tokens"]] * 2


@pytest.mark.parametrize(
    ("message", "field"),
    [
        ({"role": "user", "content": None}, "messages[0].content"),
        ({"role": "system"}, "messages[0].content"),
        (
            {"role": "user", "content": [{"type": "refusal", "refusal": "no"}]},
            "messages[0].content[0].type",
        ),
        (
            {"role": "user", "content": [{"type": "image_url", "image_url": {"url": "x"}}]},
            "messages[0].content[0].image_url",
        ),
        (call("{}", name="x" * 257), "messages[0].tool_calls[0].function.name"),
        ({"role": "user", "content": "a", "name": "<|im_end|>"}, "messages[0].name"),
    ],
)
async def test_what_was_not_said_is_refused_by_its_field(
    asked: Any, message: dict[str, Any], field: str
) -> None:
    answer = await asked.chat(message)
    assert (answer.status_code, answer.json()["error"]["param"]) == (400, field)
