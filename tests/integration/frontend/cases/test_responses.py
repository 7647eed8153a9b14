"""OpenAI's client asks for responses; what it gets is what chat completions say."""

import json
import re
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, Any

import pytest
from pydantic import BaseModel

from tests.support.engine.model import MODEL

if TYPE_CHECKING:
    import openai

pytestmark = pytest.mark.xdist_group("openai")

LOOK: Any = {
    "type": "function",
    "name": "look",
    "description": "Look at a city",
    "parameters": {
        "type": "object",
        "properties": {"city": {"enum": ["Rome", "Oslo"]}},
        "required": ["city"],
        "additionalProperties": False,
    },
    "strict": True,
}


class City(BaseModel):
    name: str


@pytest.fixture
async def client(asked: Any) -> AsyncIterator["openai.AsyncOpenAI"]:
    import openai  # takes a second

    url = f"{asked.cluster.http}/v1"
    async with openai.AsyncOpenAI(base_url=url, api_key="none", max_retries=0) as client:
        yield client


async def test_a_response_says_what_a_chat_completion_says(
    asked: Any, client: "openai.AsyncOpenAI"
) -> None:
    messages = ({"role": "system", "content": "Be kind"}, {"role": "user", "content": "Hello"})
    said = (await asked.chat(*messages, max_tokens=8)).json()
    response = await client.responses.create(
        model=MODEL,
        instructions="Be kind",
        input="Hello",
        max_output_tokens=8,
        temperature=0,
        metadata={"team": "search"},
    )
    assert response.output_text == said["choices"][0]["message"]["content"]
    assert (response.status, response.model) == ("incomplete", said["model"])
    assert response.incomplete_details is not None
    assert response.incomplete_details.reason == "max_output_tokens"
    assert response.metadata == {"team": "search"}
    assert response.usage is not None
    assert response.usage.input_tokens == said["usage"]["prompt_tokens"]
    assert response.usage.output_tokens == 8
    counted = await client.responses.input_tokens.count(
        model=MODEL, instructions="Be kind", input="Hello"
    )
    assert counted.input_tokens == response.usage.input_tokens
    again = await client.responses.create(
        model=MODEL, instructions="Be kind", input="Hello", max_output_tokens=8, temperature=0
    )
    assert again.usage is not None
    assert again.usage.input_tokens_details.cached_tokens > 0
    assert again.output_text == response.output_text


async def test_a_stream_ends_with_the_response(client: "openai.AsyncOpenAI") -> None:
    asked: Any = {
        "model": MODEL,
        "input": [{"role": "user", "content": "Hello"}],
        "temperature": 0,
        "max_output_tokens": 40,
        "text": {"format": {"type": "json_object"}},
    }
    whole = await client.responses.create(**asked)
    events = [event async for event in await client.responses.create(**asked, stream=True)]
    assert events[0].type == "response.created"
    last: Any = events[-1]
    assert last.type == f"response.{whole.status}"
    deltas = [event.delta for event in events if event.type == "response.output_text.delta"]
    assert "".join(deltas) == whole.output_text == last.response.output_text
    assert [event.sequence_number for event in events] == list(range(len(events)))


async def test_parsed_text(client: "openai.AsyncOpenAI") -> None:
    parsed = await client.responses.parse(
        model=MODEL, input="A city", text_format=City, temperature=0, max_output_tokens=60
    )
    assert parsed.status == "completed", parsed
    assert isinstance(parsed.output_parsed, City)


@pytest.mark.parametrize("stream", [False, True])
async def test_calls_and_their_outputs_come_back_as_items(
    client: "openai.AsyncOpenAI", stream: bool
) -> None:
    asked: Any = {"model": MODEL, "max_output_tokens": 60, "temperature": 0}
    tools: Any = [{"type": "web_search"}, LOOK]
    question: Any = [{"role": "user", "content": "How is Rome?"}]
    first = await _final(
        client, stream, input=question, tools=tools, tool_choice="required", **asked
    )
    calls = [item for item in first.output if item.type == "function_call"]
    assert calls
    assert all(json.loads(call.arguments)["city"] in ("Rome", "Oslo") for call in calls)
    assert first.model_extra["baton"]["left_out"] == ["web_search"]
    outputs = [
        {"type": "function_call_output", "call_id": call.call_id, "output": "sunny"}
        for call in calls
    ]
    history = [*question, *(item.to_dict() for item in first.output), *outputs]
    second = await _final(client, stream, input=history, tools=tools, tool_choice="none", **asked)
    assert second.output[-1].type == "message"


