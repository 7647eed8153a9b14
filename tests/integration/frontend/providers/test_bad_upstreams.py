"""An upstream made bad: what its client gets, how often it is asked, and what that costs."""

import asyncio
import gzip
from collections.abc import Awaitable, Callable
from typing import Any, NamedTuple

import pytest

from services.frontend.providers.breaker import OPEN_AFTER
from tests.integration.frontend.providers.conftest import SECRET, Provided
from tests.support.doubles.upstream import (
    EVENTS,
    Exchange,
    ScriptedUpstream,
    delta,
    finish,
    says,
    usage,
)
from tests.support.wait import eventually

Bad = Callable[[Exchange], Awaitable[None]]
HTML = "<html>secret prompt</html>"


async def hangs(exchange: Exchange) -> None:
    await exchange.gone.wait()


async def hangs_between_tokens(exchange: Exchange) -> None:
    await exchange.head()
    await exchange.events(delta("Hello"))
    await exchange.gone.wait()


async def cut(exchange: Exchange) -> None:
    await exchange.head()
    await exchange.events(delta("Hello"))
    exchange.writer.close()


async def cut_before_output(exchange: Exchange) -> None:
    await exchange.head()
    await exchange.events(delta(role="assistant"))
    exchange.writer.close()


def status(code: int, body: Any = HTML, **headers: str) -> Bad:
    return lambda exchange: exchange.refuse(code, body, **headers)


async def half_a_line(exchange: Exchange) -> None:
    await exchange.head()
    await exchange.events(delta("Hello"))
    await exchange.send(b'data: {"choices": [{"ind')
    await exchange.end()


async def bytes_alone(exchange: Exchange) -> None:
    await exchange.head()
    for (
        byte
    ) in b'data: {"choices": [{"delta": {"content": "Hello"}, "finish_reason": "stop"}]}\r\n\r\n':
        await exchange.send(bytes([byte]))
    await exchange.events(usage(9, 1), "[DONE]")
    await exchange.end()


async def long_line(exchange: Exchange) -> None:
    await exchange.head()
    for _ in range(10):
        await exchange.send(b"x" * 1024 * 1024)
    await exchange.end()


def counts(*event: Any) -> Bad:
    async def answer(exchange: Exchange) -> None:
        await exchange.head()
        await exchange.events(delta("Hello"), finish(), *event, "[DONE]")
        await exchange.end()

    return answer


async def zipped(exchange: Exchange) -> None:
    await exchange.head(headers={**EVENTS, "content-encoding": "gzip"})
    await exchange.send(gzip.compress(b"data: [DONE]\n\n"))
    await exchange.end()


async def after_the_end(exchange: Exchange) -> None:
    await exchange.head()
    await exchange.events(delta("Hello"), finish(), usage(9, 1), "[DONE]", delta("more"))
    await exchange.events(delta("and more"))
    await exchange.gone.wait()


async def error_within(exchange: Exchange) -> None:
    await exchange.head()
    await exchange.events(delta("Hello"), {"error": {"message": HTML, "type": "server_error"}})
    await exchange.end()


async def no_chunk(exchange: Exchange) -> None:
    await exchange.head()
    await exchange.events("[1, 2]")
    await exchange.end()


class Row(NamedTuple):
    """What is expected."""

    bad: Bad
    status: int
    reason: str
    """The error's code; empty: none."""
    attempts: int
    cost: int
    """In nano-dollars; -1: by an estimate. Per token: prompt 1,000, cached 500, output 2,000."""


SHORT = {"first_token_seconds": 0.5, "token_seconds": 0.5}
ROWS = {
    "hangs before the first token": Row(hangs, 503, "unavailable", 1, 0),
    "hangs between tokens": Row(hangs_between_tokens, 503, "stream_lost", 1, -1),
    "cut mid-stream": Row(cut, 503, "stream_lost", 1, -1),
    "cut before output": Row(cut_before_output, 503, "unavailable", 3, 0),
    "401": Row(status(401, {"error": {"message": SECRET}}), 503, "unavailable", 1, 0),
    "429 with retry-after": Row(status(429, retry_after="20"), 503, "overloaded", 1, 0),
    "429 without": Row(status(429), 503, "overloaded", 1, 0),
    "500": Row(status(500), 503, "unavailable", 3, 0),
    "HTML": Row(status(200), 503, "unavailable", 3, 0),
    "400": Row(status(400, {"error": {"code": "odd"}}), 400, "invalid_value", 1, 0),
    "context": Row(
        status(400, {"error": {"code": "context_length_exceeded"}}),
        400,
        "context_length_exceeded",
        1,
        0,
    ),
    "half a line": Row(half_a_line, 503, "stream_lost", 1, -1),
    "a byte a packet": Row(bytes_alone, 200, "", 1, 9 * 1000 + 2000),
    "a line of 10 MB": Row(long_line, 503, "unavailable", 1, 0),
    "no usage": Row(counts(), 200, "", 1, -1),
    "usage of a wrong type": Row(counts(usage("many", 1)), 200, "", 1, -1),
    "usage below zero": Row(counts(usage(-5, 1)), 200, "", 1, -1),
    "more output than asked for": Row(counts(usage(9, 10**9)), 200, "", 1, -1),
    "gzip": Row(zipped, 503, "unavailable", 1, 0),
    "stream after [DONE]": Row(after_the_end, 200, "", 1, 9 * 1000 + 2000),
    "an error within the stream": Row(error_within, 503, "stream_lost", 1, -1),
    "no chunk": Row(no_chunk, 503, "unavailable", 3, 0),
}


