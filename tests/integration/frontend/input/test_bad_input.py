"""One validator: what is refused on one surface is refused on the other, for the same reason."""

import asyncio
import contextlib
import gzip
import json
from collections.abc import Callable
from copy import deepcopy
from typing import Any

import grpc
import httpx
import pytest
import tokenizers
from tokenizers import models

from baton.errors import BatonError, Reason
from baton.internal.v1 import cluster_pb2
from baton.v1 import inference_pb2
from baton.worker.wire.tokenizer_files import TokenizerFiles
from tests.support.clock import DEADLINE_SECONDS, within

Change = Callable[[Any], None]


def _set(path: str, value: Any) -> Change:
    """Sets a field of a gRPC request."""
    *groups, name = path.split(".")

    def change(request: Any) -> None:
        for group in groups:
            request = getattr(request, group)
        current = getattr(request, name)
        if hasattr(current, "extend"):
            del current[:]
            current.extend(value)
        elif hasattr(current, "update"):
            current.update(value)
        else:
            setattr(request, name, value)

    return change


def _role(role: str, name: str = "") -> Change:
    return _set("messages", [inference_pb2.ChatMessage(role=role, content="x", name=name)])


def _messages(*messages: dict[str, Any]) -> dict[str, Any]:
    return {"messages": list(messages)}


CALLS = ("a", "b")
"""Ids of two calls in one message, which the template of the model refuses as Llama 3.1's does."""
TWO_CALLS = (
    _messages(
        {"role": "user", "content": "x"},
        {
            "role": "assistant",
            "content": None,
            "tool_calls": [
                {"id": each, "type": "function", "function": {"name": "f", "arguments": "{}"}}
                for each in CALLS
            ],
        },
    ),
    _set(
        "messages",
        [
            inference_pb2.ChatMessage(role="user", content="x"),
            inference_pb2.ChatMessage(
                role="assistant",
                tool_calls=[inference_pb2.ToolCall(id=each, name="f") for each in CALLS],
            ),
        ],
    ),
)

CHAT = [
    # field, reason, what is wrong on HTTP, the same on gRPC
    ("model", Reason.INVALID_FIELD, {"model": ""}, _set("context.model", "")),
    ("model", Reason.MODEL_NOT_FOUND, {"model": "no"}, _set("context.model", "no")),
    ("model", Reason.MODEL_NOT_FOUND, {"model": "../x"}, _set("context.model", "../x")),
    ("messages", Reason.INVALID_FIELD, {"messages": []}, _set("messages", [])),
    (
        "messages[0].role",
        Reason.INVALID_FIELD,
        _messages({"role": "boss", "content": "x"}),
        _role("boss"),
    ),
    (
        "messages[0].name",
        Reason.INVALID_FIELD,
        _messages({"role": "user", "content": "x", "name": "a b"}),
        _role("user", "a b"),
    ),
    (
        "messages",
        Reason.TEMPLATE_FAILED,
        _messages({"role": "user", "content": "refuse me"}),
        _set("messages", [inference_pb2.ChatMessage(role="user", content="refuse me")]),
    ),
    ("messages", Reason.TEMPLATE_FAILED, *TWO_CALLS),
    (
        "messages",
        Reason.CONTEXT_LENGTH_EXCEEDED,
        _messages({"role": "user", "content": "x" * 100_000}),
        _set("messages", [inference_pb2.ChatMessage(role="user", content="x" * 100_000)]),
    ),
    ("n", Reason.INVALID_FIELD, {"n": 129}, _set("n", 129)),
    ("n", Reason.INVALID_FIELD, {"n": -1}, _set("n", -1)),
    ("max_tokens", Reason.INVALID_FIELD, {"max_tokens": -1}, _set("sampling.max_tokens", -1)),
    ("min_tokens", Reason.INVALID_FIELD, {"min_tokens": -1}, _set("sampling.min_tokens", -1)),
    ("min_tokens", Reason.INVALID_FIELD, {"min_tokens": 9}, _set("sampling.min_tokens", 9)),
    ("temperature", Reason.INVALID_FIELD, {"temperature": 2.1}, _set("sampling.temperature", 2.1)),
    ("temperature", Reason.INVALID_FIELD, {"temperature": -1}, _set("sampling.temperature", -1)),
    ("top_p", Reason.INVALID_FIELD, {"top_p": 1.5}, _set("sampling.top_p", 1.5)),
    ("top_k", Reason.INVALID_FIELD, {"top_k": -2}, _set("sampling.top_k", -2)),
    ("min_p", Reason.INVALID_FIELD, {"min_p": 1.5}, _set("sampling.min_p", 1.5)),
    (
        "presence_penalty",
        Reason.INVALID_FIELD,
        {"presence_penalty": 3},
        _set("sampling.presence_penalty", 3),
    ),
    (
        "frequency_penalty",
        Reason.INVALID_FIELD,
        {"frequency_penalty": -3},
        _set("sampling.frequency_penalty", -3),
    ),
    (
        "repetition_penalty",
        Reason.INVALID_FIELD,
        {"repetition_penalty": 0},
        _set("sampling.repetition_penalty", 0),
    ),
    (
        "logit_bias",
        Reason.INVALID_FIELD,
        {"logit_bias": {"1": 101}},
        _set("sampling.logit_bias", {1: 101}),
    ),
    (
        "logit_bias",
        Reason.INVALID_FIELD,
        {"logit_bias": {"257": 1}},
        _set("sampling.logit_bias", {257: 1}),
    ),
    (
        "stop_token_ids",
        Reason.INVALID_FIELD,
        {"stop_token_ids": [-1]},
        _set("sampling.stop_token_ids", [-1]),
    ),
    (
        "allowed_token_ids",
        Reason.INVALID_FIELD,
        {"allowed_token_ids": [257]},
        _set("sampling.allowed_token_ids", [257]),
    ),
    (
        "allowed_token_ids",
        Reason.INVALID_FIELD,
        {"allowed_token_ids": [1] * 1025},
        _set("sampling.allowed_token_ids", [1] * 1025),
    ),
    ("stop", Reason.INVALID_FIELD, {"stop": ["a"] * 5}, _set("sampling.stop", ["a"] * 5)),
    ("stop", Reason.INVALID_FIELD, {"stop": [""]}, _set("sampling.stop", [""])),
    ("stop", Reason.INVALID_FIELD, {"stop": "a" * 257}, _set("sampling.stop", ["a" * 257])),
]

