"""Batches with openai-python, from the upload of their input to the last line of their output."""

import gzip
import json
from collections.abc import Callable
from typing import Any

import pytest

from tests.support.engine.model import MODEL
from tests.support.state.frontends import Frontends
from tests.support.wait import eventually

CHAT = "/v1/chat/completions"


def chat_line(number: int, **more: Any) -> dict[str, Any]:
    message = {"role": "user", "content": f"line {number}"}
    body = {"model": MODEL, "messages": [message], "max_tokens": 3} | more
    return {"custom_id": f"c{number}", "method": "POST", "url": CHAT, "body": body}


def jsonl(lines: list[dict[str, Any]]) -> bytes:
    return b"".join(json.dumps(line).encode() + b"\n" for line in lines)


async def upload(client: Any, lines: list[dict[str, Any]]) -> str:
    file = await client.files.create(file=("in.jsonl", jsonl(lines)), purpose="batch")
    return str(file.id)


async def ended(client: Any, batch: str) -> Any:
    async def has_ended() -> Any:
        found = await client.batches.retrieve(batch)
        return found if found.status in ("completed", "failed", "expired", "cancelled") else None

    return await eventually(has_ended)


async def lines_of(client: Any, file: str) -> list[dict[str, Any]]:
    content = await client.files.content(file)
    return [json.loads(line) for line in content.text.splitlines()]


async def test_a_batch_answers_all_lines_in_the_order_of_its_input(frontends: Frontends) -> None:
    first, second = frontends.clients
    file = await upload(first, [chat_line(number) for number in range(10)])
    made = await second.batches.create(
        input_file_id=file, endpoint=CHAT, completion_window="24h", metadata={"a": "b"}
    )
    assert (made.status, made.input_file_id, made.metadata) == ("validating", file, {"a": "b"})
    batch = await ended(first, made.id)
    assert batch.status == "completed" and batch.error_file_id is None
    counts = batch.request_counts
    assert (counts.total, counts.completed, counts.failed) == (10, 10, 0)
    lines = await lines_of(second, batch.output_file_id)
    assert [line["custom_id"] for line in lines] == [f"c{number}" for number in range(10)]
    for line in lines:
        assert line["error"] is None and line["response"]["status_code"] == 200
        body = line["response"]["body"]
        assert body["object"] == "chat.completion" and body["usage"]["completion_tokens"] == 3
    assert batch.usage.output_tokens == 30
    # The router says that the worker has 64 places, and some more to wait, for one or both.
    services = frontends.cluster["frontend-0"], frontends.cluster["frontend-1"]
    rooms = [(await one.metrics())["baton_batch_line_room"] for one in services]
    assert 80 in rooms or 40 in rooms


async def test_a_batch_with_errors_fails_with_their_lines(frontends: Frontends) -> None:
    client = frontends.clients[0]
    lines = [chat_line(1), chat_line(2, model="nobody"), chat_line(1), chat_line(4, stream=True)]
    file = await upload(client, lines)
    made = await client.batches.create(input_file_id=file, endpoint=CHAT, completion_window="24h")
    batch = await ended(client, made.id)
    assert (batch.status, batch.output_file_id) == ("failed", None)
    assert sorted((error.line, error.code, error.param) for error in batch.errors.data) == [
        (2, "model_not_found", "body.model"),
        (3, "invalid_value", "custom_id"),
        (4, "unsupported_parameter", "body.stream"),
    ]


@pytest.mark.parametrize(
    ("data", "code"),
    [(b"", "empty_file"), (gzip.compress(jsonl([chat_line(1)])), "invalid_file")],
)
async def test_a_file_that_is_no_input(frontends: Frontends, data: bytes, code: str) -> None:
    client = frontends.clients[0]
    file = await client.files.create(file=("in.jsonl", data), purpose="batch")
    made = await client.batches.create(
        input_file_id=file.id, endpoint=CHAT, completion_window="24h"
    )
    batch = await ended(client, made.id)
    assert (batch.status, batch.output_file_id) == ("failed", None)
    assert [(error.code, error.line) for error in batch.errors.data] == [(code, None)]


