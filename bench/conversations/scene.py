"""A cluster with keys, stored conversations and usage records, and its Postgres."""

import asyncio
import sys
import tempfile
from asyncio.subprocess import PIPE
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import httpx
from pydantic import SecretStr

from baton.conversations.records import StateScope
from baton.postgres.local.programs import remove_data
from baton.postgres.local.server import LocalDatabase, LocalPostgres
from baton.request.prices import Price
from baton.settings import StateSettings
from baton.tenancy.records.tenants import Scope as KeyScope
from baton.tenancy.records.tenants import Tier
from bench.conversations.turns import RETRY_SECONDS
from bench.harness.child import process
from bench.harness.fleet import Fleet, total
from bench.harness.releases import CHECKOUT, Release
from bench.tenancy.scene import Scene, scene

TENANTS = ("acme", "globex")
COUNTS = {"kvstore": 1, "router": 1, "prefill": 1, "decode": 2, "frontend": 3}
PRICE = Price.parse("0.10/0.025/0.40")
STATEMENT_SECONDS = 2.0
"""The default of 0.5 s is exceeded where a busy machine starts processes."""
DRAIN_SECONDS = 120.0
REQUEST_SECONDS = 60.0
SCOPES = (KeyScope.INFERENCE, KeyScope.STATE_READ, KeyScope.STATE_WRITE)
SETTINGS = {
    "BATON_CONVERSATIONS_ENABLED": "true",
    "BATON_CONVERSATIONS_STATEMENT_SECONDS": str(STATEMENT_SECONDS),
    "BATON_CONVERSATIONS_SPOOL_PATH": "{directory}/conversations",
    "BATON_USAGE_SPOOL_PATH": "{directory}/usage",
    "BATON_USAGE_STALL_SECONDS": "30",
    "BATON_USAGE_PRICES": f"*={PRICE}",
    "BATON_STATE_STATEMENT_SECONDS": "2",
    "BATON_ENGINE_SIM_DECODE_STEP_SECONDS": "0.02",
    "BATON_ENGINE_MAX_RUNNING": "64",
}
WAITING = (
    "baton_conversations_spool_oldest_timestamp_seconds",
    "baton_usage_sink_oldest_record_timestamp_seconds",
)


@dataclass(frozen=True)
class Stage:
    """A running cluster and its database."""

    up: Scene
    postgres: LocalPostgres
    keys: tuple[tuple[StateScope, str], ...]
    """Projects, each with the secret of its key."""

    @property
    def fleet(self) -> Fleet:
        return self.up.fleet

    @property
    def state(self) -> StateSettings:
        return StateSettings(url=SecretStr(self.postgres.url), statement_seconds=60)

    async def drained(self) -> float:
        """Return the seconds until no frontend keeps anything for Postgres.

        Raises:
            TimeoutError: one still does after DRAIN_SECONDS.
        """
        began = asyncio.get_running_loop().time()
        async with asyncio.timeout(DRAIN_SECONDS):
            while await self.waiting():
                await asyncio.sleep(RETRY_SECONDS)
        return asyncio.get_running_loop().time() - began

    async def waiting(self) -> bool:
        """Return whether any frontend keeps records or turns for Postgres."""
        shown = await asyncio.gather(*(one.metrics() for one in self.fleet.frontends))
        runs = 2 * len(self.fleet.frontends)
        return len(self.runs()) > runs or any(total(one, name) for one in shown for name in WAITING)

    async def stop_frontends(self) -> list[str]:
        """Stop the frontends, and return what their spools still have."""
        await asyncio.gather(*(self.fleet.terminate(one.id) for one in self.fleet.frontends))
        return self.runs()

    def runs(self) -> list[str]:
        """Return the directories of processes' records in all spools."""
        spools = (self.up.directory / name for name in ("conversations", "usage"))
        return [
            f"{spool.name}/{path.name}"
            for spool in spools
            for path in spool.iterdir()
            if path.is_dir()
        ]


@asynccontextmanager
async def stage(
    counts: Mapping[str, int] = COUNTS,
    settings: Mapping[str, str] = {},
    release: Release = CHECKOUT,
) -> AsyncIterator[Stage]:
    """Run a cluster and its Postgres until the block exits; yield once responses are stored.

    Args:
        counts: number of processes by service.
        settings: environment variables of all processes.
        release: the version of all processes, and of the schema.
    """
    server = LocalDatabase if release is CHECKOUT else LocalPostgres
    with tempfile.TemporaryDirectory(prefix="baton-bench-") as scratch:
        directory = Path(scratch) / "postgres"
        try:
            async with server(directory) as postgres:
                if release is not CHECKOUT:
                    await upgrade_schema(release, postgres)
                given = {**SETTINGS, "BATON_STATE_URL": postgres.url, **settings}
                async with scene(counts, given, release=release) as up:
                    keys = []
                    for tenant in TENANTS:
                        await up.admin.create_tenant(tenant, Tier.PRO)
                        project = await up.admin.create_project(tenant, "chats")
                        _, secret = await up.admin.create_key(project, scopes=SCOPES)
                        keys.append((StateScope(tenant, project.id), secret))
                    made = Stage(up, postgres, tuple(keys))
                    for url in up.http:
                        await serves(url, keys[-1][1])
                    yield made
        finally:
            remove_data(directory)


async def upgrade_schema(release: Release, postgres: LocalPostgres) -> str:
    """Upgrade a database's schema to that of a version, with its own command; return its output.

    Raises:
        SystemExit: it failed.
    """
    command = (sys.executable, "-m", "baton", "db", "upgrade", "--state-url", postgres.url)
    async with process(command, release.environment, stdout=PIPE) as child:
        output, _ = await child.communicate()
    if child.returncode:
        raise SystemExit(f"`baton db upgrade` of {release.name} failed: {output.decode()}")
    return output.decode().strip()


async def serves(url: str, secret: str) -> None:
    """Wait until a frontend knows the keys and reaches the database."""
    async with httpx.AsyncClient(base_url=url, timeout=REQUEST_SECONDS) as http:
        headers = {"authorization": f"Bearer {secret}"}
        async with asyncio.timeout(REQUEST_SECONDS):
            while True:
                answer = await http.post("/v1/conversations", json={}, headers=headers)
                if answer.status_code == 200:
                    return
                await asyncio.sleep(RETRY_SECONDS)
