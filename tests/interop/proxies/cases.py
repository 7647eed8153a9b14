"""What a frontend behind a proxy must bear: each case says what came of it, or fails."""

import asyncio
import json
import shutil
import subprocess
from collections.abc import Awaitable, Callable
from pathlib import Path

from bench.harness.metrics import parse_metrics
from tests.interop.proxies.relay import CountingRelay
from tests.interop.proxies.requests import Sent, ask, text, unknown, wrong

SMUGGLED = b"GET /v1/models HTTP/1.1\r\nhost: baton\r\nx-request-id: smuggled\r\n\r\n"
OFFERS = {
    "h2c": ("Connection: Upgrade, HTTP2-Settings", "Upgrade: h2c", "HTTP2-Settings: AAMAAABk"),
    "websocket": ("Connection: Upgrade", "Upgrade: websocket"),
    "TLS/1.2": ("Connection: Upgrade", "Upgrade: TLS/1.2"),
}
_STREAM_TOKENS = 60
_SOON = 0.5
"""Of a stream's time, within which its first event must be there."""
_LEAVE_SECONDS = 10.0


class Front:
    """A frontend, and one way to it.

    Args:
        port: of the way.
        direct: the frontend's own port.
        model: that it serves.
        relay: before the frontend, behind the proxy.
    """

    def __init__(self, port: int, direct: int, model: str, relay: CountingRelay) -> None:
        self.port = port
        self.direct = direct
        self.model = model
        self.relay = relay
        self._number = 0
        self._ids: dict[str, list[int]] = {}

    def name(self) -> str:
        """Return an identity that no other request has."""
        self._number += 1
        return f"r-{self.port}-{self._number}"

    async def learn(self, names: list[str]) -> dict[str, list[int]]:
        """Return the tokens of names, as the frontend itself says them."""
        for name in names:
            said = await self._direct("/tokenize", {"prompt": name, "add_special_tokens": False})
            self._ids[name] = said["tokens"]
        return self._ids

    async def busy(self) -> float:
        """Return how many requests the frontend has."""
        shown = parse_metrics((await self._read(b"GET /metrics")).decode())
        return sum(
            number
            for name, number in shown.items()
            if name.startswith("baton_frontend_requests_active")
        )

    async def _direct(self, path: str, body: object) -> dict[str, list[int]]:
        data = json.dumps(body).encode()
        said: dict[str, list[int]] = json.loads(await self._read(b"POST " + path.encode(), data))
        return said

    async def _read(self, what: bytes, body: bytes = b"") -> bytes:
        reader, writer = await asyncio.open_connection("127.0.0.1", self.direct)
        length = b"content-length: %d\r\n" % len(body)
        writer.write(b"%b HTTP/1.0\r\nhost: x\r\n%b\r\n%b" % (what, length, body))
        async with asyncio.timeout(20):
            answer = await reader.read()
        writer.close()
        return answer.partition(b"\r\n\r\n")[2]


async def many(front: Front) -> str:
    """Clients that keep their connections, with right and wrong requests among each other."""
    names = [front.name() for _ in range(240)]
    ids = await front.learn(names)
    before = front.relay.connections

    async def client(own: list[str]) -> None:
        for at, name in enumerate(own):
            await ask(front.port, *_mixed(front, ids, name, at))

    async with asyncio.TaskGroup() as group:
        for at in range(0, len(names), 20):
            group.create_task(client(names[at : at + 20]))
    made = front.relay.connections - before
    return f"{len(names) * 3} of {len(names) * 3} answers, {made} connections behind"


def _mixed(front: Front, ids: dict[str, list[int]], name: str, at: int) -> list[Sent]:
    """Return three requests, pipelined."""
    bad = (b"{", b"", SMUGGLED, b"\r\n\r\n" + SMUGGLED)[at % 4]
    three = [text(name, ids, chunked=at % 2 == 1), wrong(front.name(), bad), unknown(front.name())]
    return three[at % 3 :] + three[: at % 3]


async def pipelined(front: Front) -> str:
    """Sixteen requests at once on each of twenty connections, cut into five segments."""
    names = [front.name() for _ in range(320)]
    ids = await front.learn(names)
    async with asyncio.TaskGroup() as group:
        for at in range(0, len(names), 16):
            own = [text(name, ids) for name in names[at : at + 16]]
            group.create_task(ask(front.port, *own, segments=5))
    return f"{len(names)} of {len(names)} answers"