EDIT = """
start: "<<< " /[a-z"]{1,8}/ LF change{1,2} ">>>"
change: ("+" | "-") /[^\n]{0,6}/ LF
%import common.LF
"""
WRITTEN = re.compile(r'<<< [a-z"]{1,8}\n([+-][^\n]{0,6}\n){1,2}>>>')


@pytest.mark.parametrize("stream", [False, True])
async def test_a_custom_tool_gets_a_text_that_its_grammar_allows(
    client: "openai.AsyncOpenAI", stream: bool
) -> None:
    asked: Any = {"model": MODEL, "max_output_tokens": 120, "temperature": 0}
    form: Any = {"type": "grammar", "syntax": "lark", "definition": EDIT}
    tools: Any = [{"type": "custom", "name": "edit", "description": "Edit", "format": form}]
    question: Any = [{"role": "user", "content": "Edit it"}]
    choice: Any = {"type": "custom", "name": "edit"}
    if stream:
        events = [
            event
            async for event in await client.responses.create(
                stream=True, input=question, tools=tools, tool_choice=choice, **asked
            )
        ]
        deltas = [
            one.delta for one in events if one.type == "response.custom_tool_call_input.delta"
        ]
        last: Any = events[-1]
        first = last.response
        assert "".join(deltas) == first.output[-1].input
    else:
        first = await _final(
            client, stream, input=question, tools=tools, tool_choice=choice, **asked
        )
    call = first.output[-1]
    assert (call.type, call.name) == ("custom_tool_call", "edit")
    assert WRITTEN.fullmatch(call.input), call.input
    output: Any = {"type": "custom_tool_call_output", "call_id": call.call_id, "output": "done"}
    history = [*question, *(item.to_dict() for item in first.output), output]
    second = await _final(client, stream, input=history, tools=tools, tool_choice="none", **asked)
    assert second.output[-1].type == "message"


async def test_chat_completions_have_custom_tools_too(client: "openai.AsyncOpenAI") -> None:
    form: Any = {"type": "grammar", "grammar": {"syntax": "regex", "definition": "^ab{2,3}$"}}
    asked: Any = {
        "model": MODEL,
        "messages": [{"role": "user", "content": "Edit it"}],
        "tools": [{"type": "custom", "custom": {"name": "edit", "format": form}}],
        "tool_choice": {"type": "custom", "custom": {"name": "edit"}},
        "max_tokens": 60,
        "temperature": 0,
    }
    whole: Any = (await client.chat.completions.create(**asked)).choices[0].message.tool_calls[0]
    assert (whole.type, whole.custom.name) == ("custom", "edit")
    assert re.fullmatch("ab{2,3}", whole.custom.input)
    told = ""
    async for chunk in await client.chat.completions.create(stream=True, **asked):
        for call in chunk.choices[0].delta.tool_calls or ():
            told += call.model_extra["custom"]["input"]
    assert told == whole.custom.input
    answered = [
        *asked["messages"],
        {"role": "assistant", "tool_calls": [whole.to_dict()]},
        {"role": "tool", "tool_call_id": whole.id, "content": "done"},
    ]
    after = await client.chat.completions.create(
        **{**asked, "messages": answered, "tool_choice": "none"}
    )
    assert after.choices[0].message.tool_calls is None


