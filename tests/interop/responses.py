"""Responses for openai-agents and langchain, unmodified; a line per case.

python responses.py URL MODEL    knows nothing of this repository: it runs in a venv of its own
"""

import asyncio
import sys
from typing import Any

from agents import (
    Agent,
    ModelSettings,
    OpenAIConversationsSession,
    OpenAIResponsesModel,
    Runner,
    function_tool,
    handoff,
    set_tracing_disabled,
)
from langchain_openai import ChatOpenAI
from openai import AsyncOpenAI

from models import Clock, Weather, run

URL, MODEL = sys.argv[1:]
QUESTION = "What is the weather in Rome?"
TURNS = 6
looked: list[str] = []
set_tracing_disabled(True)


def client() -> AsyncOpenAI:
    return AsyncOpenAI(base_url=URL, api_key="none", max_retries=0, timeout=120)


def model() -> OpenAIResponsesModel:
    return OpenAIResponsesModel(model=MODEL, openai_client=client())


@function_tool
def look(place: Weather) -> str:
    """Look at the weather somewhere."""
    looked.append(place.city)
    return f"It rains in {place.city}"


def agent(**fields: Any) -> Agent:
    settings = {"max_tokens": 300, "tool_choice": "required", **fields.pop("settings", {})}
    return Agent(
        name=fields.pop("name", "Guide"),
        instructions="You know the weather",
        model=model(),
        model_settings=ModelSettings(**settings),
        **fields,
    )


def agents_call_a_tool() -> str:
    looked.clear()
    result = Runner.run_sync(agent(tools=[look]), QUESTION, max_turns=TURNS)
    assert looked
    return f"looked at {looked[0]}, said {result.final_output[:40]!r}"


def agents_stream_a_tool() -> str:
    async def streamed() -> tuple[list[str], str]:
        result = Runner.run_streamed(agent(tools=[look]), QUESTION, max_turns=TURNS)
        kinds = [
            event.item.type
            async for event in result.stream_events()
            if event.type == "run_item_stream_event"
        ]
        return kinds, result.final_output

    looked.clear()
    kinds, said = asyncio.run(streamed())
    assert looked
    assert {"tool_call_item", "tool_call_output_item"} <= set(kinds)
    return f"{', '.join(kinds)}; said {said[:40]!r}"


def agents_hand_over() -> str:
    other = agent(name="Other", settings={"tool_choice": "none"})
    first = agent(handoffs=[handoff(other)])
    result = Runner.run_sync(first, QUESTION, max_turns=TURNS)
    assert result.last_agent.name == "Other"
    return f"{result.last_agent.name} said {result.final_output[:40]!r}"


def agents_keep_a_session() -> str:
    async def kept() -> str:
        async with client() as own:
            session = OpenAIConversationsSession(openai_client=own)
            await Runner.run(agent(tools=[look]), QUESTION, session=session, max_turns=TURNS)
            first = await session.get_items()
            assert {"function_call", "function_call_output"} <= {item.get("type") for item in first}
            other = agent(settings={"tool_choice": "none"})
            second = await Runner.run(other, "And in Oslo?", session=session)
            items = await session.get_items()
            assert items[: len(first)] == first
            assert len(items) >= len(first) + 2
            assert await session.get_items(limit=1) == items[-1:]
            assert await session.pop_item() == items[-1]
            assert await session.get_items() == items[:-1]
            await session.clear_session()
            assert await session.get_items() == []
            return f"{len(first)} items, then {len(items)}; said {second.final_output[:40]!r}"

    looked.clear()
    said = asyncio.run(kept())
    assert looked
    return said


def langchain_calls_a_tool() -> str:
    made: Any = ChatOpenAI(
        base_url=URL,
        api_key="none",  # type: ignore[arg-type]
        model=MODEL,
        max_tokens=300,  # type: ignore[call-arg]
        use_responses_api=True,
    )
    bound = made.bind_tools([Weather, Clock], tool_choice="required", parallel_tool_calls=False)
    answer = bound.invoke(QUESTION)
    (call,) = answer.tool_calls
    {"Weather": Weather, "Clock": Clock}[call["name"]].model_validate(call["args"])
    whole = None
    for chunk in bound.stream(QUESTION):
        whole = chunk if whole is None else whole + chunk
    (streamed,) = whole.tool_calls
    after = made.invoke(
        [
            {"role": "user", "content": QUESTION},
            answer,
            {"role": "tool", "tool_call_id": call["id"], "content": "It rains"},
        ]
    )
    assert after.text
    return f"{call['name']} {call['args']}; streamed {streamed['name']}; then {after.text[:40]!r}"


def langchain_asks_for_a_form() -> str:
    made: Any = ChatOpenAI(
        base_url=URL,
        api_key="none",  # type: ignore[arg-type]
        model=MODEL,
        max_tokens=300,  # type: ignore[call-arg]
        use_responses_api=True,
    )
    found = made.with_structured_output(Weather, method="json_schema").invoke(QUESTION)
    assert isinstance(found, Weather)
    return repr(found)


if __name__ == "__main__":
    sys.exit(
        run(
            agents_call_a_tool,
            agents_stream_a_tool,
            agents_hand_over,
            agents_keep_a_session,
            langchain_calls_a_tool,
            langchain_asks_for_a_form,
        )
    )