async def offers(front: Front) -> str:
    """Offers of other protocols, whose bodies are a request's."""
    count = 0
    for fields in OFFERS.values():
        for chunked in (False, True):
            name = front.name()
            ids = await front.learn([name])
            answered = [text(name, ids, *fields, chunked=chunked)]
            answered += [wrong(front.name(), SMUGGLED, *fields), unknown(front.name())]
            for one in answered:
                await ask(front.port, one)
                await ask(front.port, one, segments=3)
                count += 2
    return f"{count} of {count} answers"


async def streams(front: Front) -> str:
    """Server-sent events come one by one, and each stream is its own."""
    async with asyncio.TaskGroup() as group:
        read = [group.create_task(_stream(front, front.name())) for _ in range(8)]
    first, whole = (max(one.result()[at] for one in read) for at in (0, 1))
    assert first < _SOON * whole, f"the first event after {first:.2f} of {whole:.2f} s"
    return f"8 streams of {_STREAM_TOKENS} tokens, first event after {first:.2f} of {whole:.2f} s"


async def _stream(front: Front, name: str) -> tuple[float, float]:
    """Read a stream; return when its first event came, and its last one."""
    now = asyncio.get_running_loop().time
    reader, writer = await asyncio.open_connection("127.0.0.1", front.port)
    began, first, came = now(), 0.0, b""
    writer.write(_completion(front, name))
    async with asyncio.timeout(60):
        while b"data: [DONE]\n\n" not in came:
            piece = await reader.read(1 << 16)
            assert piece, f"{name}: ended after {came[-200:]!r}"
            came += piece
            if not first and b"data: " in came:
                first = now() - began
    writer.close()
    assert came.count(b'"cmpl-' + name.encode()) >= 2, came[:500]
    assert came.count(b'"id":') == came.count(b'"cmpl-' + name.encode()), "mixed"
    return first, now() - began


def _completion(front: Front, name: str, tokens: int = _STREAM_TOKENS) -> bytes:
    asked = {
        "model": front.model,
        "prompt": name,
        "max_tokens": tokens,
        "ignore_eos": True,
        "stream": True,
    }
    body = json.dumps(asked).encode()
    head = (
        f"POST /v1/completions HTTP/1.1\r\nhost: baton\r\nx-request-id: {name}\r\n"
        f"content-type: application/json\r\ncontent-length: {len(body)}\r\n\r\n"
    )
    return head.encode() + body


async def leaving(front: Front) -> str:
    """Clients that leave within a stream: nothing goes on, and others are served."""
    writers = []
    for _ in range(8):
        reader, writer = await asyncio.open_connection("127.0.0.1", front.port)
        writer.write(_completion(front, front.name(), tokens=1500))
        async with asyncio.timeout(30):
            await reader.readuntil(b"data: ")
        writers.append(writer)
    assert await front.busy() == len(writers)
    for writer in writers:
        writer.transport.abort()
    now = asyncio.get_running_loop().time
    began = now()
    async with asyncio.timeout(_LEAVE_SECONDS):
        while await front.busy():
            await asyncio.sleep(0.05)
    gone = now() - began
    names = [front.name() for _ in range(20)]
    ids = await front.learn(names)
    for name in names:
        await ask(front.port, text(name, ids))
    return f"8 streams ended {gone:.2f} s after their clients left, 20 of 20 answers behind"


async def old(front: Front) -> str:
    """Clients of HTTP/1.0 get no chunks."""
    for tokens in (5, 5, 5):
        name = front.name()
        reader, writer = await asyncio.open_connection("127.0.0.1", front.port)
        writer.write(_completion(front, name, tokens).replace(b"HTTP/1.1", b"HTTP/1.0", 1))
        async with asyncio.timeout(30):
            head, _, body = (await reader.read()).partition(b"\r\n\r\n")
        writer.close()
        assert b"transfer-encoding" not in head.lower(), head
        assert body.startswith(b"data: ") and body.endswith(b"data: [DONE]\n\n"), body
    return "3 of 3 streams"


async def java(front: Front) -> str:
    """Java's own client, which offers h2c with each request."""
    program = shutil.which("java")
    if program is None:
        return "skipped: no java here (apt-get install default-jdk-headless)"
    body = json.dumps({"model": front.model, "prompt": "@", "max_tokens": 2})
    url = f"http://127.0.0.1:{front.port}/v1/completions"
    source = Path(__file__).with_name("JavaClient.java")
    ran = await asyncio.to_thread(
        subprocess.run,
        [program, str(source), url, body, "30"],
        timeout=180,
        capture_output=True,
        text=True,
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
    return f"{ran.stdout.strip()} answers"


CASES: dict[str, Callable[[Front], Awaitable[str]]] = {
    "many clients": many,
    "pipelined": pipelined,
    "offers": offers,
    "streams": streams,
    "clients that leave": leaving,
    "HTTP/1.0": old,
    "Java": java,
}
