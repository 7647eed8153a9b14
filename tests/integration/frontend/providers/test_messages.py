"""Chats with a model of an upstream that has Anthropic's Messages."""

import json
from typing import Any

import pytest

from tests.integration.frontend.providers.conftest import SECRET, Provided
from tests.support.doubles.messages_upstream import (
    block_delta,
    block_start,
    block_stop,
    message_end,
    message_error,
    message_says,
    message_start,
    send_messages,
)
from tests.support.doubles.upstream import Answer, Exchange

WEATHER = {
    "type": "function",
    "function": {
        "name": "weather",
        "description": "The weather.",
        "parameters": {"type": "object", "properties": {"city": {"type": "string"}}},
    },
}
TIME = {"type": "function", "function": {"name": "time"}}


@pytest.fixture
async def messages(provided: Provided) -> Provided:
    """The provider, now with Anthropic's API."""
    await provided.replace(api="anthropic")
    provided.upstream.answer = message_says()
    return provided


def sends(*events: dict[str, Any]) -> Answer:
    async def answer(exchange: Exchange) -> None:
        await exchange.head()
        await send_messages(exchange, message_start(), *events)
        await exchange.end()

    return answer


async def test_whole_and_streamed(messages: Provided) -> None:
    conversation = [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "Hi"},
        {"role": "assistant", "content": "Hello"},
        {"role": "user", "content": "And?"},
    ]
    answer = await messages.ask(messages=conversation, max_tokens=20, stop=["x"])
    assert answer.status_code == 200, answer.text
    body = answer.json()
    (choice,) = body["choices"]
    assert (choice["message"]["content"], choice["finish_reason"]) == ("Hello there", "stop")
    assert body["usage"]["prompt_tokens"] == 9
    assert body["usage"]["completion_tokens"] == 2
    assert body["usage"]["prompt_tokens_details"] == {"cached_tokens": 4}
    (exchange,) = messages.upstream.exchanges
    assert (exchange.method, exchange.path) == ("POST", "/v1/messages")
    assert exchange.headers["authorization"] == f"Bearer {SECRET}"
    assert exchange.headers["anthropic-version"] == "2026-10-21"
    assert exchange.body == {
        "model": "gpt-4o",
        "system": "Be brief.",
        "messages": conversation[1:],
        "stop_sequences": ["x"],
        "stream": True,
        "max_tokens": 20,
    }
    streamed = await messages.ask(stream=True)
    events = [line[6:] for line in streamed.text.split("\n") if line.startswith("data: ")]
    assert events.pop() == "[DONE]"
    deltas = [json.loads(event)["choices"][0]["delta"] for event in events]
    assert "".join(delta.get("content") or "" for delta in deltas) == "Hello there"
    assert messages.upstream.exchanges[1].body["max_tokens"] == 1000
    record, _ = await messages.recorded(2)
    assert record["cost_nanodollars"] == 5 * 1000 + 4 * 500 + 2 * 2000


async def test_tools_in_odd_pieces(messages: Provided) -> None:
    messages.upstream.answer = sends(
        block_start(0, "thinking"),
        block_delta(0, "thinking_delta", "Which city?"),
        block_delta(0, "signature_delta", "c2ln"),
        block_stop(0),
        block_start(1, text="Let me see."),
        block_stop(1),
        block_start(2, "tool_use", id="toolu_1", name="weather"),
        block_delta(2, "input_json_delta", ""),
        block_delta(2, "input_json_delta", '{"ci'),
        block_start(3, "tool_use", id="toolu_2", name="time"),
        {"type": "ping"},
        {"type": "of_a_later_release", "index": 2},
        block_delta(2, "input_json_delta", 'ty": "Bern"}'),
        block_stop(2),
        block_stop(3),
        block_start(4, "tool_use", id="toolu_3", name="weather", input={"city": "Rom"}),
        block_stop(4),
        *message_end("tool_use", 7),
    )
    got = await messages.ask(tools=[WEATHER, TIME], tool_choice="required")
    assert got.status_code == 200, got.text
    (choice,) = got.json()["choices"]
    assert choice["finish_reason"] == "tool_calls"
    assert choice["message"]["reasoning_content"] == "Which city?"
    assert choice["message"]["content"] == "Let me see."
    calls = choice["message"]["tool_calls"]
    assert [(one["id"], one["function"]["name"]) for one in calls] == [
        ("toolu_1", "weather"),
        ("toolu_2", "time"),
        ("toolu_3", "weather"),
    ]
    arguments = [json.loads(one["function"]["arguments"]) for one in calls]
    assert arguments == [{"city": "Bern"}, {}, {"city": "Rom"}]
    body = messages.upstream.exchanges[0].body
    assert body["tool_choice"] == {"type": "any"}
    assert body["tools"] == [
        {
            "name": "weather",
            "description": "The weather.",
            "input_schema": WEATHER["function"]["parameters"],  # type: ignore[index]
        },
        {"name": "time", "input_schema": {"type": "object", "properties": {}}},
    ]

    results = [{"role": "tool", "tool_call_id": one["id"], "content": "Sun"} for one in calls]
    history = [{"role": "user", "content": "Hi"}, choice["message"], *results]
    messages.upstream.answer = message_says()
    named = {"type": "function", "function": {"name": "time"}}
    got = await messages.ask(
        messages=history, tools=[WEATHER, TIME], tool_choice=named, parallel_tool_calls=False
    )
    assert got.status_code == 200, got.text
    body = messages.upstream.exchanges[1].body
    said, *used = body["messages"][1]["content"]
    assert said == {"type": "text", "text": "Let me see."}
    assert [(one["type"], one["id"], one["input"]) for one in used] == [
        ("tool_use", call["id"], given) for call, given in zip(calls, arguments, strict=True)
    ]
    assert body["messages"][2] == {
        "role": "user",
        "content": [
            {"type": "tool_result", "tool_use_id": one["id"], "content": "Sun"} for one in calls
        ],
    }
    assert [tool["name"] for tool in body["tools"]] == ["time"]
    assert body["tool_choice"] == {
        "type": "tool",
        "name": "time",
        "disable_parallel_tool_use": True,
    }