TEXT = [
    ("prompt", Reason.INVALID_FIELD, {"prompt": ""}, _set("text", "")),
    ("prompt", Reason.INVALID_FIELD, {"prompt": []}, _set("token_ids.ids", [])),
    ("prompt", Reason.INVALID_FIELD, {"prompt": [1, 257]}, _set("token_ids.ids", [1, 257])),
    ("prompt", Reason.INVALID_FIELD, {"prompt": [-1]}, _set("token_ids.ids", [-1])),
    ("logprobs", Reason.INVALID_FIELD, {"logprobs": 21}, _set("sampling.logprobs", 21)),
    (
        "prompt",
        Reason.CONTEXT_LENGTH_EXCEEDED,
        {"prompt": [1] * 100_000},
        _set("token_ids.ids", [1] * 100_000),
    ),
]


async def refusal_of(stage: Any, change: Change, *, chat: bool) -> BatonError:
    request: Any = inference_pb2.ChatRequest() if chat else inference_pb2.GenerateRequest(text="x")
    request.context.model = stage.model
    request.sampling.max_tokens = 3
    if chat:
        _role("user")(request)
    change(request)
    stub = stage.stub()
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await (stub.Chat if chat else stub.Generate)(request).read()
    error = BatonError.from_rpc_error(caught.value)
    assert caught.value.code() is error.code
    return error


async def test_both_surfaces_refuse_alike(stage: Any) -> None:
    async with httpx.AsyncClient(base_url=stage.http_url, timeout=DEADLINE_SECONDS) as client:
        for table, chat, path in (
            (CHAT, True, "/v1/chat/completions"),
            (TEXT, False, "/v1/completions"),
        ):
            good = _messages({"role": "user", "content": "x"}) if chat else {"prompt": "x"}
            for field, reason, wrong, change in table:
                body = {"model": stage.model, "max_tokens": 3, **good, **wrong}
                answer = await client.post(path, json=body)
                told = answer.json()["error"]
                assert answer.status_code == reason.http_status, (wrong, told)
                expected = (reason.openai_code, reason.openai_type, field)
                assert (told["code"], told["type"], told["param"]) == expected, told
                error = await refusal_of(stage, change, chat=chat)
                assert (error.reason, error.field) == (reason, field), error.message
                assert error.message == told["message"]
            answer = await client.post(path, json={"model": stage.model, "max_tokens": 3, **good})
            assert answer.status_code == 200
    assert len(stage.router.queries) == 2


