"""A double of an engine with an OpenAI API: `python -m bench.peers.paced_worker PORT SECONDS`.

Every stream gets one event per step; all events of a step are written together. The output is
always the same. It supports streamed chat completions, and the requests that a gateway needs.
"""

import asyncio
import json
import re
import sys
from typing import Any

import uvloop

from bench.peers.serving import MODEL

_HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
_LENGTH = re.compile(rb"\r\ncontent-length: *(\d+)", re.IGNORECASE)
_TOKENS = re.compile(rb'"max_tokens" *: *(\d+)')
_CARD = {"id": MODEL, "object": "model", "created": 1, "owned_by": "bench", "max_model_len": 8192}
_INFO = {"model_path": MODEL, "served_model_name": MODEL, "is_generation": True, "dp_size": 1}
_ANSWERS: dict[bytes, Any] = {
    b"/v1/models": {"object": "list", "data": [_CARD]},
    b"/get_load": [{"dp_rank": 0, "num_reqs": 0, "num_waiting_reqs": 0, "num_tokens": 0}],
}


def _piece(data: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(data), data)


def _event(delta: dict[str, str], finish_reason: str | None = None) -> bytes:
    choice = {"index": 0, "delta": delta, "finish_reason": finish_reason}
    chunk = {"id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 1, "model": MODEL}
    return _piece(b"data: " + json.dumps({**chunk, "choices": [choice]}).encode() + b"\n\n")


_FIRST = _event({"role": "assistant", "content": "word "})
_NEXT = _event({"content": "word "})
_LAST = _event({"content": "word "}, "length") + _piece(b"data: [DONE]\n\n") + b"0\r\n\r\n"


class _Streams:
    """How many tokens each connection still gets, and the task that sends them."""

    def __init__(self) -> None:
        self._left: dict[asyncio.Transport, int] = {}
        self._begun = asyncio.Event()

    def begin(self, transport: asyncio.Transport, tokens: int) -> None:
        transport.write(_HEAD)
        self._left[transport] = -tokens  # until its first
        self._begun.set()

    def end(self, transport: asyncio.Transport) -> None:
        self._left.pop(transport, None)

    async def run(self, step_seconds: float) -> None:
        """Give every stream a token each step, forever. A step starts when there is a stream."""
        loop = asyncio.get_running_loop()
        due = loop.time()
        while True:
            if not self._left:
                self._begun.clear()
                await self._begun.wait()
                due = loop.time()
            for transport, left in list(self._left.items()):
                if abs(left) == 1:
                    transport.write(_LAST)
                    del self._left[transport]
                else:
                    transport.write(_FIRST if left < 0 else _NEXT)
                    self._left[transport] = abs(left) - 1
            due = max(due + step_seconds, loop.time())
            await asyncio.sleep(due - loop.time())


class _Connection(asyncio.Protocol):
    """One connection, one request at a time, each with a content length or without a body."""

    def __init__(self, streams: _Streams) -> None:
        self._streams = streams
        self._data = b""

    def connection_made(self, transport: Any) -> None:
        self._transport = transport

    def connection_lost(self, _: Exception | None) -> None:
        self._streams.end(self._transport)

    def data_received(self, data: bytes) -> None:
        self._data += data
        while (end := self._data.find(b"\r\n\r\n")) >= 0:
            head = self._data[:end]
            found = _LENGTH.search(head)
            whole = end + 4 + (int(found[1]) if found else 0)
            if len(self._data) < whole:
                return
            body, self._data = self._data[end + 4 : whole], self._data[whole:]
            self._answer(head.split(b" ", 2)[1].partition(b"?")[0], body)

    def _answer(self, path: bytes, body: bytes) -> None:
        tokens = _TOKENS.search(body)
        if path == b"/v1/chat/completions" and tokens:
            self._streams.begin(self._transport, int(tokens[1]))
            return
        data = json.dumps(_ANSWERS.get(path, _INFO)).encode()
        head = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n"
        self._transport.write(head % len(data) + data)


async def serve(port: int, step_seconds: float) -> None:
    """Serve until the process ends."""
    streams = _Streams()
    loop = asyncio.get_running_loop()
    await loop.create_server(lambda: _Connection(streams), "127.0.0.1", port, backlog=1024)
    await streams.run(step_seconds)


if __name__ == "__main__":
    uvloop.run(serve(int(sys.argv[1]), float(sys.argv[2])))
