"""Reads streams of chat completions in one of several ways: a helper of the benchmark.

python -m bench.providers.reader KIND LOOP    takes jobs as lines of JSON, answers each with a line

KIND is `bare` (a socket of asyncio, msgspec), `aiohttp`, `httpx`, `httpx2` or `openai`; LOOP is
`uvloop` or `asyncio`.
"""

import asyncio
import json
import sys
import time
from collections.abc import AsyncIterator
from typing import Any
from urllib.parse import urlsplit

import msgspec
import uvloop

Job = dict[str, Any]


class _Delta(msgspec.Struct):
    content: str | None = None


class _Choice(msgspec.Struct):
    delta: _Delta


class _Chunk(msgspec.Struct):
    choices: list[_Choice] = []
    error: msgspec.Raw = msgspec.Raw()


_decode = msgspec.json.Decoder(_Chunk).decode


def body_of(job: Job) -> dict[str, Any]:
    """Return the request of a job."""
    return {
        "model": job["model"],
        "messages": [{"role": "user", "content": "Tell me a story about a lighthouse."}],
        "stream": True,
        "max_tokens": job["tokens"],
    }


def texts(pieces: bytes, rest: bytearray) -> list[str]:
    """Return the texts in the lines that some bytes end; `rest` is the beginning of a line."""
    rest += pieces
    *lines, last = bytes(rest).split(b"\n")
    rest[:] = last
    found = []
    for line in lines:
        if line.startswith(b"data: {"):
            chunk = _decode(line[6:])
            found += [text for choice in chunk.choices if (text := choice.delta.content)]
            if bytes(chunk.error):
                raise SystemExit(f"the stream has an error: {bytes(chunk.error).decode()}")
    return found


async def bare(job: Job) -> AsyncIterator[str]:
    """Read a socket."""
    at = urlsplit(job["url"])
    reader, writer = await asyncio.open_connection(at.hostname, at.port)
    try:
        body = msgspec.json.encode(body_of(job))
        head = (
            f"POST {at.path}/chat/completions HTTP/1.1\r\nhost: {at.netloc}\r\n"
            f"content-type: application/json\r\ncontent-length: {len(body)}\r\n\r\n"
        )
        writer.write(head.encode() + body)
        rest = bytearray()
        while piece := await reader.read(65536):
            for text in texts(piece, rest):
                yield text
            if piece.endswith(b"0\r\n\r\n"):
                return
    finally:
        writer.close()


async def with_aiohttp(job: Job, session: Any) -> AsyncIterator[str]:
    """Read with aiohttp."""
    rest = bytearray()
    async with session.post(f"{job['url']}/chat/completions", json=body_of(job)) as response:
        while piece := await response.content.readany():
            for text in texts(piece, rest):
                yield text


async def with_httpx(job: Job, client: Any) -> AsyncIterator[str]:
    """Read with httpx or httpx2."""
    url = f"{job['url']}/chat/completions"
    rest = bytearray()
    async with client.stream("POST", url, json=body_of(job)) as response:
        async for piece in response.aiter_bytes():
            for text in texts(piece, rest):
                yield text


async def with_openai(job: Job, client: Any) -> AsyncIterator[str]:
    """Read with OpenAI's client."""
    async for chunk in await client.chat.completions.create(**body_of(job)):
        for choice in chunk.choices:
            if choice.delta.content:
                yield choice.delta.content


async def run(kind: str, job: Job) -> dict[str, Any]:
    """Read the streams of a job; return its tokens, CPU and times to first token."""
    first: list[float] = []
    gaps: list[float] = []
    tokens = 0
    client: Any = None
    match kind:
        case "aiohttp":
            import aiohttp

            client = aiohttp.ClientSession()
        case "httpx" | "httpx2":
            module = __import__(kind)
            limits = module.Limits(max_connections=None)
            client = module.AsyncClient(timeout=None, trust_env=False, limits=limits)
        case "openai":
            import openai

            client = openai.AsyncOpenAI(base_url=job["url"], api_key="none", max_retries=0)
    way = {
        "aiohttp": with_aiohttp,
        "httpx": with_httpx,
        "httpx2": with_httpx,
        "openai": with_openai,
    }

    async def one() -> None:
        nonlocal tokens
        last = time.monotonic()
        seen = 0
        async for _ in bare(job) if kind == "bare" else way[kind](job, client):
            now = time.monotonic()
            (gaps if seen else first).append(now - last)
            last = now
            seen += 1
        tokens += seen

    used, began = time.process_time(), time.monotonic()
    for _ in range(job["rounds"]):
        await asyncio.gather(*(one() for _ in range(job["streams"])))
    used, seconds = time.process_time() - used, time.monotonic() - began
    if client is not None:
        await (client.close() if hasattr(client, "close") else client.aclose())
    return {"tokens": tokens, "cpu": used, "seconds": seconds, "first": first, "gaps": gaps}


def main() -> None:
    """Take jobs until the input ends."""
    kind, loop = sys.argv[1:]
    factory = uvloop.new_event_loop if loop == "uvloop" else asyncio.new_event_loop
    with asyncio.Runner(loop_factory=factory) as runner:
        for line in sys.stdin:
            print(json.dumps(runner.run(run(kind, json.loads(line)))), flush=True)


if __name__ == "__main__":
    main()
