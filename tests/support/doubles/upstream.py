"""An upstream of a provider that does as it is told, badly too: HTTP/1.1 by hand."""

import asyncio
import json
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

EVENTS = {"content-type": "text/event-stream"}
Answer = Callable[["Exchange"], Awaitable[None]]


@dataclass
class Exchange:
    """One request, and the connection to answer on."""

    method: str
    path: str
    headers: dict[str, str]
    body: Any
    writer: asyncio.StreamWriter
    gone: asyncio.Event = field(default_factory=asyncio.Event)
    """Set once the client has closed the connection."""

    async def head(self, status: int = 200, headers: dict[str, str] | None = None) -> None:
        """Begin a chunked response."""
        lines = [f"HTTP/1.1 {status} X", "transfer-encoding: chunked"]
        lines += [f"{name}: {value}" for name, value in (headers or EVENTS).items()]
        self.writer.write(("\r\n".join(lines) + "\r\n\r\n").encode())
        await self.writer.drain()

    async def send(self, data: bytes) -> None:
        """Send a part of the body."""
        self.writer.write(b"%x\r\n%b\r\n" % (len(data), data))
        await self.writer.drain()

    async def events(self, *events: Any) -> None:
        """Send events, one part each."""
        for event in events:
            data = event if isinstance(event, str) else json.dumps(event)
            await self.send(f"data: {data}\n\n".encode())

    async def end(self) -> None:
        """End the response; the connection stays."""
        self.writer.write(b"0\r\n\r\n")
        await self.writer.drain()

    async def refuse(self, status: int, body: Any = "", **headers: str) -> None:
        """Send a whole response with a status."""
        data = (body if isinstance(body, str) else json.dumps(body)).encode()
        kind = "text/html" if isinstance(body, str) else "application/json"
        all_headers = {"content-type": kind, "content-length": str(len(data))}
        all_headers |= {name.replace("_", "-"): value for name, value in headers.items()}
        lines = [f"HTTP/1.1 {status} X", *(f"{k}: {v}" for k, v in all_headers.items())]
        self.writer.write(("\r\n".join(lines) + "\r\n\r\n").encode() + data)
        await self.writer.drain()


def delta(content: str = "", *, choice: int = 0, **more: Any) -> dict[str, Any]:
    """Return an event with text, or other fields of a delta."""
    return _chunk({"index": choice, "delta": {"content": content, **more}, "finish_reason": None})


def finish(reason: str = "stop", *, choice: int = 0) -> dict[str, Any]:
    """Return the event that ends a choice."""
    return _chunk({"index": choice, "delta": {}, "finish_reason": reason})


def usage(prompt: Any, output: Any, cached: Any = 0) -> dict[str, Any]:
    """Return the event with usage."""
    counted = {
        "prompt_tokens": prompt,
        "completion_tokens": output,
        "prompt_tokens_details": {"cached_tokens": cached},
    }
    return {"id": "x", "object": "chat.completion.chunk", "choices": [], "usage": counted}


def _chunk(choice: dict[str, Any]) -> dict[str, Any]:
    return {"id": "x", "object": "chat.completion.chunk", "choices": [choice], "usage": None}


def says(words: Sequence[str] = ("Hello", " there"), prompt: int = 9) -> Answer:
    """Return an answer that streams words, then its usage."""

    async def answer(exchange: Exchange) -> None:
        await exchange.head()
        await exchange.events(delta(role="assistant"), *map(delta, words), finish())
        await exchange.events(usage(prompt, len(words), 4), "[DONE]")
        await exchange.end()

    return answer


class ScriptedUpstream:
    """Serves on a port of 127.0.0.1; each request is answered by `answer`."""

    def __init__(self) -> None:
        self.answer: Answer = says()
        self.exchanges: list[Exchange] = []
        """All requests."""
        self.connections = 0
        self._server: asyncio.Server
        self._tasks: set[asyncio.Task[None]] = set()

    async def __aenter__(self) -> "ScriptedUpstream":
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        return self

    async def __aexit__(self, *_: object) -> None:
        self._server.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    @property
    def port(self) -> int:
        """The port that it listens on."""
        return int(self._server.sockets[0].getsockname()[1])

    @property
    def url(self) -> str:
        """What a provider's URL is."""
        return f"http://127.0.0.1:{self.port}/v1"

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        self.connections += 1
        try:
            while True:
                exchange = await self._read(reader, writer)
                self.exchanges.append(exchange)
                answering = asyncio.ensure_future(self.answer(exchange))
                watching = asyncio.ensure_future(_watch(reader, exchange.gone))
                try:
                    await asyncio.wait([answering, watching], return_when="FIRST_COMPLETED")
                    if not answering.done():
                        return
                    await answering
                finally:
                    watching.cancel()
                    answering.cancel()
                    await asyncio.gather(watching, answering, return_exceptions=True)
                if writer.is_closing():
                    return
        except (asyncio.IncompleteReadError, ConnectionError, asyncio.CancelledError):
            return  # asyncio would report a cancelled task as an error
        finally:
            writer.close()

    async def _read(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> Exchange:
        head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
        first, *lines = head.rstrip("\r\n").split("\r\n")
        method, path, _ = first.split(" ")
        headers = {k.lower(): v.strip() for k, _, v in (line.partition(":") for line in lines)}
        body = await reader.readexactly(int(headers.get("content-length", "0")))
        return Exchange(method, path, headers, json.loads(body) if body else None, writer)


async def _watch(reader: asyncio.StreamReader, gone: asyncio.Event) -> None:
    """Set an event once a client has gone. It sends nothing while it waits for an answer."""
    while not reader.at_eof():
        await asyncio.sleep(0.005)
    gone.set()
