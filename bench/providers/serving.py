"""A cluster whose frontend has models of a provider, and its upstream."""

import asyncio
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass

from baton.client import AsyncClient
from bench.harness.child import helper, process
from bench.harness.cluster import Cluster, cluster

_LISTED_SECONDS = 30.0
_SETTINGS = {
    "BATON_PROVIDERS_ALLOWED_NETWORKS": "127.0.0.0/8",
    "BATON_TELEMETRY_LOG_LEVEL": "error",
    "BATON_ENGINE_KV_BYTES": "64MiB",
    "BATON_STORE_ARENA_BYTES": "64MiB",
}


@dataclass(frozen=True)
class Provided:
    """A cluster with models of a provider."""

    up: Cluster
    upstream: str
    """The provider's URL."""

    @property
    def frontend(self) -> int:
        """The pid of the frontend."""
        return self.up.pids()["frontend-0"]

    @property
    def url(self) -> str:
        """Of the frontend."""
        return f"http://{self.up.http}/v1"


@asynccontextmanager
async def provided(models: Sequence[str], *more: str) -> AsyncIterator[Provided]:
    """Run an upstream, and a cluster with its models, until the exit.

    Args:
        models: their names.
        more: further arguments of `baton providers set`.
    """
    async with (
        helper("bench.providers.paced_upstream") as upstream,
        cluster(
            "--engine=sim", "--prefill=0", "--decode=0", "--combined=1", settings=_SETTINGS
        ) as up,
    ):
        url = f"http://127.0.0.1:{await upstream.receive()}/v1"
        given = [
            word for one in models for word in ("--model", f"{one},context=100000,output=50000")
        ]
        command = (
            sys.executable,
            "-m",
            "baton",
            "providers",
            "set",
            "paced",
            "--http",
            "--url",
            url,
        )
        async with process((*command, *given, *more), {"XDG_RUNTIME_DIR": up.runtime}) as child:
            if code := await child.wait():
                raise SystemExit(f"baton providers set ended with exit code {code}")
        async with AsyncClient(up.grpc) as client, asyncio.timeout(_LISTED_SECONDS):
            while not set(models) <= {model.name for model in await client.models()}:
                await asyncio.sleep(0.05)
        yield Provided(up, url)