@pytest.mark.parametrize("name", ROWS)
async def test_bad(provided: Provided, name: str) -> None:
    row = ROWS[name]
    await provided.replace(**SHORT)
    provided.upstream.answer = row.bad
    answer = await provided.ask()
    assert answer.status_code == row.status, answer.text
    assert len(provided.upstream.exchanges) == row.attempts
    assert SECRET not in answer.text
    assert "secret prompt" not in answer.text
    if row.reason:
        error = answer.json()["error"]
        assert error["code"] == row.reason
        assert "provider acme" in error["message"]
    else:
        assert answer.json()["choices"][0]["message"]["content"] == "Hello"
        used = answer.json()["usage"]
        cost = used["prompt_tokens"] * 1000 + used["completion_tokens"] * 2000
        assert cost > 0
        assert row.cost in (-1, cost)
    (record,) = await provided.recorded()
    assert record["provider"] == "acme"
    charged = record["cost_nanodollars"]
    assert charged > 0 if row.cost < 0 else charged == row.cost
    if name == "429 with retry-after":
        assert answer.headers["retry-after"] == "20"
        again = await provided.ask()
        assert (again.status_code, len(provided.upstream.exchanges)) == (503, 1)


async def test_tls_that_hangs(provided: Provided) -> None:
    hold = asyncio.Event()

    async def silent(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await hold.wait()
        writer.close()

    async with await asyncio.start_server(silent, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        await provided.replace(url=f"https://127.0.0.1:{port}/v1", **SHORT)
        answer = await provided.ask()
        hold.set()
    assert (answer.status_code, answer.json()["error"]["code"]) == (503, "unavailable")
    assert "took too long before the first token" in answer.text
    (record,) = await provided.recorded()
    assert record["cost_nanodollars"] == 0


async def test_a_redirect_is_not_followed(provided: Provided) -> None:
    async with ScriptedUpstream() as other:
        provided.upstream.answer = status(307, location=f"{other.url}/chat/completions")
        answer = await provided.ask()
        assert answer.status_code == 503
        assert "redirect" in answer.json()["error"]["message"]
        assert not other.connections


async def test_a_readable_key_is_not_used(provided: Provided) -> None:
    provided.key_file.chmod(0o644)
    answer = await provided.ask()
    assert answer.status_code == 503
    assert "has no usable key" in answer.json()["error"]["message"]
    assert not provided.upstream.exchanges


async def test_failures_in_a_row_stop_requests(provided: Provided) -> None:
    provided.upstream.answer = status(500)
    for _ in range(OPEN_AFTER):
        await provided.ask()
    asked = len(provided.upstream.exchanges)
    answers = await asyncio.gather(*(provided.ask() for _ in range(20)))
    assert {answer.status_code for answer in answers} == {503}
    assert "retry-after" in answers[-1].headers
    # Nearly all while none may be asked; on a slow machine some of them are probes.
    assert len(provided.upstream.exchanges) - asked < len(answers)
    provided.upstream.answer = says()

    async def works() -> bool:
        return (await provided.ask()).status_code == 200

    await eventually(works)


async def test_addresses_must_be_allowed(provided: Provided) -> None:
    await provided.replace(url=f"http://127.0.0.1.nip.invalid:{provided.upstream.port}/v1")
    answer = await provided.ask()
    assert (answer.status_code, "cannot be reached" in answer.text) == (503, True)
    await provided.replace(url="http://169.254.169.254/v1")
    answer = await provided.ask()
    assert (answer.status_code, "providers.allowed_networks" in answer.text) == (503, True)
