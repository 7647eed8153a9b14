"""Text completions, and parameters that both kinds of completions have."""

import json
from typing import Any

import pytest

from baton.client import ApiError
from tests.support.engine.model import MODEL

CONTEXT = 4096
LONG = [5, 6, 7] * 1357
"""Leaves 25 tokens of the context."""


async def test_a_completion_that_says_no_max_tokens_has_what_the_context_leaves(
    asked: Any,
) -> None:
    answers = [
        await asked.complete(LONG, max_tokens=None, ignore_eos=True),
        await asked.complete([LONG, LONG], max_tokens=None, ignore_eos=True, n=2),
        await asked.chat(max_tokens=None, stop=["."]),
    ]
    for answer, choices in zip(answers, (1, 4, 1), strict=True):
        assert answer.status_code == 200, answer.text
        found = answer.json()
        assert len(found["choices"]) == choices
        if choices > 1 or found["object"] == "text_completion":
            assert found["usage"]["completion_tokens"] == choices * (CONTEXT - len(LONG))
    story = "<|im_start|>user\nTell me a story<|im_end|>\n<|im_start|>assistant\n"
    short = await asked.complete(story, max_tokens=None, stop=["."])
    assert short.json()["choices"][0]["stop_reason"] == "."
    assert short.json()["usage"]["completion_tokens"] != 16


TEXTS = ["Hello", " the 😀 é", "a<|im_end|>\nb", "世界", "e\u0301"]


@pytest.mark.parametrize("text", TEXTS)
@pytest.mark.parametrize("stream", [False, True])
async def test_text_offset_is_where_each_token_stands(asked: Any, text: str, stream: bool) -> None:
    body = {"logprobs": 1, "echo": True, "temperature": 1, "seed": 3, "max_tokens": 12}
    whole = (await asked.complete(text, **body)).json()["choices"][0]
    offsets, tokens = whole["logprobs"]["text_offset"], whole["logprobs"]["tokens"]
    assert offsets == sorted(offsets)
    assert len(offsets) == len(tokens)
    for begin, token in zip(offsets, tokens, strict=True):
        assert begin <= len(whole["text"])
        if "\N{REPLACEMENT CHARACTER}" not in token and begin < len(whole["text"]):
            shown = whole["text"][begin:]
            assert shown.startswith(token) or token.startswith("<|"), (begin, token)
    if stream:
        chunks = await streamed(asked, text, **body)
        parts = [one["logprobs"]["text_offset"] for one in chunks if one["logprobs"]]
        assert [one for part in parts for one in part] == offsets


async def streamed(asked: Any, text: str, **fields: Any) -> list[dict[str, Any]]:
    answer = await asked.complete(text, stream=True, **fields)
    lines = [line for line in answer.text.splitlines() if line.startswith("data: {")]
    chunks = [json.loads(line.removeprefix("data: ")) for line in lines]
    return [one["choices"][0] for one in chunks if one["choices"]]


async def test_text_offset_without_echo_begins_with_the_output(asked: Any) -> None:
    body = {"logprobs": 0, "allowed_token_ids": await ids_of(asked, "é"), "max_tokens": 6}
    choice = (await asked.complete("x", **body)).json()["choices"][0]
    assert choice["logprobs"]["text_offset"][0] == 0
    assert all(one <= len(choice["text"]) for one in choice["logprobs"]["text_offset"])
    stopped = await asked.complete("Once upon", logprobs=0, stop=["e"], max_tokens=30)
    choice = stopped.json()["choices"][0]
    assert all(one <= len(choice["text"]) for one in choice["logprobs"]["text_offset"])


async def ids_of(asked: Any, text: str) -> list[int]:
    body = {"prompt": text, "add_special_tokens": False}
    return list((await asked.post("/tokenize", body)).json()["tokens"])


@pytest.mark.parametrize(
    ("fields", "named"),
    [
        (
            {"allowed_token_ids": [65], "bad_word_ids": [[65]]},
            ("allowed_token_ids", "bad_word_ids"),
        ),
        (
            {"allowed_token_ids": [65, 66], "bad_word_ids": [[65], [66]]},
            ("allowed_token_ids", "bad_word_ids"),
        ),
        (
            {"allowed_token_ids": [65], "logit_bias": {"65": -100}},
            ("allowed_token_ids", "logit_bias"),
        ),
        (
            {"allowed_token_ids": [65], "stop_token_ids": [65], "min_tokens": 2},
            ("allowed_token_ids", "min_tokens"),
        ),
        (
            {"structured_outputs": {"choice": ["yes"]}, "bad_words": ["yes"]},
            ("structured_outputs", "bad_words"),
        ),
        ({"guided_choice": ["A", "B"], "bad_words": ["A", "B"]}, ("guided_choice", "bad_words")),
        ({"guided_regex": "yes", "bad_words": "yes"}, ("guided_regex", "bad_words")),
        (
            {"response_format": {"type": "json_object"}, "bad_words": ["{"]},
            ("response_format", "bad_words"),
        ),
        (
            {"guided_json": {"type": "object"}, "allowed_token_ids": [65]},
            ("allowed_token_ids", "guided_json"),
        ),
    ],
)
async def test_what_leaves_nothing_is_refused_by_all_names(
    asked: Any, fields: dict[str, Any], named: tuple[str, ...]
) -> None:
    for answer in (await asked.chat(**fields), await asked.complete(**fields)):
        error = answer.json()["error"]
        assert (answer.status_code, error["code"]) == (400, "invalid_value"), answer.text
        assert error["param"] in named
        assert all(name in error["message"] for name in named)


async def test_calls_that_bad_words_leave_none_of_are_refused(asked: Any) -> None:
    tools = [{"type": "function", "function": {"name": "f"}}]
    fields = {"tools": tools, "bad_words": ["<tool_call>"], "max_tokens": 40}
    answer = await asked.chat(tool_choice="required", **fields)
    error = answer.json()["error"]
    assert (answer.status_code, error["param"]) == (400, "tool_choice")
    assert "bad_words" in error["message"]
    assert (await asked.chat(tool_choice="auto", **fields)).status_code == 200


async def test_the_same_over_grpc(asked: Any) -> None:
    for options in (
        {"allowed_token_ids": [65], "bad_word_ids": [[65]]},
        {"allowed_token_ids": [65], "logit_bias": {65: -100.0}},
    ):
        with pytest.raises(ApiError) as caught:
            await asked.cluster.client.generate("x", model=MODEL, **options).answer()
        assert all(name in str(caught.value) for name in options)


@pytest.mark.parametrize(
    "fields",
    [
        {"allowed_token_ids": [65, 66], "bad_word_ids": [[65]]},
        {"guided_choice": ["yes", "no"], "bad_words": ["yes"]},
        {"response_format": {"type": "json_object"}, "bad_words": ["moon"]},
    ],
)
async def test_what_leaves_something_is_served(asked: Any, fields: dict[str, Any]) -> None:
    answer = await asked.chat(**fields)
    assert answer.status_code == 200, answer.text
