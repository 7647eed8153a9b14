"""Baton's processes on this machine, for the duration of a measurement."""

import asyncio
import sys
import tempfile
from asyncio.subprocess import PIPE
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from baton.client import AsyncClient
from baton.cluster.etcd.local import free_port
from bench.harness.child import process

START_SECONDS = 120.0


@dataclass(frozen=True)
class Cluster:
    """A running cluster, started by `baton up`."""

    grpc: str
    """Address of the frontend, `host:port`; `http` as well."""
    http: str
    model: str
    """The first of its models."""
    supervisor: int
    """The pid of `baton up`."""
    runtime: str
    """XDG_RUNTIME_DIR of commands that shall find it."""
    start_seconds: float
    """Until every process served."""

    def pids(self) -> dict[str, int]:
        """Return the pid of each of the cluster's processes by instance ID, except etcd."""
        found = {}
        for path in Path("/proc").iterdir():
            if not path.name.isdigit():
                continue
            with suppress(OSError):
                stat = (path / "stat").read_text().rsplit(")", 1)[1].split()
                if int(stat[1]) == self.supervisor:
                    for setting in (path / "environ").read_bytes().split(b"\0"):
                        name, _, value = setting.decode(errors="replace").partition("=")
                        if name == "BATON_INSTANCE_ID":
                            found[value] = int(path.name)
        return found


@asynccontextmanager
async def cluster(*arguments: str, settings: Mapping[str, str] = {}) -> AsyncIterator[Cluster]:
    """Run `baton up` until the block exits; yield once every process has joined.

    Args:
        arguments: further arguments of `baton up`; the ports are chosen here.
        settings: environment variables of all processes.
    """
    grpc, http = free_port(), free_port()
    baton = str(Path(sys.executable).with_name("baton"))
    command = (baton, "up", *arguments, "--grpc-port", str(grpc), "--http-port", str(http))
    async with AsyncExitStack() as stack:
        # Hidden from other commands, so that its name does not conflict.
        runtime = stack.enter_context(tempfile.TemporaryDirectory(prefix="baton-bench-"))
        own = {"XDG_RUNTIME_DIR": runtime, **settings}
        up = await stack.enter_async_context(process(command, own, stdout=PIPE))
        assert up.stdout is not None
        async with asyncio.timeout(START_SECONDS):
            while not (line := await up.stdout.readline()).startswith(b"Ready after"):
                if not line:
                    raise SystemExit("baton up ended before it served: see what it said above")
        async with AsyncClient(f"127.0.0.1:{grpc}") as client:
            model = (await client.models())[0]
        yield Cluster(
            f"127.0.0.1:{grpc}",
            f"127.0.0.1:{http}",
            model.name,
            up.pid,
            runtime,
            float(line.split()[2]),
        )


@asynccontextmanager
async def store(settings: Mapping[str, str] = {}) -> AsyncIterator[str]:
    """Run one KV store without a cluster until the block exits; yield its address immediately.

    It serves without etcd, and keeps trying to connect to it.
    """
    port = free_port()
    alone = {
        "BATON_GRPC_PORT": str(port),
        "BATON_ETCD_ENDPOINTS": "127.0.0.1:1",
        "BATON_TELEMETRY_LOG_LEVEL": "error",
    }
    async with process((sys.executable, "-m", "baton", "serve", "kvstore"), {**alone, **settings}):
        yield f"127.0.0.1:{port}"
