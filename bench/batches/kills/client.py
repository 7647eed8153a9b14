"""A client of one batch, and the lines of its input."""

import asyncio
import json
import random
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import httpx

from bench.batches.kills.verdict import Line
from bench.conversations.turns import RETRY_SECONDS

CHAT = "/v1/chat/completions"
OUTPUT_TOKENS = (4, 24)
_PREFIXES = 8
_POLL_SECONDS = 0.5


@dataclass
class Client:
    """A tenant's client with one batch.

    Args:
        secret: its API key.
        url: returns the base URL of a frontend.
        http: sends its requests.
    """

    secret: str
    url: Callable[[], str]
    http: httpx.AsyncClient

    async def call(self, method: str, path: str, **body: Any) -> httpx.Response:
        """Return the response to a request, which is sent again until it is served."""
        headers = {"authorization": f"Bearer {self.secret}"}
        while True:
            with suppress(httpx.TransportError):
                url = f"{self.url()}{path}"
                response = await self.http.request(method, url, headers=headers, **body)
                if response.status_code < 500:
                    return response.raise_for_status()
            await asyncio.sleep(RETRY_SECONDS)

    async def create(self, lines: list[Line]) -> str:
        """Return the id of a batch of lines."""
        data = b"".join(json.dumps(line).encode() + b"\n" for line in lines)
        form = {"purpose": "batch"}
        sent = {"files": {"file": ("in.jsonl", data)}, "data": form}
        file = (await self.call("POST", "/v1/files", **sent)).json()["id"]
        body = {"input_file_id": file, "endpoint": CHAT, "completion_window": "24h"}
        return str((await self.call("POST", "/v1/batches", json=body)).json()["id"])

    async def ended(self, batch: str) -> Line:
        """Return a batch once it has ended."""
        while True:
            found: Line = (await self.call("GET", f"/v1/batches/{batch}")).json()
            if found["status"] in ("completed", "failed", "expired", "cancelled"):
                return found
            await asyncio.sleep(_POLL_SECONDS)

    async def lines(self, file: str | None) -> list[Line]:
        """Return the lines of a file; none if there is none."""
        if file is None:
            return []
        content = (await self.call("GET", f"/v1/files/{file}/content")).text
        return [json.loads(line) for line in content.splitlines()]


def lines_of(count: int, model: str, draw: random.Random) -> list[Line]:
    """Return the lines of an input, some of which begin alike."""
    prefixes = [f"{draw.random()} " * 8 for _ in range(_PREFIXES)]
    found = []
    for number in range(count):
        body = {
            "model": model,
            "messages": [{"role": "user", "content": draw.choice(prefixes) + str(number)}],
            "max_tokens": draw.randint(*OUTPUT_TOKENS),
            "ignore_eos": True,
        }
        found.append({"custom_id": f"c{number}", "method": "POST", "url": CHAT, "body": body})
    return found
