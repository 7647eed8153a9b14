"""Chats with a provider's model: whole and streamed, over HTTP and gRPC, and what is recorded."""

import json
from typing import Any

import pytest

from baton.client import AsyncClient, FinishReason
from tests.integration.frontend.providers.conftest import SECRET, Provided
from tests.support.doubles.upstream import Exchange, delta, finish, usage
from tests.support.wait import eventually


async def test_whole(provided: Provided) -> None:
    answer = await provided.ask(temperature=0.5, max_tokens=20, stop=["x"])
    assert answer.status_code == 200, answer.text
    body = answer.json()
    assert body["model"] == "gpt"
    assert body["choices"][0]["message"]["content"] == "Hello there"
    assert body["choices"][0]["finish_reason"] == "stop"
    assert body["usage"] == {
        "prompt_tokens": 9,
        "completion_tokens": 2,
        "total_tokens": 11,
        "prompt_tokens_details": {"cached_tokens": 4},
    }
    (exchange,) = provided.upstream.exchanges
    assert (exchange.method, exchange.path) == ("POST", "/v1/chat/completions")
    assert exchange.headers["authorization"] == f"Bearer {SECRET}"
    assert exchange.body == {
        "model": "gpt-4o",
        "messages": [{"role": "user", "content": "Hi"}],
        "stream": True,
        "stream_options": {"include_usage": True},
        "temperature": 0.5,
        "stop": ["x"],
        "max_completion_tokens": 20,
    }


async def test_streamed(provided: Provided) -> None:
    answer = await provided.ask(stream=True, stream_options={"include_usage": True})
    events = [line[6:] for line in answer.text.split("\n") if line.startswith("data: ")]
    assert events.pop() == "[DONE]"
    chunks = [json.loads(event) for event in events]
    assert {chunk["model"] for chunk in chunks} == {"gpt"}
    contents = [c["choices"][0]["delta"].get("content") for c in chunks if c["choices"]]
    assert "".join(filter(None, contents)) == "Hello there"
    assert chunks[-1]["usage"]["prompt_tokens"] == 9
    assert provided.upstream.exchanges[0].body["max_completion_tokens"] == 1000


async def test_grpc(provided: Provided) -> None:
    async with AsyncClient(provided.stage.grpc_address) as client:
        answer = await client.chat("Hi", model="gpt").answer()
        assert (answer.text, answer.model, answer.provider) == ("Hello there", "gpt", "acme")
        assert answer.usage.prompt_tokens == 9
        assert answer.usage.output_tokens == 2
        assert not answer.exact_continuation
        (model,) = await client.models()
        assert (model.name, model.context_tokens, model.provider) == ("gpt", 8000, "acme")


async def test_what_a_filter_cut_off(provided: Provided) -> None:
    async def answer(exchange: Exchange) -> None:
        await exchange.head()
        call = {"index": 0, "id": "c1", "function": {"name": "time", "arguments": '{"zo'}}
        await exchange.events(delta("Hello"), delta(tool_calls=[call]))
        await exchange.events(finish("content_filter"), usage(9, 2, 4), "[DONE]")
        await exchange.end()

    provided.upstream.answer = answer
    tool = {"type": "function", "function": {"name": "time", "parameters": {"type": "object"}}}
    for stream in (False, True):
        got = await provided.ask(stream=stream, tools=[tool])
        assert '"finish_reason":"content_filter"' in got.text
    async with AsyncClient(provided.stage.grpc_address) as client:
        found = await client.chat("Hi", model="gpt").answer()
        assert found.choices[0].reason is FinishReason.CONTENT_FILTER
    for record in await provided.recorded(3):
        assert (record["provider"], record["model"]) == ("acme", "gpt")
        assert record["finish_reasons"] == ["content_filter"]
        assert record["cost_nanodollars"] == 5 * 1000 + 4 * 500 + 2 * 2000
        assert "placement_reason" not in record


async def test_connections_are_used_again(provided: Provided) -> None:
    for _ in range(3):
        assert (await provided.ask()).status_code == 200
    assert provided.upstream.connections == 1


async def test_listed_with_its_provider(provided: Provided) -> None:
    (model,) = (await provided.http.get("/v1/models")).json()["data"]
    assert (model["id"], model["owned_by"], model["provider"]) == ("gpt", "acme", "acme")
    assert model["max_model_len"] == 8000
    await provided.admin.remove("acme")

    async def gone() -> bool:
        return (await provided.ask()).status_code == 404

    await eventually(gone)


