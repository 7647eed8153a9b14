"""What beside text an answer has: echoes, log probabilities of prompts, the best of many."""

import json
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from baton.request.stream_events import (
    CallArguments,
    CallBegun,
    ChoiceFinished,
    Delta,
    Event,
    Finished,
    FinishReason,
    PromptLogprobs,
    Started,
    TokenLogprob,
    Usage,
)
from services.frontend.openai.response.encoder import ChunkEncoder, WholeEncoder
from services.frontend.openai.response.options import ResponseOptions
from services.frontend.openai.response.templates import CHAT, COMPLETION, Template
from services.frontend.requests.request import ResolvedRequest

RequestFor = Callable[..., ResolvedRequest]
PROMPT = [64, 65, 66]
"""`abc`."""


def options(**fields: Any) -> ResponseOptions:
    base = {"id": "i", "created": 7, "model": "m", "fingerprint": "fp", "n": 1, "drawn": 1}
    other = {"logprobs": False, "token_ids": False, "usage": False}
    return ResponseOptions(**{**base, **other, **fields})


def logprob(value: float, *top: int) -> TokenLogprob:
    return TokenLogprob(value, tuple((token, value) for token in top))


def events(*outputs: tuple[str, float]) -> list[Event]:
    """An output per choice: its letter, and the log probability of that."""
    deltas = [
        Delta(choice, 0, [ord(letter) - 33], letter, [logprob(value, 70)])
        for choice, (letter, value) in enumerate(outputs)
    ]
    ends = [
        ChoiceFinished(choice, FinishReason.STOP, "", 9 if choice == 0 else None)
        for choice in range(len(outputs))
    ]
    return [
        Started("r", "m", 1, 3),
        PromptLogprobs(1, [logprob(-1.0, 68)]),
        PromptLogprobs(2, [logprob(-2.0, 69)]),
        *deltas,
        *ends,
        Finished(Usage(3, 0, 5, len(outputs), 0.0, 0.0), ()),
    ]


def whole(
    template: Template, request: ResolvedRequest, told: Sequence[Event], **fields: Any
) -> dict[str, Any]:
    encoder = WholeEncoder(template, options(**fields), [request])
    for event in told:
        encoder.take(0, event)
    return encoder.body()


def streamed(
    template: Template, request: ResolvedRequest, told: Sequence[Event], **fields: Any
) -> list[dict[str, Any]]:
    encoder = ChunkEncoder(template, options(**fields), [request])
    data = b"".join(encoder.take(0, event) for event in told) + encoder.end()
    *lines, last = [line for line in data.decode().splitlines() if line]
    assert last == "data: [DONE]"
    return [json.loads(line.removeprefix("data: ")) for line in lines]


@pytest.fixture
def request_(request_for: RequestFor) -> ResolvedRequest:
    made = request_for(n=1)
    assert list(made.prompt) != PROMPT
    return ResolvedRequest(made.context, made.model, PROMPT, made.sampling, (), 1)


def test_an_echoed_prompt_comes_first_whole_and_streamed(request_: ResolvedRequest) -> None:
    told = events(("d", -3.0))
    offsets = request_.model.tokenizer.offsets("abc", PROMPT)
    fields = {"echo": ["abc"], "echo_logprobs": True, "echo_offsets": [offsets], "logprobs": True}
    (choice,) = whole(COMPLETION, request_, told, **fields)["choices"]
    assert choice["text"] == "abcd"
    assert choice["logprobs"]["tokens"] == ["a", "b", "c", "d"]
    assert choice["logprobs"]["token_logprobs"] == [None, -1.0, -2.0, -3.0]
    assert choice["logprobs"]["top_logprobs"][:2] == [None, {"e": -1.0, "b": -1.0}]
    assert choice["logprobs"]["text_offset"] == [0, 1, 2, 3]
    chunks = [one["choices"][0] for one in streamed(COMPLETION, request_, told, **fields)]
    assert "".join(chunk["text"] for chunk in chunks) == "abcd"
    for name in ("tokens", "token_logprobs", "top_logprobs", "text_offset"):
        parts = [chunk["logprobs"][name] for chunk in chunks if chunk["logprobs"]]
        assert [one for part in parts for one in part] == choice["logprobs"][name]
    plain = [
        one["choices"][0]["text"] for one in streamed(COMPLETION, request_, told, echo=["abc"])
    ]
    assert plain == ["abc", "d", ""]
    said = streamed(CHAT, request_, told, echo=["abc"])
    assert [one["choices"][0]["delta"].get("content") for one in said] == ["", "abc", "d", None]


