"""What requests say of how their prompts are made means the same on both surfaces."""

import json
from collections.abc import Mapping
from typing import Any

import grpc
import httpx
import pytest

from baton.client import AsyncClient
from baton.errors import BatonError, Reason
from baton.internal.v1 import cluster_pb2
from baton.v1 import inference_pb2
from baton.worker.wire.tokenizer_files import TokenizerFiles

TEMPLATE = (
    "{% for m in messages %}{{ m.role }}:{{ m.content }}\n{% endfor %}"
    "{% if style is defined %}{{ style }}\n{% endif %}"
    "{% if documents is defined and documents %}{{ documents[0].text }}\n{% endif %}"
    "{% if enable_thinking is defined %}{{ reasoning_effort }}{{ enable_thinking }}\n{% endif %}"
    "{% if add_generation_prompt %}assistant:{% endif %}"
)
HELLO = [{"role": "user", "content": "hello"}, {"role": "assistant", "content": "I say"}]
LEFT, RIGHT = inference_pb2.TRUNCATION_SIDE_LEFT, inference_pb2.TRUNCATION_SIDE_RIGHT
DEEP = json.loads('{"a":' * 150 + "1" + "}" * 150)


@pytest.fixture
async def templated(empty_stage: Any) -> Any:
    """A stage whose model's template has variables."""
    stage = empty_stage
    tokenizer = (stage.model_dir / "tokenizer.json").read_bytes()
    files = TokenizerFiles(tokenizer, json.dumps({"chat_template": TEMPLATE}).encode())
    await stage.add("router", cluster_pb2.ROLE_ROUTER)
    await stage.add("p0", cluster_pb2.ROLE_PREFILL, files)
    await stage.add("d0", cluster_pb2.ROLE_DECODE, files)
    stage.router.place = lambda _: stage.place("d0", "p0")
    await stage.start_frontend()
    return stage


def prompt_of(stage: Any) -> str:
    """Return the prompt that the prefill worker got last."""
    letters = {stage.letter_id(chr(code)): chr(code) for code in range(33, 127)}
    letters |= {stage.letter_id("Ċ"): "\n", stage.letter_id("Ġ"): " "}
    return "".join(letters[one] for one in stage.worker("p0").starts()[-1].prompt_token_ids)


async def over_http(stage: Any, path: str, body: Mapping[str, Any]) -> BatonError | None:
    async with httpx.AsyncClient(base_url=stage.http_url) as client:
        answer = await client.post(path, json={"model": stage.model, "max_tokens": 1, **body})
    if answer.is_success:
        return None
    told = answer.json()["error"]
    reason = next(one for one in Reason if one.openai_code == told["code"])
    return BatonError(reason, told["message"], field=told["param"])


async def over_grpc(stage: Any, method: str, request: Any) -> BatonError | None:
    request.context.model = stage.model
    request.sampling.max_tokens = 1
    try:
        async for _ in getattr(stage.stub(), method)(request):
            pass
    except grpc.aio.AioRpcError as refused:
        return BatonError.from_rpc_error(refused)
    return None


@pytest.mark.parametrize(
    ("fields", "on_grpc", "prompt"),
    [
        ({}, {}, "user:hello\nassistant:I say\nassistant:"),
        (
            {"add_generation_prompt": False},
            {"add_generation_prompt": False},
            "user:hello\nassistant:I say\n",
        ),
        (
            {"continue_final_message": True},
            {"continue_final_message": True},
            "user:hello\nassistant:I say",
        ),
        (
            {"chat_template_kwargs": {"style": "x"}, "documents": [{"text": "y"}]},
            {"chat_template_kwargs": '{"style": "x"}', "documents": '[{"text": "y"}]'},
            "user:hello\nassistant:I say\nx\ny\nassistant:",
        ),
        (
            {"reasoning_effort": "none"},
            {"reasoning_effort": "none"},
            "user:hello\nassistant:I say\nnoneFalse\nassistant:",
        ),
        ({"truncate_prompt_tokens": 5}, {"truncate_prompt_tokens": 5}, "tant:"),
        (
            {"truncate_prompt_tokens": 5, "truncation_side": "right"},
            {"truncate_prompt_tokens": 5, "truncation_side": RIGHT},
            "user:",
        ),
    ],
)
async def test_what_is_asked_of_the_template(
    templated: Any, fields: dict[str, Any], on_grpc: dict[str, Any], prompt: str
) -> None:
    stage, body = templated, {"messages": HELLO, **fields}
    assert await over_http(stage, "/v1/chat/completions", body) is None
    assert prompt_of(stage) == prompt
    messages = [inference_pb2.ChatMessage(**one) for one in HELLO]
    assert (
        await over_grpc(stage, "Chat", inference_pb2.ChatRequest(messages=messages, **on_grpc))
        is None
    )
    assert prompt_of(stage) == prompt
    if "truncate_prompt_tokens" in fields:
        return
    async with AsyncClient(stage.grpc_address) as client:
        await client.chat(HELLO, model=stage.model, max_tokens=1, **fields).answer()
    assert prompt_of(stage) == prompt
    asked = inference_pb2.TokenizeRequest(
        model=stage.model, messages=messages, return_token_texts=True, **on_grpc
    )
    assert "".join((await stage.stub().Tokenize(asked)).token_texts) == prompt