async def test_what_no_batch_is_made_of(frontends: Frontends) -> None:
    http = frontends.http[0]
    data = await frontends.clients[0].files.create(file=("a", b"x"), purpose="user_data")
    right = {"input_file_id": data.id, "endpoint": CHAT, "completion_window": "24h"}
    for wrong, status, param in (
        ({}, 400, "input_file_id"),  # its purpose is another one
        ({"input_file_id": f"file_{7:032x}"}, 404, None),
        ({"endpoint": "/v1/embeddings"}, 400, "endpoint"),
        ({"completion_window": "1h"}, 400, "completion_window"),
        ({"metadata": {"a": "x" * 513}}, 400, "metadata"),
        (
            {"output_expires_after": {"anchor": "created_at", "seconds": 1}},
            400,
            "output_expires_after.seconds",
        ),
        ({"priority": 1}, 400, "priority"),
    ):
        answer = await http.post("/v1/batches", json=right | wrong)
        found = answer.status_code, answer.json()["error"]["param"]
        assert found == (status, param), answer.text
    assert (await http.get(f"/v1/batches/batch_{7:032x}")).status_code == 404
    assert (await http.post("/v1/batches/file_1/cancel")).status_code == 404


async def test_lines_that_fail_are_in_the_error_file(frontends: Frontends) -> None:
    client = frontends.clients[0]
    lines = [chat_line(number) for number in range(5)]
    lines[1]["body"]["n"] = 129
    lines[2]["body"]["n"] = 128
    lines[3]["body"]["max_tokens"] = 100_000_000
    file = await upload(client, lines)
    expires = {"anchor": "created_at", "seconds": 3600}
    made = await client.batches.create(
        input_file_id=file,
        endpoint=CHAT,
        completion_window="24h",
        extra_body={"output_expires_after": expires},
    )
    await client.files.delete(file)  # the lines are there already, or the batch fails
    batch = await ended(client, made.id)
    if batch.status == "failed":
        assert batch.errors.data[0].code == "not_found"
        return
    assert (batch.request_counts.completed, batch.request_counts.failed) == (3, 2)
    failed = await lines_of(client, batch.error_file_id)
    assert [line["custom_id"] for line in failed] == ["c1", "c3"]
    assert [line["response"]["status_code"] for line in failed] == [400, 400]
    assert failed[0]["error"]["code"] == "invalid_value"
    answered = await lines_of(client, batch.output_file_id)
    assert [len(line["response"]["body"]["choices"]) for line in answered] == [1, 128, 1]
    output = await client.files.retrieve(batch.output_file_id)
    assert output.purpose == "batch_output" and output.expires_at == output.created_at + 3600


@pytest.mark.parametrize(
    ("endpoint", "body", "check"),
    [
        (
            "/v1/completions",
            {"prompt": ["a", "b"], "max_tokens": 2},
            lambda body: len(body["choices"]) == 2,
        ),
        (
            "/v1/responses",
            {"input": "hi", "max_output_tokens": 2},
            lambda body: body["output"] and not body["store"],
        ),
        ("/v1/tokenize", {"prompt": "hello"}, lambda body: body["count"] == len(body["tokens"])),
    ],
)
async def test_other_endpoints(
    frontends: Frontends, endpoint: str, body: dict[str, Any], check: Callable[[Any], bool]
) -> None:
    client = frontends.clients[0]
    line = {"custom_id": "a", "method": "POST", "url": endpoint, "body": {"model": MODEL} | body}
    made = await client.batches.create(
        input_file_id=await upload(client, [line]),
        endpoint=endpoint,
        completion_window="24h",
    )
    batch = await ended(client, made.id)
    assert batch.status == "completed" and batch.error_file_id is None, batch
    (found,) = await lines_of(client, batch.output_file_id)
    assert check(found["response"]["body"])


async def test_a_cancelled_batch_has_what_ran(frontends: Frontends) -> None:
    client = frontends.clients[1]
    count = 400
    file = await upload(client, [chat_line(number, max_tokens=8) for number in range(count)])
    made = await client.batches.create(input_file_id=file, endpoint=CHAT, completion_window="24h")

    async def runs() -> Any:
        found = await client.batches.retrieve(made.id)
        return bool(found.request_counts.completed)

    assert await eventually(runs)
    cancelled = await client.batches.cancel(made.id)
    assert cancelled.status == "cancelling" and cancelled.cancelling_at
    batch = await ended(client, made.id)
    assert batch.status == "cancelled" and batch.cancelled_at
    answered = await lines_of(client, batch.output_file_id)
    failed = await lines_of(client, batch.error_file_id)
    ids = [line["custom_id"] for line in (*answered, *failed)]
    assert sorted(ids) == sorted(f"c{number}" for number in range(count))
    assert {line["error"]["code"] for line in failed} == {"batch_cancelled"}
    assert [one.id async for one in client.batches.list()] == [made.id]
