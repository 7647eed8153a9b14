"""A typical client of the HTTP API: one keep-alive connection, no retries, no resume."""

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
    """The connection broke during a response."""


class RefusedError(Exception):
    """The response was an error.

    Args:
        error: the API's error object, or a text if a server other than a frontend responded.
        status: the status of the response; empty: the error came within a stream.
    """

    def __init__(self, error: object, status: str = "") -> None:
        super().__init__(f"{status} {error}".strip()[:160])
        poison = Reason.POISON_REQUEST.openai_code
        self.is_poison = isinstance(error, Mapping) and error.get("code") == poison


@dataclass
class HttpAnswer:
    """A complete streamed response."""

    texts: dict[int, str] = field(default_factory=dict)
    """Texts by choice, as for the next field."""
    reasons: dict[int, str] = field(default_factory=dict)
    output_tokens: int = -1
    """Output tokens in the last event's usage."""
    logprobs: int = 0
    """Number of tokens that came with log probabilities."""
    times: list[float] = field(default_factory=list)
    """When each event with text came."""

    @property
    def said(self) -> tuple[tuple[int, str, str], ...]:
        """The parts that must be equal for two responses to count as the same."""
        return tuple((i, self.texts.get(i, ""), self.reasons[i]) for i in sorted(self.reasons))


class HttpConnection:
    """One connection, closed when the context exits."""

    def __init__(self, host: str, port: int) -> None:
        self._host = host
        self._port = port
        self.usable = True
        """Whether the server keeps the connection open for another request."""
        self._reader: asyncio.StreamReader
        self._writer: asyncio.StreamWriter

    async def __aenter__(self) -> Self:
        """Connect.

        Raises:
            OSError: nothing listens on the address.
        """
        self._reader, self._writer = await asyncio.open_connection(self._host, self._port)
        return self

    async def __aexit__(self, *_: object) -> None:
        self._writer.transport.abort()

    async def ask(self, path: str, body: Mapping[str, Any]) -> HttpAnswer:
        """Request a streamed response.

        Raises:
            ConnectionError: the connection was closed before a response began. A retry elsewhere is
                safe only if the server announced it by `connection: close`.
            CutError: the connection broke later.
            RefusedError: an error came instead of the stream or within it.
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
