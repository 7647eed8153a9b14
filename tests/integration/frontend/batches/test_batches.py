"""Batches with openai-python, from the upload of their input to the last line of their output."""

import json
from typing import Any

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
