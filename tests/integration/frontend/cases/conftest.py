"""Baton Tiny behind a frontend, asked as real clients ask: what they send, and what is right."""

from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from typing import Any

import httpx
import pytest

from tests.support.engine.model import MODEL, TRAINED
from tests.support.services.cluster import LocalCluster


@dataclass(frozen=True)
class Asked:
    """Asks the one model."""

    cluster: LocalCluster
    http: httpx.AsyncClient

    async def post(
        self, path: str, body: dict[str, Any], headers: dict[str, str] | None = None
    ) -> httpx.Response:
        """Send a body, of temperature 0 and with few tokens where it says nothing else."""
        few = {} if path == "/tokenize" else {"temperature": 0, "max_tokens": 8}
        return await self.http.post(path, json={"model": MODEL, **few, **body}, headers=headers)

    async def chat(self, *messages: dict[str, Any], **fields: Any) -> httpx.Response:
        """Ask for the next turn of a conversation; of one with no messages, the first turn."""
        said = list(messages) or [{"role": "user", "content": "Hello"}]
        return await self.post("/v1/chat/completions", {"messages": said, **fields})

    async def complete(self, prompt: Any = "Hello", **fields: Any) -> httpx.Response:
        """Ask for a text's continuation."""
        return await self.post("/v1/completions", {"prompt": prompt, **fields})


@pytest.fixture
async def asked(local_cluster: Callable[..., Awaitable[LocalCluster]]) -> AsyncIterator[Asked]:
    """One worker with the trained model, which tests share."""
    cluster = await local_cluster(
        engine="torch",
        model=TRAINED,
        prefill=0,
        decode=0,
        combined=1,
        settings={"engine.model_name": MODEL, "engine.threads": 1},
    )
    async with httpx.AsyncClient(base_url=cluster.http) as http:
        yield Asked(cluster, http)