async def test_a_template_that_refuses_is_quoted(stage: Any) -> None:
    wrong, change = TWO_CALLS
    async with httpx.AsyncClient(base_url=stage.http_url, timeout=DEADLINE_SECONDS) as client:
        body = {"model": stage.model, "max_tokens": 3, **deepcopy(wrong)}
        answer = await client.post("/v1/chat/completions", json=body)
        assert answer.status_code == 400
        said = (
            "the model's chat template rejected the messages: "
            "This model only supports single tool-calls at once!"
        )
        assert answer.json()["error"]["message"].endswith(said)
        assert (await refusal_of(stage, change, chat=True)).message.endswith(said)
        body["messages"][1]["tool_calls"].pop()
        assert (await client.post("/v1/chat/completions", json=body)).status_code == 200


async def test_what_only_grpc_can_say(stage: Any) -> None:
    resume = inference_pb2.Resume(output_ids=[1, 300], seed=1)
    for field, reason, change in (
        ("temperature", Reason.INVALID_FIELD, _set("sampling.temperature", float("nan"))),
        ("tenant", Reason.INVALID_FIELD, _set("context.tenant", "other")),
        ("adapter", Reason.MODEL_NOT_FOUND, _set("context.adapter", "a")),
        ("cache_scope", Reason.INVALID_FIELD, _set("context.cache_scope", 2)),
        ("resume.output_ids", Reason.INVALID_FIELD, lambda r: r.resume.CopyFrom(resume)),
    ):
        error = await refusal_of(stage, change, chat=False)
        assert (error.reason, error.field) == (reason, field)

    def resume_two(request: Any) -> None:
        request.n = 2
        request.resume.seed = 1

    assert (await refusal_of(stage, resume_two, chat=False)).field == "resume"


async def test_structured_output_is_refused_by_name_on_both_surfaces(stage: Any) -> None:
    schema = {"type": "json_schema", "json_schema": {"name": "a", "schema": {}}}
    async with httpx.AsyncClient(base_url=stage.http_url) as client:
        for path, body in (
            ("/v1/chat/completions", _messages({"role": "user", "content": "x"})),
            ("/v1/completions", {"prompt": "x"}),
        ):
            for name, value in (
                ("response_format", schema),
                ("response_format", {"type": "json_object"}),
                ("structured_outputs", {"regex": "a+"}),
                ("guided_grammar", 'start: "a"'),
            ):
                answer = await client.post(path, json={"model": stage.model, **body, name: value})
                told = answer.json()["error"]
                assert (told["code"], told["param"]) == ("unsupported_parameter", name)
                assert "not supported by the workers" in told["message"]
    for form in ("json_schema", "regex", "lark"):
        for chat in (True, False):
            change = _set(f"sampling.grammar.{form}", "x")
            error = await refusal_of(stage, change, chat=chat)
            assert (error.reason, error.field) == (Reason.UNSUPPORTED_PARAMETER, "grammar")
            assert "not supported by the workers" in error.message
    assert not stage.router.queries


async def test_a_tokenizer_without_bytes_refuses_forms_on_both_surfaces(empty_stage: Any) -> None:
    words = tokenizers.Tokenizer(models.WordLevel({"x": 0, "[UNK]": 1}, unk_token="[UNK]"))
    files = TokenizerFiles(words.to_str().encode(), b'{"chat_template": "x"}')
    empty_stage.features = (*empty_stage.features, "grammar")
    stage, roles = empty_stage, (cluster_pb2.ROLE_PREFILL, cluster_pb2.ROLE_DECODE)
    await stage.add("router", cluster_pb2.ROLE_ROUTER)
    for name, role in zip(("p0", "d0"), roles, strict=True):
        await stage.add(name, role, files)
    await stage.start_frontend()
    asked = {"model": stage.model, **_messages({"role": "user", "content": "x"})}
    json_object = {**asked, "response_format": {"type": "json_object"}}
    told = "is not supported: tokenizer.json cannot be used for grammars"
    async with httpx.AsyncClient(base_url=stage.http_url) as client:
        answer = await client.post("/v1/chat/completions", json=json_object)
        error = answer.json()["error"]
        assert (error["code"], error["param"]) == ("unsupported_parameter", "response_format")
        assert told in error["message"]
    for chat in (True, False):
        refused = await refusal_of(stage, _set("sampling.grammar.json_schema", "{}"), chat=chat)
        assert (refused.reason, refused.field) == (Reason.UNSUPPORTED_PARAMETER, "grammar")
        assert told in refused.message
    assert not stage.router.queries


