"""A frontend without workers, and an upstream of a provider that it may reach."""

import contextlib
import json
import secrets
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest

from baton.tenancy.admin.providers import ProviderAdministration
from baton.tenancy.records.providers import Provider, ProviderModel
from tests.support.clock import DEADLINE_SECONDS
from tests.support.doubles.upstream import ScriptedUpstream
from tests.support.wait import eventually

SECRET = "sk-upstream-0123456789abcdef"
NETWORKS = {"providers.allowed_networks": "127.0.0.0/8"}


@dataclass
class Provided:
    """The provider `acme` of the model `gpt`, with its upstream."""

    stage: Any
    upstream: ScriptedUpstream
    http: httpx.AsyncClient
    admin: ProviderAdministration
    key_file: Path
    usage: Path
    """Where usage records go."""

    def record(self, **fields: Any) -> Provider:
        """Return the provider, with other fields."""
        model = ProviderModel(
            name="gpt",
            upstream="gpt-4o",
            context_tokens=8000,
            output_tokens=1000,
            price="1/0.5/2",
        )
        given: dict[str, Any] = {
            "id": "acme",
            "url": self.upstream.url,
            "http": True,
            "keys": (f"file:{self.key_file}",),
            "models": (model,),
        }
        return Provider(**(given | fields))

    async def set(self, **fields: Any) -> None:
        """Set the provider, and wait until the frontend has its models."""
        record = self.record(**fields)
        await self.admin.set(record)

        async def listed() -> bool:
            found = (await self.http.get("/v1/models")).json()["data"]
            return set(record.names) <= {one["id"] for one in found}

        await eventually(listed)

    async def replace(self, **fields: Any) -> None:
        """Replace the provider, with a model more, by which it is known that it applies."""
        mark = ProviderModel(name=f"mark-{secrets.token_hex(4)}", context_tokens=9, output_tokens=2)
        await self.set(models=(*self.record().models, mark), **fields)

    async def recorded(self, count: int = 1) -> list[dict[str, Any]]:
        """Return the usage records once there are some."""

        def read() -> list[dict[str, Any]]:
            files = self.usage.glob("*.jsonl")
            lines = [line for path in files for line in path.read_text().splitlines()]
            return [json.loads(line) for line in lines]

        await eventually(lambda: len(read()) >= count)
        return read()

    async def ask(self, **fields: Any) -> httpx.Response:
        """Ask for a chat completion."""
        body = {"model": "gpt", "messages": [{"role": "user", "content": "Hi"}]} | fields
        return await self.http.post("/v1/chat/completions", json=body)


@pytest.fixture
async def provided(empty_stage: Any, tmp_path: Path) -> AsyncIterator[Provided]:
    """A frontend that serves the model of a provider, and nothing else."""
    key_file = tmp_path / "key"
    key_file.write_text(SECRET + "\n")
    key_file.chmod(0o600)
    async with contextlib.AsyncExitStack() as stack:
        upstream = await stack.enter_async_context(ScriptedUpstream())
        admin = ProviderAdministration(empty_stage.client, empty_stage.cluster)
        http = await stack.enter_async_context(httpx.AsyncClient(timeout=DEADLINE_SECONDS))
        made = Provided(empty_stage, upstream, http, admin, key_file, tmp_path / "usage")
        await admin.set(made.record())
        usage = {"usage.spool_path": tmp_path / "spool", "usage.jsonl_path": made.usage}
        await empty_stage.start_frontend(NETWORKS | usage)
        http.base_url = httpx.URL(empty_stage.http_url)
        yield made