async def test_turns_that_do_not_fit_are_left_out_and_said_so(
    asked: Any, client: "openai.AsyncOpenAI"
) -> None:
    turn = "It rains in Oslo and the sun shines in Rome. " * 40
    history: Any = []
    for at in range(12):
        history.append({"role": "user", "content": f"{at} {turn}"})
        history.append({"role": "assistant", "content": "Yes"})
    history.append({"role": "user", "content": "Where does it rain?"})
    body = {"model": MODEL, "input": history, "instructions": "Be kind", "max_output_tokens": 8}
    refused = await asked.http.post("/v1/responses", json=body)
    assert refused.json()["error"]["code"] == "context_length_exceeded", refused.text
    headers = []
    for stream in (False, True):
        response = await asked.http.post(
            "/v1/responses", json=body | {"truncation": "auto", "stream": stream}
        )
        assert response.status_code == 200, response.text
        headers.append(response.headers["x-baton-truncated"])
    answer = await client.responses.create(truncation="auto", **body)
    assert answer.truncation == "auto"
    (left_out,) = answer.to_dict()["input_transformations"]
    told: Any = left_out
    assert headers == [f"items={told['items']}, tokens={told['tokens']}, summary=false"] * 2
    assert told["items"] % 2 == 0
    fits = await client.responses.create(
        **{**body, "input": history[told["items"] :]}, truncation="disabled"
    )
    assert answer.usage is not None
    assert fits.usage is not None
    assert answer.usage.input_tokens == fits.usage.input_tokens
    assert "input_transformations" in fits.to_dict()
    # The next turns are cut at the same place, though nothing is stored.
    longer: Any = list(history)
    for turn in range(3):
        longer += [{"role": "assistant", "content": "Yes"}, {"role": "user", "content": f"{turn}?"}]
        later = await client.responses.create(truncation="auto", **{**body, "input": longer})
        assert later.to_dict()["input_transformations"] == [told]
    short = await client.responses.create(
        model=MODEL, input="Hi", truncation="auto", max_output_tokens=8
    )
    assert short.to_dict()["input_transformations"] == []


async def _final(client: "openai.AsyncOpenAI", stream: bool, **asked: Any) -> Any:
    if not stream:
        return await client.responses.create(**asked)
    events = [event async for event in await client.responses.create(**asked, stream=True)]
    last: Any = events[-1]
    return last.response


async def test_what_is_left_out_is_in_the_head(asked: Any) -> None:
    body = {"input": "hi", "tools": [{"type": "web_search"}, {"type": "é\n"}]}
    for stream in (False, True):
        response = await asked.http.post(
            "/v1/responses", json={"model": MODEL, "max_output_tokens": 1, "stream": stream, **body}
        )
        assert response.status_code == 200, response.text
        assert response.headers["x-baton-left-out"] == "web_search, ??"


REFUSED = [
    ({"store": True}, "store"),
    ({"background": True}, "background"),
    ({"previous_response_id": "resp_1"}, "previous_response_id"),
    ({"conversation": "conv_1"}, "conversation"),
    ({"input": [{"type": "item_reference", "id": "x"}]}, "input[0].type"),
    (
        {
            "tools": [
                {
                    "type": "custom",
                    "name": "edit",
                    "format": {"type": "grammar", "syntax": "lark", "definition": "start: a"},
                }
            ]
        },
        "tools[0].format.definition",
    ),
    (
        {"input": [{"type": "reasoning", "summary": [], "encrypted_content": "AQAA"}]},
        "input[0].encrypted_content",
    ),
    ({"truncation": "middle"}, "truncation"),
    ({"input": None}, "input"),
    ({"input": "hi " * 5000}, "input"),
    ({"metadata": {"k": 7}}, "metadata"),
    ({"tools": [{"type": "mcp"}], "tool_choice": "required"}, "tool_choice"),
    ({"tools": [LOOK, {**LOOK, "parameters": {"type": "array"}}]}, "tools[1].name"),
    ({"nothing": 1}, "nothing"),
]


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(("fields", "param"), REFUSED)
async def test_what_cannot_be_is_refused_by_its_field(
    asked: Any, fields: dict[str, Any], param: str, stream: bool
) -> None:
    body = {"model": MODEL, "input": "hi", "stream": stream, **fields}
    response = await asked.http.post("/v1/responses", json=body)
    error = response.json()["error"]
    assert (response.status_code, error["param"]) == (400, param), error
