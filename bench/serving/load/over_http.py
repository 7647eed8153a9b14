"""A load over HTTP: requests are prepared in advance, and events are counted, not parsed."""

import asyncio
import json
import socket
import time
from typing import Any

from bench.serving.load.streams import Load, NextRequest, Observed

_EVENT = b"data: {"
"""The start of each event of a stream."""


async def run_http(load: Load, next_request: NextRequest, seen: Observed) -> None:
    """Send requests one after the other on each of `concurrency` connections."""
    host, _, port = load.http.rpartition(":")
    loop = asyncio.get_running_loop()
    requests = _requests(load)
    barrier = asyncio.Barrier(load.concurrency)

    async def client(slot: int) -> None:
        await asyncio.sleep(load.ramp_seconds * slot / load.concurrency)
        connection: _Connection | None = None
        while (number := next_request()) is not None:
            try:
                async with asyncio.timeout(load.timeout_seconds):
                    if connection is None or connection.closed:
                        _, connection = await loop.create_connection(
                            lambda: _Connection(seen, load.quick_ack), host, int(port)
                        )
                    if load.together:
                        await barrier.wait()
                    outcome = await connection.ask(requests[number % len(requests)])
            except (OSError, TimeoutError) as error:
                outcome = type(error).__name__
                if connection is not None:
                    connection.transport.abort()
            if outcome == "ok" and connection is not None and connection.events:
                seen.first.append(connection.first_at - connection.asked_at)
                seen.whole.append(connection.last_at - connection.asked_at)
            else:
                seen.errors[outcome] += 1
                if connection is not None and not seen.sample:
                    seen.sample = connection.body[:300].decode(errors="replace")
        if connection is not None:
            connection.transport.close()

    await asyncio.gather(*(client(slot) for slot in range(load.concurrency)))


def _requests(load: Load) -> list[bytes]:
    made = []
    for prompt in load.prompts:
        body: dict[str, Any] = {
            "model": load.model,
            "stream": True,
            "ignore_eos": True,
            "temperature": 0.0,
        }
        messages = [{"role": "user", "content": prompt}]
        if load.responses:
            body |= {"input": messages, "max_output_tokens": load.output_tokens, "store": False}
        else:
            body |= {"messages": messages, "max_tokens": load.output_tokens}
        path = "responses" if load.responses else "chat/completions"
        data = json.dumps(body).encode()
        head = (
            f"POST /v1/{path} HTTP/1.1\r\nhost: {load.http}\r\n"
            "content-type: application/json\r\naccept: text/event-stream\r\n"
            f"content-length: {len(data)}\r\n\r\n"
        )
        made.append(head.encode() + data)
    return made


class _Connection(asyncio.Protocol):
    """One keep-alive connection, one request at a time."""

    def __init__(self, seen: Observed, quick_ack: bool) -> None:
        self._seen = seen
        self._quick_ack = quick_ack
        self.closed = False
        self._answer: asyncio.Future[str] | None = None

    def connection_made(self, transport: Any) -> None:
        self.transport = transport
        self._socket = transport.get_extra_info("socket")

    def connection_lost(self, _: Exception | None) -> None:
        self.closed = True
        self._finish("connection lost")

    def ask(self, request: bytes) -> "asyncio.Future[str]":
        """Send a request; return `ok` or what went wrong."""
        self._head, self._tail = b"", b""
        self._in_head = True
        self.status, self.events, self.body = 0, 0, b""
        self.first_at = self.last_at = 0.0
        self._length = -1
        self._received = 0
        self._answer = asyncio.get_running_loop().create_future()
        self.asked_at = time.perf_counter()
        self.transport.write(request)
        return self._answer

    def data_received(self, data: bytes) -> None:
        if self._quick_ack:  # the kernel forgets it
            self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_QUICKACK, 1)
        if self._answer is None or self._answer.done():
            return
        if self._in_head:
            self._head += data
            end = self._head.find(b"\r\n\r\n")
            if end < 0:
                return
            head, data = self._head[:end].lower(), self._head[end + 4 :]
            self._in_head = False
            self.status = int(head[9:12])
            at = head.find(b"content-length:")
            self._length = int(head[at + 15 :].split(b"\r\n", 1)[0]) if at >= 0 else -1
        if self.status != 200:
            self.body += data[:300]
        self._received += len(data)
        self._count(data)
        last = self._tail.endswith(b"\n\n\r\n0\r\n\r\n")  # after the end of an event
        if (self._length < 0 and last) or 0 <= self._length <= self._received:
            self._finish("ok" if self.status == 200 else f"HTTP {self.status}")

    def _count(self, data: bytes) -> None:
        # An event that starts before `data` and ends in it counts too; none counts twice.
        edge = len(_EVENT) - 1
        new = (self._tail[-edge:] + data).count(_EVENT)
        self._tail = (self._tail + data)[-64:]
        if not new:
            return
        now = time.perf_counter()
        if self.events:
            self._seen.interval(now - self.last_at)
        else:
            self.first_at = now
            self._seen.stream_began()
        self.last_at = now
        self.events += new
        self._seen.events += new

    def _finish(self, outcome: str) -> None:
        if self._answer is not None and not self._answer.done():
            if self.events:
                self._seen.open -= 1
            self._answer.set_result(outcome)
