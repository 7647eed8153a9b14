"""What a stream adds up to, for OpenAI's client too, is the response that it ends with."""

import json
import random
from types import SimpleNamespace
from typing import Any

import pytest

from baton.conversations.ids import draw_block
from baton.errors import BatonError, Reason
from baton.request.stream_events import (
    CallArguments,
    CallBegun,
    CallEnded,
    ChoiceFinished,
    Delta,
    Event,
    Finished,
    FinishReason,
    Part,
    Reasoning,
    Started,
    Text,
    TokenLogprob,
    Usage,
)
from services.frontend.openai.request.parse import RequestNames
from services.frontend.openai.responses.encoder import ResponseEncoder, ResponseName
from services.frontend.openai.responses.input.sealing import ItemSeal
from services.frontend.openai.responses.parse import read_response, response_request
from services.frontend.text.chat_template import ChatTemplate
from services.frontend.text.tokenizer import Tokenizer
from tests.unit.frontend.conftest import byte_level

BLOCK = draw_block(0)
STREAMS, CLIENT_STREAMS = 500, 25  # the client's types take 20 ms of a stream's
TEXTS = ("a", "é", "\u2028", '"}\n', "data: [DONE]", "🤖", " ", "\\")
TOOLS: list[Any] = [
    {"type": "function", "name": "look", "parameters": {}, "strict": False},
    {
        "type": "namespace",
        "name": "web",
        "description": "the web",
        "tools": [{"type": "function", "name": "find"}, {"type": "custom", "name": "note"}],
    },
    {"type": "custom", "name": "edit"},
    {"type": "web_search"},
]
TOKENIZER = Tokenizer(byte_level(), ChatTemplate(""))


def encoder(seal: ItemSeal | None = None, **fields: Any) -> ResponseEncoder:
    body = read_response(
        json.dumps({"model": "m", "input": "hi", "tools": TOOLS, **fields}).encode()
    )
    asked = response_request(body, RequestNames("r"), 9, seal)
    model = SimpleNamespace(name="m", tokenizer=TOKENIZER)
    resolved: Any = SimpleNamespace(
        model=model,
        named="m",
        requested="",
        prompt=[1],
        special_text=False,
        sampling=SimpleNamespace(temperature=1.0, top_p=1.0),
        exact_continuation=True,
        dropped=None,
    )
    return ResponseEncoder(ResponseName(BLOCK, 7), asked, resolved)


def answer(rng: random.Random, *, logprobs: bool = False) -> list[Event]:
    """Return the events of a random answer: texts, reasoning and calls, whole or cut off."""
    parts: list[list[Part]] = []
    for call in range(rng.randrange(4)):
        for _ in range(rng.randrange(3)):
            parts.append([Reasoning(rng.choice(TEXTS))])
        for _ in range(rng.randrange(4)):
            parts.append([Text(rng.choice(TEXTS))])
        name = rng.choice(("look", "web.find", "edit", "web.note"))
        parts.append([CallBegun(call, f"call_{call}", name)])
        texts = rng.choices(TEXTS, k=rng.randrange(4))
        if name in ("edit", "web.note"):
            texts = list(json.dumps({"input": "".join(texts)}))
        parts += [[CallArguments(call, text)] for text in texts]
        parts.append([CallEnded(call)])
    for _ in range(rng.randrange(5)):
        parts.append([Text(rng.choice(TEXTS))])
    parts = parts[: rng.randrange(len(parts) + 1)] if rng.random() < 0.3 else parts
    events: list[Event] = [Started("r", "m", 1, 1)]
    while parts:
        merged = [part for several in parts[: rng.randrange(1, 4)] for part in several]
        del parts[: max(1, len(merged))]
        text = "".join(part.text for part in merged if isinstance(part, Text))
        plain = all(isinstance(part, Text) for part in merged) and rng.random() < 0.5
        entries = [TokenLogprob(-0.5, ((65, -0.5),))] if logprobs else []
        events.append(Delta(0, 0, [65], text, entries, () if plain else merged))
    reason = rng.choice(list(FinishReason))
    events.append(ChoiceFinished(0, reason, ""))
    events.append(Finished(Usage(5, 2, 3, 4, 0.0, 0.0), ()))
    return events


def streamed(events: list[Event], **fields: Any) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """Return the events that a client gets, and what the whole response is."""
    chunks, whole = encoder(stream=True, **fields), encoder(**fields)
    data = b""
    for event in events:
        data += chunks.take(0, event)
        assert whole.take(0, event) == b""
    data += chunks.end()
    found = []
    for block in data.decode().split("\n\n")[:-1]:
        kind, line = block.split("\n")
        found.append(json.loads(line.removeprefix("data: ")))
        assert kind == f"event: {found[-1]['type']}"
    return found, whole.body()


def comparable(response: dict[str, Any]) -> dict[str, Any]:
    return response | {"completed_at": response["completed_at"] is not None}