async def test_documented_parameters_are_refused_by_name(stage: Any) -> None:
    body = {"model": stage.model, **_messages({"role": "user", "content": "x"})}
    wrong: dict[str, Any] = {
        "tools": [{"type": "function", "function": {"name": "f"}}],
        "functions": [{"name": "f"}],
        "response_format": {"type": "json_object"},
        "modalities": ["text", "audio"],
        "store": True,
        "web_search_options": {},
        "verbosity": "low",
        "best_of": 2,
        "guided_json": {},
    }
    nothing: dict[str, Any] = {
        "tools": [],
        "tool_choice": "none",
        "functions": [],
        "function_call": "none",
        "response_format": {"type": "text"},
        "modalities": ["text"],
        "best_of": 1,
        "max_tokens": 1,
    }
    async with httpx.AsyncClient(base_url=stage.http_url) as client:
        for name, value in wrong.items():
            answer = await client.post("/v1/chat/completions", json={**body, name: value})
            told = answer.json()["error"]
            assert answer.status_code == 400
            assert (told["code"], told["param"]) == ("unsupported_parameter", name)
        assert (await client.post("/v1/chat/completions", json=body | nothing)).is_success


async def test_other_ways_to_be_wrong_on_http(stage: Any) -> None:
    chat, text = "/v1/chat/completions", "/v1/completions"
    model = {"model": stage.model}
    said = {**model, **_messages({"role": "user", "content": "x"})}
    image = [{"type": "image_url", "image_url": {"url": "x"}}]
    async with httpx.AsyncClient(base_url=stage.http_url) as client:
        for path, body, code, field in (
            (text, {**model, "prompt": "x", "temprature": 1}, "invalid_value", "temprature"),
            (text, {**model, "prompt": "x", "suffix": "y"}, "unsupported_parameter", "suffix"),
            (text, {**model, "prompt": ["x", 1]}, "invalid_value", "prompt"),
            (text, {**model, "prompt": {"a": 1}}, "invalid_value", "prompt"),
            (text, {**model, "prompt": ["x"] * 65, "n": 2}, "invalid_value", "prompt"),
            (
                chat,
                {**model, **_messages({"role": "user", "content": image})},
                "unsupported_parameter",
                "messages[0].content[0].image_url",
            ),
            (
                chat,
                {**model, **_messages({"role": "user", "content": None})},
                "invalid_value",
                "messages[0].content",
            ),
            (
                chat,
                {**model, **_messages({"role": "user", "content": 5})},
                "invalid_value",
                "messages[0].content",
            ),
            (chat, {**model, "temperature": "hot"}, "invalid_value", "temperature"),
            (chat, {**model, "max_tokens": 1.5}, "invalid_value", "max_tokens"),
            (chat, {**model, "top_logprobs": 2}, "invalid_value", "top_logprobs"),
            (chat, {**said, "logprobs": True, "top_logprobs": 21}, "invalid_value", "top_logprobs"),
            (chat, {**said, "max_completion_tokens": -1}, "invalid_value", "max_completion_tokens"),
            (chat, {**said, "logit_bias": {"x": 1}}, "invalid_value", "logit_bias"),
            (chat, [1], "malformed_body", None),
        ):
            answer = await client.post(path, json=body)
            told = answer.json()["error"]
            assert answer.status_code == 400, told
            assert (told["code"], told["param"]) == (code, field), told
        json_type = {"content-type": "application/json"}
        deep = b'{"metadata":' + b"[" * 100_000 + b"]" * 100_000 + b"}"
        for content in (b"{", b"", b'{"model": "\xff"}', b'{"model": "\\ud800"}', b"{} {}", deep):
            answer = await client.post(chat, content=content, headers=json_type)
            assert answer.status_code == 400
            assert answer.json()["error"]["code"] == "malformed_body"
        for prompt in (b'"\xff"', b'["a", "\xff"]', b'"\\ud800"'):
            content = b'{"model": "%b", "prompt": %b}' % (stage.model.encode(), prompt)
            answer = await client.post(text, content=content, headers=json_type)
            told = answer.json()["error"]
            assert (answer.status_code, told["code"]) == (400, "malformed_body")
            assert ("UTF-8" in told["message"]) == (b"\xff" in prompt)
        form = {"content-type": "application/x-www-form-urlencoded"}
        assert (await client.post(chat, content=b"{}", headers=form)).status_code == 415
        packed = {**json_type, "content-encoding": "gzip"}
        answer = await client.post(chat, content=gzip.compress(b"{}"), headers=packed)
        assert answer.status_code == 415
        assert "gzip" in answer.json()["error"]["message"]
        answer = await client.get(text)
        assert (answer.status_code, answer.headers["allow"]) == (405, "POST")
        assert answer.json()["error"]["code"] == "method_not_allowed"
        for path in ("/", "/v1/none", "/v1/chat/completions/"):
            answer = await client.get(path)
            assert answer.status_code == 404
            assert answer.json()["error"]["code"] == "not_found"


