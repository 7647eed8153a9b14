"""Call tools and ask for forms with OpenAI's client, unmodified; a line per case.

python openai_tools.py URL MODEL    knows nothing of this repository
"""

import json
import sys
from typing import Any

from openai import OpenAI, pydantic_function_tool
from pydantic import BaseModel

from models import Clock, Weather, run

CALLS = 100


URL, MODEL = sys.argv[1:]
QUESTION: Any = [{"role": "user", "content": "What is the weather in Rome?"}]
TOOLS: Any = [pydantic_function_tool(Weather), pydantic_function_tool(Clock)]
KINDS: dict[str, type[BaseModel]] = {"Weather": Weather, "Clock": Clock}
client = OpenAI(base_url=URL, api_key="none", max_retries=0, timeout=120)


def required_calls_are_valid() -> str:
    valid = calls = 0
    for seed in range(CALLS):
        answer = client.chat.completions.create(
            model=MODEL,
            messages=QUESTION,
            tools=TOOLS,
            tool_choice="required",
            parallel_tool_calls=False,
            seed=seed,
            max_tokens=300,
        )
        choice = answer.choices[0]
        assert choice.finish_reason == "tool_calls", choice
        assert choice.message.content is None
        for call in choice.message.tool_calls or []:
            calls += 1
            KINDS[call.function.name].model_validate_json(call.function.arguments)
            valid += 1
    assert valid == calls == CALLS, (valid, calls)
    return f"{valid} of {calls}"


def a_named_function_is_called() -> str:
    answer = client.chat.completions.create(
        model=MODEL,
        messages=QUESTION,
        tools=TOOLS,
        tool_choice={"type": "function", "function": {"name": "Clock"}},
        max_tokens=300,
    )
    (call,) = answer.choices[0].message.tool_calls or []
    assert call.function.name == "Clock"
    return call.function.arguments


def openai_parse() -> str:
    answer = client.chat.completions.parse(
        model=MODEL, messages=QUESTION, response_format=Weather, max_tokens=300
    )
    assert isinstance(answer.choices[0].message.parsed, Weather)
    return repr(answer.choices[0].message.parsed)


def openai_parse_tools() -> str:
    answer = client.chat.completions.parse(
        model=MODEL,
        messages=QUESTION,
        tools=TOOLS,
        tool_choice="required",
        max_tokens=600,
        parallel_tool_calls=False,
    )
    (call,) = answer.choices[0].message.tool_calls or []
    assert isinstance(call.function.parsed_arguments, Weather | Clock)
    return repr(call.function.parsed_arguments)


def openai_stream() -> str:
    kinds: list[str] = []
    with client.chat.completions.stream(
        model=MODEL,
        messages=QUESTION,
        tools=TOOLS,
        tool_choice="required",
        max_tokens=300,
        parallel_tool_calls=False,
    ) as stream:
        kinds += [event.type for event in stream]
        final = stream.get_final_completion()
    (call,) = final.choices[0].message.tool_calls or []
    assert isinstance(call.function.parsed_arguments, Weather | Clock)
    assert final.choices[0].finish_reason == "tool_calls"
    assert "tool_calls.function.arguments.done" in kinds
    deltas = kinds.count("tool_calls.function.arguments.delta")
    assert deltas > 1
    return f"{deltas} deltas, {call.function.parsed_arguments!r}"


def openai_history() -> str:
    call = {"name": "Weather", "arguments": '{"city": "Rome", "days": 1, "unit": "C"}'}
    messages: Any = [
        *QUESTION,
        {
            "role": "assistant",
            "content": None,
            "tool_calls": [{"id": "call_1", "type": "function", "function": call}],
        },
        {"role": "tool", "tool_call_id": "call_1", "content": "sunny"},
    ]
    answer = client.chat.completions.create(
        model=MODEL, messages=messages, tools=TOOLS, tool_choice="none", max_tokens=20
    )
    assert answer.choices[0].message.tool_calls is None
    return repr(answer.choices[0].message.content)


def openai_json_object() -> str:
    answer = client.chat.completions.create(
        model=MODEL,
        messages=QUESTION,
        response_format={"type": "json_object"},
        max_tokens=400,
        temperature=1,
        seed=3,
    )
    choice = answer.choices[0]
    if choice.finish_reason == "stop":
        assert isinstance(json.loads(choice.message.content or ""), dict)
    else:
        assert choice.finish_reason == "length"
    return f"{choice.finish_reason}: {choice.message.content!r}"[:80]


if __name__ == "__main__":
    sys.exit(
        run(
            required_calls_are_valid,
            a_named_function_is_called,
            openai_parse,
            openai_parse_tools,
            openai_stream,
            openai_history,
            openai_json_object,
        )
    )