@pytest.mark.parametrize(
    ("fields", "on_grpc", "field"),
    [
        (
            {"continue_final_message": True, "add_generation_prompt": True},
            {"continue_final_message": True, "add_generation_prompt": True},
            "continue_final_message",
        ),
        (
            {"chat_template_kwargs": {"messages": []}},
            {"chat_template_kwargs": '{"messages": []}'},
            "chat_template_kwargs.messages",
        ),
        (
            {"chat_template_kwargs": DEEP},
            {"chat_template_kwargs": json.dumps(DEEP)},
            "chat_template_kwargs",
        ),
        ({"documents": [DEEP]}, {"documents": json.dumps([DEEP])}, "documents"),
        ({"reasoning_effort": "x" * 65}, {"reasoning_effort": "x" * 65}, "reasoning_effort"),
        ({"truncate_prompt_tokens": 0}, {"truncate_prompt_tokens": 0}, "truncate_prompt_tokens"),
        ({"truncate_prompt_tokens": -2}, {"truncate_prompt_tokens": -2}, "truncate_prompt_tokens"),
        ({"truncation_side": "up"}, {"truncation_side": 7}, "truncation_side"),
        ({"documents": {}}, {"documents": "{}"}, "documents"),
        ({"chat_template_kwargs": []}, {"chat_template_kwargs": "["}, "chat_template_kwargs"),
    ],
)
async def test_what_cannot_be_asked_of_the_template(
    templated: Any, fields: dict[str, Any], on_grpc: dict[str, Any], field: str
) -> None:
    stage, body = templated, {"messages": HELLO, **fields}
    messages = [inference_pb2.ChatMessage(**one) for one in HELLO]
    request = inference_pb2.ChatRequest(messages=messages, **on_grpc)
    for refused in (
        await over_http(stage, "/v1/chat/completions", body),
        await over_grpc(stage, "Chat", request),
    ):
        assert refused is not None
        assert (refused.reason, refused.field) == (Reason.INVALID_FIELD, field)


@pytest.mark.parametrize(
    ("fields", "on_grpc", "prompt"),
    [
        (
            {"truncate_prompt_tokens": 3},
            {"truncate_prompt_tokens": 3, "truncation_side": LEFT},
            "def",
        ),
        (
            {"truncate_prompt_tokens": 3, "truncation_side": "right"},
            {"truncate_prompt_tokens": 3, "truncation_side": RIGHT},
            "abc",
        ),
        ({"truncate_prompt_tokens": -1}, {"truncate_prompt_tokens": -1}, "abcdef"),
        ({"add_special_tokens": False}, {"add_special_tokens": False}, "abcdef"),
    ],
)
async def test_which_tokens_a_prompt_keeps(
    stage: Any, fields: dict[str, Any], on_grpc: dict[str, Any], prompt: str
) -> None:
    assert await over_http(stage, "/v1/completions", {"prompt": "abcdef", **fields}) is None
    assert prompt_of(stage) == prompt
    request = inference_pb2.GenerateRequest(text="abcdef", **on_grpc)
    assert await over_grpc(stage, "Generate", request) is None
    assert prompt_of(stage) == prompt
    async with AsyncClient(stage.grpc_address) as client:
        await client.generate("abcdef", model=stage.model, max_tokens=1, **fields).answer()
    assert prompt_of(stage) == prompt


async def test_a_suffix_that_cannot_be(stage: Any) -> None:
    for body, on_grpc, reason in (
        ({"prompt": "a"}, {"text": "a"}, Reason.UNSUPPORTED_PARAMETER),
        ({"prompt": [64]}, {"token_ids": {"ids": [64]}}, Reason.INVALID_FIELD),
        (
            {"prompt": "a", "add_special_tokens": True},
            {"text": "a", "add_special_tokens": True},
            Reason.INVALID_FIELD,
        ),
    ):
        request = inference_pb2.GenerateRequest(suffix="b", **on_grpc)
        for refused in (
            await over_http(stage, "/v1/completions", {"suffix": "b", **body}),
            await over_grpc(stage, "Generate", request),
        ):
            assert refused is not None
            assert (refused.reason, refused.field) == (reason, "suffix")


async def test_tokens_become_text(stage: Any) -> None:
    ids = [stage.letter_id("a"), stage.eos, stage.letter_id("b")]
    async with AsyncClient(stage.grpc_address) as client:
        assert await client.detokenize(ids, model=stage.model) == "a<eos>b"
        assert await client.detokenize([], model="") == ""
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await stage.stub().Detokenize(
            inference_pb2.DetokenizeRequest(model=stage.model, token_ids=[*ids, 257])
        )
    refused = BatonError.from_rpc_error(caught.value)
    assert (refused.reason, refused.field) == (Reason.INVALID_FIELD, "token_ids")
