"""Inputs of some megabytes are refused at next to no cost: no other stream waits for them."""

import asyncio
import json
import threading
from collections.abc import Callable
from typing import Any

import grpc
import pytest

from baton.errors import BatonError, Reason
from baton.rpc.channels import open_channel
from baton.v1 import common_pb2, inference_pb2
from services.frontend.text.tokenizer import LONG_CHARACTERS, Tokenizer
from tests.support.doubles.letters import CONTEXT
from tests.support.loops.holds import holds_loop

MIB = 1024 * 1024
HOLD_SECONDS = 1.0
"""A quiet machine takes some 30 ms, and a hundred with the client in it. Read as what they say, the
worst of these hold the loop for seconds."""

WORDS = "the quick brown fox " * (3 * MIB // 20)
TURN = {"role": "user", "content": "x"}
Made = Callable[[], tuple[str, bytes]]
"""Makes a path and a body: all of them take seconds, of each process that collects tests."""


def completion(**body: Any) -> tuple[str, bytes]:
    return "/v1/completions", json.dumps({"model": "letters", "prompt": "x", **body}).encode()


def chat(messages: list[Any], **body: Any) -> tuple[str, bytes]:
    body = {"model": "letters", "messages": messages, **body}
    return "/v1/chat/completions", json.dumps(body).encode()


HTTP: dict[str, tuple[Made, str]] = {
    "a text of one letter": (lambda: completion(prompt="a" * 4_000_000), "CONTEXT_LENGTH_EXCEEDED"),
    "words": (lambda: completion(prompt=WORDS), "CONTEXT_LENGTH_EXCEEDED"),
    "four bytes a character": (
        lambda: completion(prompt="😀" * 300_000),
        "CONTEXT_LENGTH_EXCEEDED",
    ),
    "a long turn": (lambda: chat([{**TURN, "content": WORDS}]), "CONTEXT_LENGTH_EXCEEDED"),
    "as many turns as may be": (
        lambda: chat([{**TURN, "content": "x" * 900}] * 4096),
        "CONTEXT_LENGTH_EXCEEDED",
    ),
    "a text to count": (
        lambda: ("/tokenize", json.dumps({"model": "letters", "prompt": WORDS}).encode()),
        "CONTEXT_LENGTH_EXCEEDED",
    ),
    "empty turns": (lambda: chat([{}] * 1_000_000), "BODY_TOO_LARGE"),
    "more turns than may be": (lambda: chat([TURN] * 30_000), "INVALID_FIELD"),
    "empty prompts": (lambda: completion(prompt=[[]] * 1_000_000), "BODY_TOO_LARGE"),
    "more prompts than may be": (lambda: completion(prompt=["x"] * 200_000), "INVALID_FIELD"),
    "token ids": (lambda: completion(prompt=[1] * 1_000_000), "BODY_TOO_LARGE"),
    "more ids than the context": (
        lambda: completion(prompt=[1] * 200_000),
        "CONTEXT_LENGTH_EXCEEDED",
    ),
    "lists in lists": (
        lambda: ("/v1/completions", b'{"prompt":' + b"[" * 2_000_000),
        "BODY_TOO_LARGE",
    ),
    "stop strings": (lambda: completion(stop=["x"] * 700_000), "BODY_TOO_LARGE"),
    "stop strings with quotes in them": (
        lambda: completion(stop=['"\\,'] * 200_000),
        "INVALID_FIELD",
    ),
    "a bias per token": (
        lambda: completion(logit_bias={str(i): 1 for i in range(250_000)}),
        "BODY_TOO_LARGE",
    ),
    "parameters of nobody": (
        lambda: completion(**{f"x{i}": i for i in range(180_000)}),
        "BODY_TOO_LARGE",
    ),
    "a model's name": (lambda: completion(model="a" * 4_000_000), "MODEL_NOT_FOUND"),
}

CODES = {
    "CONTEXT_LENGTH_EXCEEDED": (400, "context_length_exceeded"),
    "BODY_TOO_LARGE": (413, "body_too_large"),
    "INVALID_FIELD": (400, "invalid_value"),
    "MODEL_NOT_FOUND": (404, "model_not_found"),
}


async def post(url: str, path: str, body: bytes) -> tuple[int, dict[str, Any]]:
    """Ask over a connection of its own; return the status and the error.

    httpx spends more on a body than the server does.
    """
    host, port = url.removeprefix("http://").split(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    head = f"POST {path} HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\n"
    writer.write(f"{head}content-length: {len(body)}\r\nconnection: close\r\n\r\n".encode())
    for at in range(0, len(body), 65_536):
        writer.write(body[at : at + 65_536])
        await writer.drain()
    answer = await reader.read()
    writer.close()
    status, _, rest = answer.partition(b"\r\n")
    said = json.loads(rest.partition(b"\r\n\r\n")[2])
    return int(status.split()[1]), said.get("error", said)


@pytest.mark.parametrize("name", HTTP)
async def test_a_large_body(stage: Any, name: str) -> None:
    make, reason = HTTP[name]
    path, body = make()
    body = body.replace(b'"letters"', json.dumps(stage.model).encode(), 1)

    async def ask() -> None:
        status, error = await post(stage.http_url, path, body)
        assert (status, error["code"]) == CODES[reason], error
        assert len(error["message"]) < 2000

    assert not await holds_loop(ask, HOLD_SECONDS)


TURN_SECONDS = 0.05
"""What no request may hold the loop for; these take 12 to 30 ms, the client and workers in it."""
ROOM = CONTEXT - 100
LARGEST: dict[str, Made] = {
    "a text": lambda: completion(prompt="a" * ROOM, max_tokens=1),
    "ids": lambda: completion(prompt=[1] * ROOM, max_tokens=1),
    "a turn": lambda: chat([{**TURN, "content": "a" * (ROOM - 100)}], max_tokens=1),
    "turns": lambda: chat([{**TURN, "content": "x" * (ROOM // 4096 - 7)}] * 4096, max_tokens=1),
    "prompts": lambda: completion(prompt=["7" * LONG_CHARACTERS] * 64, max_tokens=1),
}


@pytest.mark.parametrize("name", LARGEST)
async def test_the_largest_that_is_taken(stage: Any, name: str) -> None:
    path, body = LARGEST[name]()
    body = body.replace(b'"letters"', json.dumps(stage.model).encode(), 1)

    async def ask() -> None:
        status, answer = await post(stage.http_url, path, body)
        assert status == 200, answer

    assert not await holds_loop(ask, TURN_SECONDS)


async def test_many_short_turns_are_tokenized_off_the_loop(
    stage: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    encode_chat, threads = Tokenizer.encode_chat, list[str]()

    def noted(*given: Any, **options: Any) -> list[int]:
        threads.append(threading.current_thread().name)
        return encode_chat(*given, **options)

    monkeypatch.setattr(Tokenizer, "encode_chat", noted)
    for count in (1, 4096):
        path, body = chat([TURN] * count, model=stage.model, max_tokens=1)
        assert (await post(stage.http_url, path, body))[0] == 200
    assert threads[0] == threading.current_thread().name
    assert threads[1].startswith("tokenize")


FIELD = inference_pb2.ChatRequest.DESCRIPTOR.fields_by_name["messages"].number


def turns(count: int, content: bytes = b"") -> bytes:
    """Return a ChatRequest of so many messages, of which the client makes no objects."""
    return (bytes([FIELD << 3 | 2, len(content)]) + content) * count


GRPC: dict[str, tuple[str, Callable[[], bytes], Reason]] = {
    "empty turns": ("Chat", lambda: turns(2_000_000), Reason.BODY_TOO_LARGE),
    "more turns than may be": ("Chat", lambda: turns(10_000, b"\n\x04user"), Reason.INVALID_FIELD),
    "nested": (
        "Chat",
        lambda: inference_pb2.ChatRequest(
            sampling=common_pb2.SamplingParams(stop=[""] * 1_500_000)
        ).SerializeToString(),
        Reason.BODY_TOO_LARGE,
    ),
    "token ids": (
        "Generate",
        lambda: inference_pb2.GenerateRequest(
            token_ids=inference_pb2.TokenIds(ids=bytes(4_000_000))
        ).SerializeToString(),
        Reason.CONTEXT_LENGTH_EXCEEDED,
    ),
    "a text": (
        "Generate",
        lambda: inference_pb2.GenerateRequest(text=WORDS).SerializeToString(),
        Reason.CONTEXT_LENGTH_EXCEEDED,
    ),
    "a text to count": (
        "Tokenize",
        lambda: inference_pb2.TokenizeRequest(text=WORDS).SerializeToString(),
        Reason.CONTEXT_LENGTH_EXCEEDED,
    ),
    "what it is told that it said": (
        "Generate",
        lambda: inference_pb2.GenerateRequest(
            text="x", resume=inference_pb2.Resume(output_ids=bytes(4_000_000))
        ).SerializeToString(),
        Reason.INVALID_FIELD,
    ),
}


@pytest.mark.parametrize("name", GRPC)
async def test_a_large_message(stage: Any, name: str) -> None:
    method, make, reason = GRPC[name]
    message = make()
    kind = {"Chat": inference_pb2.ChatRequest, "Generate": inference_pb2.GenerateRequest}
    if method == "Tokenize":
        message += inference_pb2.TokenizeRequest(model=stage.model).SerializeToString()
    else:
        asked = kind[method]()
        asked.context.model = stage.model
        message += asked.SerializeToString()
    async with open_channel(stage.grpc_address) as channel:
        call = channel.unary_stream(f"/baton.v1.InferenceService/{method}")

        async def ask() -> None:
            with pytest.raises(grpc.aio.AioRpcError) as refused:
                async for _ in call(message, timeout=30):
                    pass
            assert BatonError.from_rpc_error(refused.value).reason is reason

        assert not await holds_loop(ask, HOLD_SECONDS)
