"""Pictures are refused in the same words on both surfaces."""

import base64
from typing import Any

import grpc
import httpx
import pytest

from baton.engine.testing.random_vision import random_png
from baton.errors import BatonError, Reason
from baton.v1 import inference_pb2
from tests.support.clock import DEADLINE_SECONDS

PICTURE = "data:image/png;base64," + base64.b64encode(random_png(0)).decode()
UNSUPPORTED, INVALID = Reason.UNSUPPORTED_PARAMETER, Reason.INVALID_FIELD


@pytest.mark.parametrize(
    ("role", "urls", "reason", "said"),
    [
        ("user", [PICTURE], UNSUPPORTED, "takes no pictures; send text alone"),
        ("user", ["http://example.org/a.png"], UNSUPPORTED, "http: URLs are not supported"),
        ("user", ["data:application/pdf;base64,AA=="], UNSUPPORTED, "'application/pdf' is not"),
        ("user", ["data:image/png;base64"], INVALID, "must begin like data:image/png;base64,"),
        ("user", [PICTURE] * 9, INVALID, "9 pictures exceed the limit of 8"),
        ("assistant", [PICTURE], INVALID, "only messages of the role user can have pictures"),
    ],
)
async def test_both_surfaces_refuse_alike(
    stage: Any, role: str, urls: list[str], reason: Reason, said: str
) -> None:
    at = 9 if len(urls) == 9 else 1
    content: list[dict[str, Any]] = [{"type": "text", "text": "x"}]
    content += [{"type": "image_url", "image_url": {"url": url}} for url in urls]
    body = {"model": stage.model, "messages": [{"role": role, "content": content}]}
    async with httpx.AsyncClient(base_url=stage.http_url, timeout=DEADLINE_SECONDS) as client:
        answer = await client.post("/v1/chat/completions", json=body)
        assert (await client.post("/v1/tokenize", json=body)).json() == answer.json()
    told = answer.json()["error"]
    assert (answer.status_code, told["code"]) == (reason.http_status, reason.openai_code)
    assert told["param"] == f"messages[0].content[{at}].image_url"

    part = inference_pb2.ContentPart
    message = inference_pb2.ChatMessage(
        role=role, parts=[part(text="x"), *(part(image_url=url) for url in urls)]
    )
    request = inference_pb2.ChatRequest(messages=[message])
    request.context.model = stage.model
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await stage.stub().Chat(request).read()
    error = BatonError.from_rpc_error(caught.value)
    assert (error.reason, error.field) == (reason, f"messages[0].parts[{at}].image_url")
    assert error.message == told["message"].replace(".content[", ".parts[")
    assert said in error.message


@pytest.mark.parametrize(
    ("message", "field", "said"),
    [
        ({"content": "x", "parts": [{"text": "y"}]}, "messages[0].parts", "combined with content"),
        ({"parts": [{"text": "y"}, {}]}, "messages[0].parts[1]", "must have text or image_url"),
    ],
)
async def test_parts_that_cannot_be(
    stage: Any, message: dict[str, Any], field: str, said: str
) -> None:
    request = inference_pb2.ChatRequest(messages=[{"role": "user", **message}])
    request.context.model = stage.model
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await stage.stub().Chat(request).read()
    error = BatonError.from_rpc_error(caught.value)
    assert (error.reason, error.field) == (INVALID, field)
    assert said in error.message


async def test_parts_of_text_are_a_message_of_text(stage: Any) -> None:
    asked = [{"role": "user", "parts": [{"text": "ab"}, {"text": "c"}]}]
    request = inference_pb2.TokenizeRequest(model=stage.model, messages=asked)
    whole = inference_pb2.TokenizeRequest(
        model=stage.model, messages=[{"role": "user", "content": "abc"}]
    )
    stub = stage.stub()
    assert (await stub.Tokenize(request)).token_ids == (await stub.Tokenize(whole)).token_ids


@pytest.mark.parametrize(
    ("part", "field", "said"),
    [
        ({"type": "input_audio", "input_audio": {}}, "type", "'input_audio' is not supported"),
        ({"type": "file", "file": {}}, "type", "only text and image_url are"),
        ({"type": "image_url"}, "image_url", "is required"),
        (
            {"type": "image_url", "image_url": {"url": PICTURE, "detail": "high"}},
            "image_url.detail",
            "how a model sees a picture is fixed; omit it",
        ),
    ],
)
async def test_what_only_http_can_say(
    stage: Any, part: dict[str, Any], field: str, said: str
) -> None:
    body = {"model": stage.model, "messages": [{"role": "user", "content": [part]}]}
    async with httpx.AsyncClient(base_url=stage.http_url, timeout=DEADLINE_SECONDS) as client:
        answer = await client.post("/v1/chat/completions", json=body)
    told = answer.json()["error"]
    assert answer.status_code == 400
    assert told["param"] == f"messages[0].content[0].{field}"
    assert said in told["message"]
