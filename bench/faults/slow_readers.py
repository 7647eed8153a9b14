"""Clients that stop reading, and the effect on other clients."""

import asyncio
import json
import socket
import time
from collections.abc import Sequence
from typing import Any

from bench.faults.scene import Scene
from bench.harness.machine import rss_bytes

STALLED = 8
CHOICES = 8
NEIGHBOURS = 8
TOKENS = 1200
"""Tokens per choice of a stalled client: more than the sockets and buffers on the path hold."""
WINDOW_SECONDS = 4.0
"""Time in which the other clients' tokens are timed."""
PAUSE_SECONDS = 30.0
"""Time for all streams of the stalled clients to pause at their workers."""
PAUSED = "baton_frontend_paused_requests"
SLOW = "baton_frontend_slow_clients_total"


async def stall(scene: Scene) -> dict[str, Any]:
    """Let some clients stop reading; time the tokens of others before, during and after that."""
    frontend = scene.pick("frontend")
    port = frontend.http_port
    asked = {
        "model": "baton-tiny",
        "prompt": [scene.draw.randrange(3, 250) for _ in range(200)],
        "n": CHOICES,
        "max_tokens": TOKENS,
        "ignore_eos": True,
        "seed": scene.draw.randrange(2**31),
    }
    cut = await scene.sum(SLOW, "frontend")
    before = await _p99_ms(scene, port)
    resident = rss_bytes(frontend.pid)
    readers = [await _ask(port, asked, receive_bytes=4096) for _ in range(STALLED)]
    try:
        end = time.monotonic() + PAUSE_SECONDS
        while await scene.sum(PAUSED, "frontend") < STALLED and time.monotonic() < end:
            await asyncio.sleep(0.1)
        paused = await scene.sum(PAUSED, "frontend")
        grown = (rss_bytes(frontend.pid) - resident) / STALLED
        beside = await _p99_ms(scene, port)
        (first, writer), *others = readers
        for _, other in others:
            other.transport.abort()
        texts = await _texts(first)
        writer.close()
    finally:
        for _, writer in readers:
            writer.transport.abort()
    after = await _p99_ms(scene, port)
    whole, writer = await _ask(port, asked)
    expected = await _texts(whole)
    writer.close()
    ratio = beside / max(before, after)
    return {
        "all_paused": paused >= STALLED,
        "none_cut": await scene.sum(SLOW, "frontend") == cut,
        "same_tokens": texts == expected and len(texts) == CHOICES,
        "within_4_mib_each": grown <= 4 * 1024 * 1024,
        "kib_each": [round(grown / 1024)],
        "itl_p99_ms": [round(one, 2) for one in (before, beside, after)],
        "itl_p99_ratio": round(ratio, 3),
        "itl_kept": ratio <= 1.1,
    }


async def _p99_ms(scene: Scene, port: int) -> float:
    """Return the gap between two tokens that 99 of 100 gaps of the other clients do not exceed."""
    end = time.monotonic() + WINDOW_SECONDS
    gaps = await asyncio.gather(*(_gaps(scene, port, end) for _ in range(NEIGHBOURS)))
    known = sorted(gap for some in gaps for gap in some)
    return known[int(0.99 * len(known))] * 1e3


async def _gaps(scene: Scene, port: int, end: float) -> list[float]:
    """Return the gaps between the tokens of one stream, until `end`."""
    asked = {
        "model": "baton-tiny",
        "prompt": [scene.draw.randrange(3, 250) for _ in range(40)],
        "max_tokens": TOKENS,
        "ignore_eos": True,
    }
    reader, writer = await _ask(port, asked)
    try:
        gaps, last = [], 0.0
        while time.monotonic() < end and (line := await reader.readline()):
            if line.startswith(b"data: "):
                now = time.monotonic()
                gaps.append(now - last)
                last = now
        return gaps[1:]
    finally:
        writer.transport.abort()


async def _ask(
    port: int, asked: dict[str, Any], receive_bytes: int | None = None
) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """Request a streamed response; nothing of it is read yet."""
    client = socket.socket()
    if receive_bytes is not None:
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_bytes)
    client.setblocking(False)
    await asyncio.get_running_loop().sock_connect(client, ("127.0.0.1", port))
    limit = 64 * 1024 if receive_bytes is None else 1024
    reader, writer = await asyncio.open_connection(sock=client, limit=limit)
    body = json.dumps({**asked, "stream": True}).encode()
    head = f"POST /v1/completions HTTP/1.1\r\nhost: x\r\ncontent-length: {len(body)}\r\n"
    writer.write(f"{head}connection: close\r\n\r\n".encode() + body)
    return reader, writer


async def _texts(reader: asyncio.StreamReader) -> Sequence[str]:
    """Read a response to its end; return the texts of its choices. Empty: it did not end well."""
    pieces = []
    while piece := await reader.read(64 * 1024):
        pieces.append(piece)
    _, _, rest = b"".join(pieces).partition(b"\r\n\r\n")
    body, at = [], 0
    while at < len(rest):
        line = rest.index(b"\r\n", at)
        size = int(rest[at:line], 16)
        body.append(rest[line + 2 : line + 2 + size])
        at = line + 4 + size
    *events, done = filter(None, b"".join(body).split(b"\n\n"))
    if done != b"data: [DONE]":
        return ()
    texts: dict[int, str] = {}
    for event in events:
        for choice in json.loads(event.removeprefix(b"data: "))["choices"]:
            texts[choice["index"]] = texts.get(choice["index"], "") + choice["text"]
    return [texts[index] for index in sorted(texts)]
