"""What an upstream with Anthropic's Messages sends, for `ScriptedUpstream`."""

import json
from collections.abc import Sequence
from typing import Any

from tests.support.doubles.upstream import Answer, Exchange


async def send_messages(exchange: Exchange, *events: dict[str, Any]) -> None:
    """Send events, each with its name, one part each."""
    for event in events:
        await exchange.send(f"event: {event['type']}\ndata: {json.dumps(event)}\n\n".encode())


def message_start(prompt: Any = 9, cached: Any = 4, created: Any = 0) -> dict[str, Any]:
    """Return the first event, with the tokens of the prompt, of which some were cached."""
    usage = {
        "input_tokens": prompt - cached - created if isinstance(prompt, int) else prompt,
        "cache_creation_input_tokens": created,
        "cache_read_input_tokens": cached,
        "output_tokens": 1,
    }
    message: dict[str, Any] = {
        "id": "msg_1",
        "type": "message",
        "role": "assistant",
        "model": "claude-x",
        "content": [],
        "stop_reason": None,
        "stop_sequence": None,
        "usage": usage,
    }
    return {"type": "message_start", "message": message}


def block_start(index: int = 0, kind: str = "text", **fields: Any) -> dict[str, Any]:
    """Return the event that begins a block."""
    empty = {"text": {"text": ""}, "thinking": {"thinking": "", "signature": ""}}
    block = {"type": kind, **empty.get(kind, {"input": {}}), **fields}
    return {"type": "content_block_start", "index": index, "content_block": block}


def block_delta(index: int, kind: str, text: str) -> dict[str, Any]:
    """Return an event with a piece of a block: `text_delta`, `input_json_delta`, …"""
    name = {"text_delta": "text", "thinking_delta": "thinking", "signature_delta": "signature"}
    delta = {"type": kind, name.get(kind, "partial_json"): text}
    return {"type": "content_block_delta", "index": index, "delta": delta}


def block_stop(index: int = 0) -> dict[str, Any]:
    """Return the event that ends a block."""
    return {"type": "content_block_stop", "index": index}


def message_end(reason: str = "end_turn", output: Any = 2) -> list[dict[str, Any]]:
    """Return the events that end a message."""
    delta = {"stop_reason": reason, "stop_sequence": None}
    usage = {"output_tokens": output}
    return [
        {"type": "message_delta", "delta": delta, "usage": usage},
        {"type": "message_stop"},
    ]


def message_error(kind: str, message: str = "secret prompt") -> dict[str, Any]:
    """Return an error, as a body or an event."""
    return {"type": "error", "error": {"type": kind, "message": message}, "request_id": "req_1"}


def message_says(words: Sequence[str] = ("Hello", " there")) -> Answer:
    """Return an answer that streams words."""

    async def answer(exchange: Exchange) -> None:
        await exchange.head()
        await send_messages(exchange, message_start(), block_start(), {"type": "ping"})
        for word in words:
            await send_messages(exchange, block_delta(0, "text_delta", word))
        await send_messages(exchange, block_stop(), *message_end(output=len(words)))
        await exchange.end()

    return answer
