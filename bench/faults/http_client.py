"""A client of the HTTP API as most are: one keep-alive connection, no retries, no resume."""

import asyncio
import json
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Self

import msgspec

from baton.errors import Reason


class CutError(Exception):
    """The connection broke amid an answer."""


class RefusedError(Exception):
    """An error was answered.

    Args:
        error: its object as the API says it, or a text that is none: who answered is no frontend.
        status: of the answer; empty: the error came within a stream.
    """

    def __init__(self, error: object, status: str = "") -> None:
        super().__init__(f"{status} {error}".strip()[:160])
        poison = Reason.POISON_REQUEST.openai_code
        self.is_poison = isinstance(error, Mapping) and error.get("code") == poison


@dataclass
class HttpAnswer:
    """A streamed answer, whole."""

    texts: dict[int, str] = field(default_factory=dict)
    """By choice, like the next one."""
    reasons: dict[int, str] = field(default_factory=dict)
    output_tokens: int = -1
    """As the last event's usage says."""
    logprobs: int = 0
    """Tokens that came with log probabilities."""
    times: list[float] = field(default_factory=list)
    """When each event with text came."""

    @property
    def said(self) -> tuple[tuple[int, str, str], ...]:
        """What makes two answers the same."""
        return tuple((i, self.texts.get(i, ""), self.reasons[i]) for i in sorted(self.reasons))


class HttpConnection:
    """One connection. Leaving the context closes it."""

    def __init__(self, host: str, port: int) -> None:
        self._host = host
        self._port = port
        self.usable = True
        """The server lets it be used once more."""
        self._reader: asyncio.StreamReader
        self._writer: asyncio.StreamWriter

    async def __aenter__(self) -> Self:
        """Connect.

        Raises:
            OSError: nobody listens.
        """
        self._reader, self._writer = await asyncio.open_connection(self._host, self._port)
        return self

    async def __aexit__(self, *_: object) -> None:
        self._writer.transport.abort()

    async def ask(self, path: str, body: Mapping[str, Any]) -> HttpAnswer:
        """Ask for a streamed answer.

        Raises:
            ConnectionError: the connection was closed before an answer began: it is safe to ask
                elsewhere only where the server said so by `connection: close`.
            CutError: it broke later.
            RefusedError: an error was answered, in place of the stream or within it.
        """
        data = json.dumps({**body, "stream": True, "stream_options": {"include_usage": True}})
        head = (
            f"POST {path} HTTP/1.1\r\nhost: {self._host}:{self._port}\r\n"
            f"content-type: application/json\r\ncontent-length: {len(data.encode())}\r\n\r\n"
        )
        self._writer.write((head + data).encode())
        headers = await self._headers()
        try:
            return await self._answer(headers)
        except (OSError, EOFError) as error:
            raise CutError(f"{type(error).__name__} after the head") from error

    async def _headers(self) -> dict[str, str]:
        try:
            lines = (await self._reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
        except EOFError as error:
            raise ConnectionError("closed before an answer") from error
        headers = {":status": lines[0].split()[1]}
        for line in lines[1:]:
            name, _, value = line.partition(":")
            headers[name.lower()] = value.strip().lower()
        self.usable = headers.get("connection") != "close"
        return headers

    async def _answer(self, headers: Mapping[str, str]) -> HttpAnswer:
        if headers[":status"] != "200":
            text = await self._reader.readexactly(int(headers.get("content-length", 0)))
            is_json = headers.get("content-type", "").startswith("application/json")
            error = msgspec.json.decode(text)["error"] if is_json else text.decode()
            raise RefusedError(error, headers[":status"])
        answer = HttpAnswer()
        rest = b""
        done = False
        while size := int(await self._reader.readline() or b"0", 16):
            data = rest + await self._reader.readexactly(size)
            await self._reader.readexactly(2)
            *events, rest = data.split(b"\n\n")
            for event in events:
                done = done or event == b"data: [DONE]"
                if event.startswith(b"data: {"):
                    _add(answer, msgspec.json.decode(event[6:]))
        if not done:
            raise CutError("the stream ended without its end")
        await self._reader.readexactly(2)
        return answer


def _add(answer: HttpAnswer, event: Any) -> None:
    if "error" in event:
        raise RefusedError(event["error"])
    if event.get("usage"):
        answer.output_tokens = event["usage"]["completion_tokens"]
    for choice in event["choices"]:
        index = choice["index"]
        text = choice["delta"].get("content") if "delta" in choice else choice["text"]
        if text:
            answer.texts[index] = answer.texts.get(index, "") + text
            answer.times.append(time.monotonic())
        with suppress(TypeError):
            answer.logprobs += len(choice["logprobs"]["content"])
        if choice.get("finish_reason"):
            answer.reasons[index] = choice["finish_reason"]
