"""What else clients send with a conversation: ids, stop strings, content types, empty fields."""

import asyncio
from typing import Any

import pytest

from tests.support.engine.model import MODEL


async def test_a_request_id_names_as_many_requests_as_there_are(asked: Any) -> None:
    named = {"x-request-id": "t-1"}

    async def ask(**fields: Any) -> tuple[int, str]:
        body = {"messages": [{"role": "user", "content": "Hello"}], "temperature": 1, **fields}
        answer = await asked.post("/v1/chat/completions", body, named)
        return answer.status_code, answer.headers["x-request-id"]

    assert await asyncio.gather(*(ask() for _ in range(4))) == [(200, "t-1")] * 4
    for fields in ({}, {}, {}, {}, {"seed": 1}, {"seed": 2}, {"seed": 2}):
        assert await ask(**fields) == (200, "t-1")


async def test_an_execution_id_claims_one(asked: Any) -> None:
    body = {"messages": [{"role": "user", "content": "Hello"}]}
    mine = {"x-baton-execution-id": "mine-1"}
    answers = await asyncio.gather(
        *(asked.post("/v1/chat/completions", body, mine) for _ in range(3))
    )
    assert sorted(answer.status_code for answer in answers) == [200, 409, 409]


async def test_more_stop_strings_than_openai_takes_are_refused(asked: Any) -> None:
    answer = await asked.chat(stop=["a", "b", "c", "d", "e"])
    assert (answer.status_code, answer.json()["error"]["param"]) == (400, "stop")


@pytest.mark.parametrize(
    "fields",
    [
        {"tools": [], "tool_choice": "auto"},
        {"tools": None, "tool_choice": None, "parallel_tool_calls": None},
        {"response_format": {"type": "text"}},
        {"response_format": None, "stop": None, "logit_bias": None, "user": None},
        {"stop": "x", "logit_bias": {}, "metadata": {"a": "b"}},
        {"stream_options": None, "n": 1, "logprobs": False, "top_logprobs": None},
        {"top_p": 1, "presence_penalty": 0.0, "frequency_penalty": 0, "seed": None},
        {"max_tokens": None, "max_completion_tokens": 8},
        {"reasoning_effort": "low", "store": False, "service_tier": "auto"},
    ],
)
async def test_fields_that_ask_for_nothing(asked: Any, fields: dict[str, Any]) -> None:
    answer = await asked.chat(**fields)
    assert answer.status_code == 200, answer.text


async def test_a_message_with_no_calls_in_its_list(asked: Any) -> None:
    user = {"role": "user", "content": "Hello"}
    answer = await asked.chat(user, {"role": "assistant", "content": "Hi", "tool_calls": []}, user)
    assert answer.status_code == 200


@pytest.mark.parametrize(
    "kind",
    ["application/json", "application/json; charset=utf-8", "Application/JSON;charset=UTF-8"],
)
async def test_content_types(asked: Any, kind: str) -> None:
    body = f'{{"model": "{MODEL}", "prompt": "é", "max_tokens": 1}}'.encode()
    answer = await asked.http.post("/v1/completions", content=body, headers={"content-type": kind})
    assert answer.status_code == 200, answer.text