def test_log_probabilities_of_a_prompt_have_vllms_shape(request_: ResolvedRequest) -> None:
    body = whole(CHAT, request_, events(("d", -3.0)), prompt_logprobs=True)
    first, second, third = body["prompt_logprobs"]
    assert first is None
    assert second == {
        "65": {"logprob": -1.0, "rank": None, "decoded_token": "b"},
        "68": {"logprob": -1.0, "rank": 1, "decoded_token": "e"},
    }
    assert third["66"]["logprob"] == -2.0
    body = whole(COMPLETION, request_, events(("d", -3.0)), prompt_logprobs=True)
    assert body["choices"][0]["prompt_logprobs"] == [first, second, third]


def test_the_likeliest_of_those_that_were_drawn_are_given(request_: ResolvedRequest) -> None:
    told = events(("x", -3.0), ("y", -1.0), ("z", -2.0))
    body = whole(COMPLETION, request_, told, n=2, drawn=3)
    assert [(one["index"], one["text"]) for one in body["choices"]] == [(0, "y"), (1, "z")]
    assert body["usage"]["completion_tokens"] == 3
    assert body["choices"][0]["logprobs"] is None


@pytest.mark.parametrize("template", [CHAT, COMPLETION], ids=["chat", "completion"])
@pytest.mark.parametrize("rich", [False, True], ids=["text", "logprobs"])
def test_a_chunk_is_one_line_to_clients_that_know_unicodes_ends_of_lines(
    request_: ResolvedRequest, template: Template, rich: bool
) -> None:
    text = "".join(map(chr, range(0x100))) + "\u2028é\u2029\u3042"
    told: list[Event] = [Delta(0, 0, [1], text, [logprob(-1.0, 70)])]
    chunks = [
        one["choices"][0] for one in streamed(template, request_, told, echo=[text], logprobs=rich)
    ]
    texts = [one.get("text") or one.get("delta", {}).get("content") or "" for one in chunks]
    assert "".join(texts) == 2 * text


def test_why_it_stopped_and_what_was_used_so_far(request_: ResolvedRequest) -> None:
    told = events(("d", -3.0))
    body = whole(CHAT, request_, told)
    assert body["choices"][0]["stop_reason"] == 9
    assert body["system_fingerprint"] == "fp"
    first, text, last, usage = streamed(CHAT, request_, told, usage=True, continuous_usage=True)
    assert first["usage"] == {"prompt_tokens": 3, "completion_tokens": 0, "total_tokens": 3}
    assert text["usage"] == {"prompt_tokens": 3, "completion_tokens": 1, "total_tokens": 4}
    assert last["choices"][0]["stop_reason"] == 9
    assert usage["usage"]["completion_tokens"] == 1
    assert {one["system_fingerprint"] for one in (first, last, usage)} == {"fp"}


def test_tokens_can_be_named_by_their_ids(request_: ResolvedRequest) -> None:
    told = events(("d", -3.0))
    (choice,) = whole(CHAT, request_, told, logprobs=True, tokens_as_ids=True)["choices"]
    (entry,) = choice["logprobs"]["content"]
    assert (entry["token"], entry["bytes"]) == ("token_id:67", [100])
    assert entry["top_logprobs"][0]["token"] == "token_id:70"


def test_calls_of_functions_have_the_older_shape(request_: ResolvedRequest) -> None:
    parts = ((CallBegun(0, "id", "f"), CallArguments(0, '{"a"')), (CallArguments(0, ": 1}"),))
    told: list[Event] = [Delta(0, at, [1], "", [], each) for at, each in enumerate(parts)]
    told.append(ChoiceFinished(0, FinishReason.TOOL_CALLS, ""))
    (choice,) = whole(CHAT, request_, told, functions=True)["choices"]
    assert choice["finish_reason"] == "function_call"
    assert choice["message"]["content"] is None
    assert choice["message"]["function_call"] == {"name": "f", "arguments": '{"a": 1}'}
    assert "tool_calls" not in choice["message"]
    chunks = [one["choices"][0] for one in streamed(CHAT, request_, told, functions=True)]
    assert chunks[0]["delta"] == {"role": "assistant", "content": None}
    assert [chunk["delta"]["function_call"] for chunk in chunks[1:-1]] == [
        {"name": "f", "arguments": ""},
        {"arguments": '{"a"'},
        {"arguments": ": 1}"},
    ]
    assert chunks[-1]["finish_reason"] == "function_call"
    assert whole(CHAT, request_, told)["choices"][0]["finish_reason"] == "tool_calls"