async def test_tools(provided: Provided) -> None:
    async def answer(exchange: Any) -> None:
        await exchange.head()

        def call(**fields: Any) -> Any:
            return delta(tool_calls=[fields])

        await exchange.events(
            call(index=0, id="c1", function={"name": "wea"}),
            call(index=0, function={"name": "ther", "arguments": ""}),
            call(index=0, function={"arguments": '{"ci'}),
            call(index=1, id="c2", function={"name": "time", "arguments": "{"}),
            call(index=0, function={"arguments": 'ty": 1}'}),
            call(index=1, function={"arguments": "}"}),
            finish("tool_calls"),
            "[DONE]",
        )
        await exchange.end()

    provided.upstream.answer = answer
    tool = {"type": "function", "function": {"name": "weather", "parameters": {"type": "object"}}}
    got = await provided.ask(tools=[tool], tool_choice="required")
    assert got.status_code == 200, got.text
    (choice,) = got.json()["choices"]
    assert choice["finish_reason"] == "tool_calls"
    assert [one["function"] for one in choice["message"]["tool_calls"]] == [
        {"name": "weather", "arguments": '{"city": 1}'},
        {"name": "time", "arguments": "{}"},
    ]
    (exchange,) = provided.upstream.exchanges
    assert exchange.body["tools"] == [tool]
    assert exchange.body["tool_choice"] == "required"


async def test_cancelled(provided: Provided) -> None:
    async def endless(exchange: Any) -> None:
        await exchange.head()
        await exchange.events(delta("a"))
        await exchange.gone.wait()

    provided.upstream.answer = endless
    body = {"model": "gpt", "messages": [{"role": "user", "content": "Hi"}], "stream": True}
    async with provided.http.stream("POST", "/v1/chat/completions", json=body) as response:
        await anext(response.aiter_lines())
    (exchange,) = provided.upstream.exchanges
    await eventually(exchange.gone.is_set)


@pytest.mark.parametrize(
    ("fields", "field"),
    [
        ({"top_k": 5}, "top_k"),
        ({"logprobs": True}, "top_logprobs"),
        ({"ignore_eos": True}, "ignore_eos"),
        ({"return_token_ids": True}, "return_token_ids"),
        ({"guided_regex": "a+"}, "guided_regex"),
        ({"max_tokens": 9999}, "max_tokens"),
        ({"chat_template_kwargs": {"a": 1}}, "chat_template_kwargs.a"),
    ],
)
async def test_what_the_upstream_does_not_take(
    provided: Provided, fields: dict[str, Any], field: str
) -> None:
    answer = await provided.ask(**fields)
    assert answer.status_code == 400, answer.text
    assert answer.json()["error"]["param"] == field
    assert not provided.upstream.exchanges


async def test_quirks(provided: Provided) -> None:
    await provided.replace(
        quirks=("max_tokens", "no_stream_options", "drop:ignore_eos", "takes:top_k")
    )

    async def applied() -> bool:
        answer = await provided.ask(top_k=5, ignore_eos=True, max_tokens=7)
        return answer.status_code == 200

    await eventually(applied)
    body = provided.upstream.exchanges[-1].body
    assert (body["top_k"], body["max_tokens"]) == (5, 7)
    assert not {"ignore_eos", "stream_options", "max_completion_tokens"} & body.keys()


async def test_texts_and_tokens_need_a_tokenizer(provided: Provided) -> None:
    for path, body in (
        ("/v1/completions", {"prompt": "abc"}),
        ("/v1/tokenize", {"prompt": "abc"}),
        ("/v1/detokenize", {"tokens": [1]}),
    ):
        answer = await provided.http.post(path, json={"model": "gpt", **body})
        assert (answer.status_code, "acme" in answer.text) == (400, True), answer.text


async def test_items_are_compacted(provided: Provided) -> None:
    """The provider writes the summary; its items are read as those of any model."""
    body = {"model": "gpt", "input": "My name is Ada.", "instructions": "Be kind."}
    answer = await provided.http.post("/v1/responses/compact", json=body)
    assert answer.status_code == 200, answer.text
    *kept, compaction = answer.json()["output"]
    assert [item["content"][0]["text"] for item in kept] == ["My name is Ada."]
    sent = provided.upstream.exchanges[-1].body
    said = [message["content"] for message in sent["messages"]]
    assert said[:2] == ["Be kind.", "My name is Ada."]
    assert said[2].startswith("Summarize our conversation")
    assert sent["max_completion_tokens"] == 1000
    onward = [*kept, compaction, {"role": "user", "content": "So?"}]
    answer = await provided.http.post("/v1/responses", json={"model": "gpt", "input": onward})
    assert answer.status_code == 200, answer.text
    said = [one["content"] for one in provided.upstream.exchanges[-1].body["messages"]]
    assert said[0] == "My name is Ada."
    assert said[2:] == ["Hello there", "So?"]
