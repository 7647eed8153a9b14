"""Outputs with calls, from tokens to the JSON that clients read."""

import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import tokenizers

from baton.request.stream_events import ChoiceFinished, Delta, FinishReason, event_from_proto
from baton.request.stream_events import event_to_proto as to_proto
from baton.v1 import inference_pb2
from services.frontend.generation.state.output import ChoiceOutput
from services.frontend.openai.response.encoder import ChunkEncoder, WholeEncoder
from services.frontend.openai.response.options import ResponseOptions
from services.frontend.openai.response.templates import CHAT
from services.frontend.output.formats import answer_format
from services.frontend.requests.request import ResolvedRequest
from services.frontend.text.chat_template import ChatTemplate
from services.frontend.text.tokenizer import Tokenizer
from tests.unit.frontend.conftest import byte_level
from tests.unit.frontend.output.test_transcripts import HERE, USE

TEXT = 'Hé 世 <tool_call>\n{"name": "get_weather", "arguments": {"city": "東京 🗼"}}\n</tool_call>'
THOUGHT = "<think>\nWhere?\n</think>\n\n"
ARGUMENTS = '{"city": "東京 🗼"}'
EOS = 0


@pytest.fixture
def request_of(request_for: Callable[..., ResolvedRequest]) -> Callable[..., ResolvedRequest]:
    """Makes requests with tools to a model that thinks; its tokens are bytes."""

    def make(*stop: str, special: tuple[str, ...] = (), **sampling: Any) -> ResolvedRequest:
        backend = byte_level()
        backend.add_special_tokens([tokenizers.AddedToken(one, special=True) for one in special])
        template = (HERE / "templates" / "hermes.jinja").read_text()
        tokenizer = Tokenizer(backend, ChatTemplate(template))
        request = request_for(*stop, **{"max_tokens": 1000, **sampling})
        reader = answer_format(tokenizer, "auto", "auto").reader(
            USE, tokenizer, request.prompt, 1, "r"
        )
        return replace(
            request, model=replace(request.model, own_tokenizer=tokenizer), reader=reader
        )

    return make


def tokens_of(request: ResolvedRequest, text: str) -> list[int]:
    """Return ids, one per byte but for special and added tokens."""
    return request.model.tokenizer.encode(text)


def told(output: ChoiceOutput, tokens: list[int], size: int) -> list[Delta]:
    return [output.push(tokens[at : at + size]) for at in range(0, len(tokens), size)]


def options(**changed: Any) -> ResponseOptions:
    given = {"id": "c", "created": 1, "model": "m", "fingerprint": "f", "n": 1, "drawn": 1}
    return ResponseOptions(
        **{**given, "logprobs": False, "token_ids": False, "usage": False, **changed}
    )


@pytest.mark.parametrize("special", [(), ("<tool_call>", "</tool_call>", "</think>")])
@pytest.mark.parametrize("size", [1, 2, 7, 1000])
def test_an_answer_is_the_same_whole_and_streamed(
    request_of: Callable[..., ResolvedRequest], special: tuple[str, ...], size: int
) -> None:
    request = request_of(special=special)
    output = ChoiceOutput(request, 0)
    events: list[Any] = told(output, [*tokens_of(request, THOUGHT + TEXT), EOS], size)
    assert output.reason is FinishReason.TOOL_CALLS
    events.append(ChoiceFinished(0, output.reason, ""))
    whole = WholeEncoder(CHAT, options(), [request])
    chunks = ChunkEncoder(CHAT, options(), [request])
    streamed = b""
    for event in events:
        whole.take(0, event)
        streamed += chunks.take(0, event)
    choice = whole.body()["choices"][0]
    (call,) = choice["message"]["tool_calls"]
    assert choice["finish_reason"] == "tool_calls"
    assert choice["message"]["content"] == "Hé 世"
    assert choice["message"]["reasoning_content"] == "Where?"
    assert call["type"] == "function"
    assert call["function"] == {"name": "get_weather", "arguments": ARGUMENTS}
    lines = [json.loads(line[6:]) for line in streamed.split(b"\n\n") if line]
    deltas = [line["choices"][0]["delta"] for line in lines]
    calls = [delta["tool_calls"][0] for delta in deltas if "tool_calls" in delta]
    assert calls[0] == {
        "index": 0,
        "id": call["id"],
        "type": "function",
        "function": {"name": "get_weather", "arguments": ""},
    }
    assert all(one.keys() == {"index", "function"} for one in calls[1:])
    assert "".join(one["function"]["arguments"] for one in calls) == ARGUMENTS
    assert "".join(delta.get("content") or "" for delta in deltas) == "Hé 世"
    assert "".join(delta.get("reasoning_content", "") for delta in deltas) == "Where?"
    assert lines[-1]["choices"][0]["finish_reason"] == "tool_calls"


def test_the_name_is_told_before_the_arguments_come(
    request_of: Callable[..., ResolvedRequest],
) -> None:
    request = request_of()
    output = ChoiceOutput(request, 0)
    begun = TEXT[: TEXT.index('", "arguments"') + 1]
    deltas = told(output, tokens_of(request, begun), 1)
    assert [type(part).__name__ for part in deltas[-1].parts] == ["CallBegun"]


def test_a_call_that_is_cut_off_ends_by_length(request_of: Callable[..., ResolvedRequest]) -> None:
    request = request_of(max_tokens=60)
    output = ChoiceOutput(request, 0)
    told(output, tokens_of(request, TEXT)[:60], 5)
    assert output.reason is FinishReason.LENGTH


def test_a_stop_string_ends_a_call(request_of: Callable[..., ResolvedRequest]) -> None:
    request = request_of("東")
    output = ChoiceOutput(request, 0)
    told(output, tokens_of(request, TEXT)[:80], 1)
    assert (output.reason, output.stop_string) == (FinishReason.STOP, "東")


def test_what_is_resumed_has_the_ids_that_it_had(
    request_of: Callable[..., ResolvedRequest],
) -> None:
    request = request_of()
    tokens = [*tokens_of(request, TEXT * 2), EOS]
    whole = [part for delta in told(ChoiceOutput(request, 0), tokens, 1) for part in delta.parts]
    for cut in range(0, len(tokens), 7):
        first, second = ChoiceOutput(request, 0), ChoiceOutput(request, 0)
        before = [part for delta in told(first, tokens[:cut], 1) for part in delta.parts]
        second.push(tokens[:cut])
        after = [part for delta in told(second, tokens[cut:], 1) for part in delta.parts]
        assert before + after == whole


def test_parts_cross_the_wire(request_of: Callable[..., ResolvedRequest]) -> None:
    request = request_of()
    output = ChoiceOutput(request, 0)
    for delta in told(output, [*tokens_of(request, THOUGHT + TEXT), EOS], 9):
        message = inference_pb2.ChatResponse()
        to_proto(delta, message)
        found = event_from_proto(inference_pb2.ChatResponse.FromString(message.SerializeToString()))
        assert isinstance(found, Delta)
        assert (found.text, list(found.parts)) == (delta.text, list(delta.parts))


def test_without_reasoning_it_is_left_out(request_of: Callable[..., ResolvedRequest]) -> None:
    request = request_of()
    output = ChoiceOutput(request, 0)
    whole = WholeEncoder(CHAT, options(reasoning=False), [request])
    for delta in told(output, [*tokens_of(request, THOUGHT + "Yes"), EOS], 3):
        whole.take(0, delta)
    message = whole.body()["choices"][0]["message"]
    assert message == {"role": "assistant", "content": "Yes", "refusal": None}