def add_up(events: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the output that deltas add up to, as a client would that knows no `done`."""
    output: list[dict[str, Any]] = []
    for event in events:
        match event["type"]:
            case "response.output_item.added":
                assert event["output_index"] == len(output)
                output.append(event["item"])
            case "response.content_part.added":
                output[event["output_index"]]["content"].append(event["part"])
            case "response.output_text.delta" | "response.reasoning_text.delta":
                output[event["output_index"]]["content"][0]["text"] += event["delta"]
            case "response.function_call_arguments.delta":
                output[event["output_index"]]["arguments"] += event["delta"]
            case "response.custom_tool_call_input.delta":
                output[event["output_index"]]["input"] += event["delta"]
            case "response.output_item.done":
                assert event["item"]["id"] == output[event["output_index"]]["id"]
                output[event["output_index"]]["status"] = event["item"]["status"]
    return output


@pytest.mark.parametrize("logprobs", [False, True])
def test_deltas_add_up_to_the_end_which_is_the_whole_response(logprobs: bool) -> None:
    fields = {"top_logprobs": 1} if logprobs else {}
    for seed in range(STREAMS):
        events, whole = streamed(answer(random.Random(seed), logprobs=logprobs), **fields)
        assert [event["sequence_number"] for event in events] == list(range(len(events)))
        assert [event["type"] for event in events[:2]] == [
            "response.created",
            "response.in_progress",
        ]
        end = events[-1]["response"]
        assert events[-1]["type"] == f"response.{end['status']}"
        assert comparable(end) == comparable(whole)
        if not logprobs:
            assert add_up(events) == end["output"], seed
        done = [event["item"] for event in events if event["type"] == "response.output_item.done"]
        assert done == end["output"]
        assert len({item["id"] for item in done}) == len(done)
        texts = [item for item in done if item["type"] == "message"]
        assert end["baton"]["left_out"] == ["web_search"]
        assert logprobs or not any(item["content"][0]["logprobs"] for item in texts)


def test_reasoning_is_sealed_once_for_the_stream_and_its_end() -> None:
    seal = ItemSeal(bytes(32))
    reasoned = 0
    for seed in range(50):
        chunks = encoder(seal, stream=True, include=["reasoning.encrypted_content"])
        data = b"".join(chunks.take(0, event) for event in answer(random.Random(seed)))
        events = [json.loads(b.split("\ndata: ")[1]) for b in data.decode().split("\n\n")[:-1]]
        done = [event["item"] for event in events if event["type"] == "response.output_item.done"]
        assert done == chunks.body()["output"]
        for item in done:
            if item["type"] == "reasoning":
                (text,) = [part["text"] for part in item["content"]]
                assert seal.open(item["encrypted_content"]) == text
                reasoned += 1
    assert reasoned
    events, _ = streamed(answer(random.Random(1)))
    assert not any("encrypted_content" in item for item in events[-1]["response"]["output"])


@pytest.mark.xdist_group("openai")
def test_openais_client_accumulates_the_end() -> None:
    from openai import omit  # takes a second
    from openai._models import construct_type
    from openai.lib.streaming.responses._responses import ResponseStreamState
    from openai.types.responses import Response, ResponseStreamEvent

    ended = 0
    for seed in range(CLIENT_STREAMS):
        events, whole = streamed(answer(random.Random(seed)))
        state: Any = ResponseStreamState(input_tools=omit, text_format=omit)
        last: Any = None
        for event in events:
            typed: Any = construct_type(type_=ResponseStreamEvent, value=event)
            assert typed.type == event["type"], typed
            last = [last, *state.handle_event(typed)][-1]
        Response.model_validate(whole)
        if events[-1]["type"] == "response.completed":
            ended += 1
            found = [_unparsed(one.to_dict()) for one in last.response.output]
            assert found == whole["output"]
    assert ended > CLIENT_STREAMS / 4


def _unparsed(item: dict[str, Any]) -> dict[str, Any]:
    """Return an item without what the client itself added."""
    bare = {key: value for key, value in item.items() if key != "parsed_arguments"}
    if item["type"] == "message":
        bare["content"] = [
            {k: v for k, v in part.items() if k != "parsed"} for part in item["content"]
        ]
    return bare


def test_a_stream_that_fails_says_so_with_what_there_was() -> None:
    chunks = encoder(stream=True)
    chunks.take(0, Started("r", "m", 1, 1))
    chunks.take(0, Delta(0, 0, [65], "ab", ()))
    last = chunks.failed(BatonError(Reason.WORKER_LOST, "the worker is gone"))
    events = [json.loads(b.split("\ndata: ")[1]) for b in last.decode().split("\n\n")[:-1]]
    assert [event["type"] for event in events] == [
        "response.output_text.done",
        "response.content_part.done",
        "response.output_item.done",
        "response.failed",
    ]
    response = events[-1]["response"]
    assert response["status"] == "failed"
    assert response["error"]["message"] == "the worker is gone"
    assert response["output"][0]["status"] == "incomplete"
    assert response["output"][0]["content"][0]["text"] == "ab"
