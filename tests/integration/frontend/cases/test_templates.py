"""Chat templates of checkpoints as they are published: several of them, and any special token."""

import json
from typing import Any

import httpx
import pytest

from baton.client import AsyncClient
from baton.internal.v1 import cluster_pb2
from baton.worker.wire.tokenizer_files import TokenizerFiles

TOOLS = [{"type": "function", "function": {"name": "f", "parameters": {}}}]
HELLO = [{"role": "user", "content": "hi"}]
CALLS = "{% if false %}<tool_call>{% endif %}"
"""Shows how the model writes calls."""


async def serve(stage: Any, config: dict[str, Any]) -> None:
    """Serve a model with a tokenizer_config.json."""
    tokenizer = (stage.model_dir / "tokenizer.json").read_bytes()
    files = TokenizerFiles(tokenizer, json.dumps(config).encode())
    await stage.add("router", cluster_pb2.ROLE_ROUTER)
    await stage.add("p0", cluster_pb2.ROLE_PREFILL, files)
    await stage.add("d0", cluster_pb2.ROLE_DECODE, files)
    stage.router.place = lambda _: stage.place("d0", "p0")
    await stage.start_frontend()


async def chat(stage: Any, **fields: Any) -> httpx.Response:
    body = {"model": stage.model, "messages": HELLO, "max_tokens": 1, **fields}
    async with httpx.AsyncClient(base_url=stage.http_url) as client:
        return await client.post("/v1/chat/completions", json=body)


def last_prompt(stage: Any) -> list[int]:
    return list(stage.worker("p0").starts()[-1].prompt_token_ids)


async def test_the_template_named_tool_use_is_used_with_tools(empty_stage: Any) -> None:
    named = [
        {"name": "default", "template": "D"},
        {"name": "tool_use", "template": "T{{ tools | length }}" + CALLS},
    ]
    stage = empty_stage
    await serve(stage, {"chat_template": named})
    d, t, one = map(stage.letter_id, "DT1")
    for fields, prompt in (({}, [d]), ({"tools": []}, [d]), ({"tools": TOOLS}, [t, one])):
        assert (await chat(stage, **fields)).status_code == 200
        assert last_prompt(stage) == prompt
    async with AsyncClient(stage.grpc_address) as client:
        stream = client.chat("hi", model=stage.model, tools=[{"name": "f"}], max_tokens=1)
        await stream.answer()
    assert last_prompt(stage) == [t, one]


async def test_tools_that_no_template_writes_are_refused(empty_stage: Any) -> None:
    stage = empty_stage
    await serve(stage, {"chat_template": "D" + CALLS})
    answer = await chat(stage, tools=TOOLS)
    error = answer.json()["error"]
    assert (answer.status_code, error["param"]) == (400, "tools")
    assert "does not support tools" in error["message"]
    assert (await chat(stage, tools=TOOLS, tool_choice="none")).status_code == 200


@pytest.mark.parametrize("shape", [str, lambda text: {"__type": "AddedToken", "content": text}])
async def test_templates_know_special_tokens(empty_stage: Any, shape: Any) -> None:
    stage = empty_stage
    config = {
        "chat_template": "{{ unk_token }}{{ pad_token }}{{ additional_special_tokens[0] }}",
        "unk_token": shape("U"),
        "pad_token": shape("<eos>"),
        "additional_special_tokens": [shape("A")],
    }
    await serve(stage, config)
    assert (await chat(stage)).status_code == 200
    assert last_prompt(stage) == [stage.letter_id("U"), stage.eos, stage.letter_id("A")]