async def test_bodies_have_a_limit(stage: Any) -> None:
    limit = 4 * 1024 * 1024
    async with httpx.AsyncClient(base_url=stage.http_url) as client:
        path, kind = "/v1/chat/completions", {"content-type": "application/json"}
        answer = await client.post(path, content=b" " * (limit + 1), headers=kind)
        assert answer.status_code == 413

        async def pieces() -> Any:
            for _ in range(5):
                yield b" " * (1024 * 1024)

        answer = await client.post(path, content=pieces(), headers=kind)
        assert answer.status_code == 413
        assert answer.json()["error"]["code"] == "body_too_large"
        fits = json.dumps({"model": "nobody", "messages": [{"role": "user", "content": "x"}]})
        answer = await client.post(path, content=fits.ljust(limit), headers=kind)
        assert answer.json()["error"]["code"] == "model_not_found"


async def test_clients_that_take_too_long_to_ask(empty_stage: Any) -> None:
    stage = empty_stage
    await stage.set({"http.header_timeout_seconds": 0.3, "http.body_timeout_seconds": 0.3})
    host, port = stage.http_url.removeprefix("http://").split(":")

    async def answer_to(data: bytes) -> bytes:
        reader, writer = await asyncio.open_connection(host, int(port))
        try:
            writer.write(data)
            async with within(3.0):
                return await reader.read()
        except ConnectionResetError:
            return b""
        finally:
            writer.close()

    head = b"POST /v1/completions HTTP/1.1\r\nhost: x\r\ncontent-length: 10\r\n"
    assert await answer_to(b"") == b""
    assert await answer_to(head) == b""
    late = await answer_to(head + b"\r\n{")
    assert late.startswith(b"HTTP/1.1 408 ")
    assert b"request_timeout" in late


async def test_heads_have_a_limit(stage: Any) -> None:
    host, port = stage.http_url.removeprefix("http://").split(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    try:
        # The answer may come before all is sent, and the rest is not read.
        with contextlib.suppress(ConnectionError):
            writer.write(b"GET /health HTTP/1.1\r\nhost: x\r\nx: ")
            for _ in range(64):
                writer.write(b"a" * 16384)
                await writer.drain()
        async with within(3.0):
            assert (await reader.readline()).startswith(b"HTTP/1.1 431 ")
    finally:
        writer.close()
    async with httpx.AsyncClient(base_url=stage.http_url) as client:
        answer = await client.get("/health", headers={"x": "a" * 32768})
        assert answer.status_code == 200


async def test_settings_that_need_a_person(empty_stage: Any) -> None:
    from baton.settings import StartupError

    await empty_stage.set()
    port = int(empty_stage.http_url.rpartition(":")[2])
    with pytest.raises(StartupError, match=r"http\.port .* free the port"):
        await empty_stage.start_frontend({"http.port": port})
