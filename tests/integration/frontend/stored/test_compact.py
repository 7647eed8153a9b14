"""OpenAI's client compacts what it keeps itself, and what is stored."""

import asyncio
from typing import Any

import pytest

from tests.support.engine.model import MODEL
from tests.support.state.frontends import Frontends

pytestmark = pytest.mark.xdist_group("openai")

FEW: Any = {"model": MODEL, "max_output_tokens": 12, "temperature": 0}


async def test_a_client_goes_on_with_what_it_was_given(frontends: Frontends) -> None:
    here, there = frontends.clients
    said: Any = [
        {"role": "developer", "content": "Be kind"},
        {"role": "user", "content": "Hello"},
        {"role": "assistant", "content": "Ho"},
        {"role": "user", "content": "x" * 20_000},
    ]
    too_long = await frontends.http[0].post(
        "/v1/responses/compact", json={"model": MODEL, "input": said}
    )
    assert (too_long.status_code, too_long.json()["error"]["code"]) == (
        400,
        "context_length_exceeded",
    )
    said[-1]["content"] = "And then?"
    compacted = await here.responses.compact(model=MODEL, input=said, instructions="Be brief")
    assert compacted.object == "response.compaction"
    assert [item.type for item in compacted.output] == ["message"] * 3 + ["compaction"]
    assert compacted.usage.input_tokens > 0
    assert 0 < compacted.usage.output_tokens <= 1024
    items: Any = compacted.to_dict(warnings=False)["output"]
    assert [item.get("role") for item in items] == ["developer", "user", "user", None]
    again = await there.responses.create(
        input=[*items, {"role": "user", "content": "So?"}], store=False, **FEW
    )
    assert again.usage is not None
    # A summary of what has a summary.
    twice = await there.responses.compact(model=MODEL, input=items)
    assert twice.output[-1].type == "compaction"
    assert twice.output[-1].id != compacted.output[-1].id


async def test_what_is_stored_is_compacted_by_its_id(frontends: Frontends) -> None:
    here, there = frontends.clients
    first = await here.responses.create(input="Hello", **FEW)
    compacted = await there.responses.compact(
        model=MODEL, previous_response_id=first.id, input="And then?"
    )
    texts = [item.content[0].text for item in compacted.output[:-1]]  # type: ignore[union-attr,index]
    assert texts == ["Hello", "And then?"]
    # It is stored nowhere, and can be sent to be stored.
    gone = await frontends.http[0].get(f"/v1/responses/{compacted.id}")
    assert gone.status_code == 404
    items: Any = compacted.to_dict(warnings=False)["output"]
    stored = await here.responses.create(input=items, **FEW)
    onward = await there.responses.create(input="So?", previous_response_id=stored.id, **FEW)
    assert onward.status in ("completed", "incomplete")
    listed = await there.responses.input_items.list(stored.id)
    assert {item.type for item in listed.data} == {"message", "compaction"}


BAD: tuple[tuple[dict[str, Any], int, str | None], ...] = (
    ({"previous_response_id": "resp_" + "0" * 32}, 404, None),
    ({}, 400, "input"),
    ({"input": "hi", "stream": True}, 400, "stream"),
    ({"input": "hi", "model": "none"}, 404, "model"),
    (
        {"input": [{"type": "compaction", "encrypted_content": "AAAA"}]},
        400,
        "input[0].encrypted_content",
    ),
)


async def test_bad_input(frontends: Frontends) -> None:
    for fields, status, param in BAD:
        body = {"model": MODEL, **fields}
        answer = await frontends.http[0].post("/v1/responses/compact", json=body)
        said = answer.status_code, answer.json()["error"]["param"]
        assert said == (status, param), answer.text


async def test_the_synchronous_client_does_the_same(frontends: Frontends) -> None:
    import openai

    def use() -> None:
        url = f"{frontends.http[0].base_url}/v1"
        with openai.OpenAI(base_url=url, api_key="none", max_retries=0) as client:
            managed: Any = [{"type": "compaction", "compact_threshold": 1000}]
            first = client.responses.create(input="Hello", context_management=managed, **FEW)
            compacted = client.responses.compact(model=MODEL, previous_response_id=first.id)
            assert [item.type for item in compacted.output] == ["message", "compaction"]

    await asyncio.to_thread(use)