@pytest.mark.parametrize(
    ("reason", "finish"),
    [
        ("stop_sequence", "stop"),
        ("max_tokens", "length"),
        ("model_context_window_exceeded", "length"),
        ("refusal", "content_filter"),
    ],
)
async def test_reasons(messages: Provided, reason: str, finish: str) -> None:
    said = (block_start(), block_delta(0, "text_delta", "Hello"), block_stop())
    messages.upstream.answer = sends(*said, *message_end(reason))
    answer = await messages.ask()
    assert answer.json()["choices"][0]["finish_reason"] == finish


async def test_schemas_and_effort(messages: Provided) -> None:
    schema = {"type": "object", "properties": {"a": {"type": "integer"}}}
    form = {"type": "json_schema", "json_schema": {"name": "x", "schema": schema}}
    answer = await messages.ask(response_format=form, reasoning_effort="high")
    assert answer.status_code == 200, answer.text
    assert messages.upstream.exchanges[0].body["output_config"] == {
        "format": {"type": "json_schema", "schema": schema},
        "effort": "high",
    }
    assert (await messages.ask(reasoning_effort="none")).status_code == 200
    assert messages.upstream.exchanges[1].body["thinking"] == {"type": "disabled"}


CUT = {"id": "c1", "type": "function", "function": {"name": "time", "arguments": '{"zo'}}


@pytest.mark.parametrize(
    ("fields", "field"),
    [
        ({"temperature": 0.5}, "temperature"),
        ({"seed": 1}, "seed"),
        ({"n": 2}, "n"),
        ({"presence_penalty": 1}, "presence_penalty"),
        ({"response_format": {"type": "json_object"}}, "response_format"),
        ({"reasoning_effort": "minimal"}, "reasoning_effort"),
        (
            {"messages": [{"role": "assistant", "tool_calls": [CUT]}]},
            "messages[0].tool_calls[0].function.arguments",
        ),
    ],
)
async def test_what_the_api_does_not_take(
    messages: Provided, fields: dict[str, Any], field: str
) -> None:
    answer = await messages.ask(**fields)
    assert answer.status_code == 400, answer.text
    assert answer.json()["error"]["param"] == field
    assert not messages.upstream.exchanges


async def test_the_version_before(messages: Provided) -> None:
    await messages.replace(api="anthropic", quirks=("2023-06-01",))
    assert (await messages.ask(temperature=0.5, top_k=3)).status_code == 200
    (exchange,) = messages.upstream.exchanges
    assert (exchange.body["temperature"], exchange.body["top_k"]) == (0.5, 3)
    assert exchange.headers["x-api-key"] == SECRET
    assert exchange.headers["anthropic-version"] == "2023-06-01"
    assert "authorization" not in exchange.headers


@pytest.mark.parametrize(
    ("status", "body", "expected", "attempts"),
    [
        (400, message_error("invalid_request_error"), (400, "invalid_value"), 1),
        (
            400,
            message_error("invalid_request_error", "prompt is too long: 210000 tokens > 200000"),
            (400, "context_length_exceeded"),
            1,
        ),
        (401, message_error("authentication_error", SECRET), (503, "unavailable"), 1),
        (402, message_error("billing_error", SECRET), (503, "unavailable"), 1),
        (429, message_error("rate_limit_error"), (503, "overloaded"), 1),
        (500, message_error("api_error"), (503, "unavailable"), 3),
        (529, message_error("overloaded_error"), (503, "overloaded"), 1),
    ],
)
async def test_refused(
    messages: Provided, status: int, body: Any, expected: tuple[int, str], attempts: int
) -> None:
    await messages.replace(api="anthropic", first_token_seconds=0.5)
    messages.upstream.answer = lambda exchange: exchange.refuse(status, body)
    answer = await messages.ask()
    assert (answer.status_code, answer.json()["error"]["code"]) == expected
    assert len(messages.upstream.exchanges) == attempts
    assert "provider acme" in answer.text
    assert SECRET not in answer.text
    assert "secret prompt" not in answer.text


SAID = (block_start(), block_delta(0, "text_delta", "Hello"))
OVERLOADED = message_error("overloaded_error")


@pytest.mark.parametrize(
    ("events", "code"),
    [
        ((OVERLOADED,), "overloaded"),
        ((*SAID, OVERLOADED), "stream_lost"),
        ((*SAID, block_stop()), "stream_lost"),
    ],
)
async def test_errors_within_the_stream(
    messages: Provided, events: tuple[dict[str, Any], ...], code: str
) -> None:
    await messages.replace(api="anthropic", first_token_seconds=0.5)
    messages.upstream.answer = sends(*events)
    answer = await messages.ask()
    assert (answer.status_code, answer.json()["error"]["code"]) == (503, code)
    assert len(messages.upstream.exchanges) == 1
    (record,) = await messages.recorded()
    assert (record["cost_nanodollars"] > 0) == (len(events) > 1)


async def test_usage_that_is_not_sent_is_estimated(messages: Provided) -> None:
    said = (block_start(), block_delta(0, "text_delta", "Hello"), block_stop())
    messages.upstream.answer = sends(*said, *message_end(output="many"))
    used = (await messages.ask()).json()["usage"]
    assert used["completion_tokens"] == 1
    assert used["prompt_tokens"] > 9
