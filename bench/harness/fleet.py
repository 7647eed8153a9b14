"""Processes of one cluster that are started, broken and replaced one by one.

`baton up` restarts failed processes; a fleet leaves that to the benchmark. There are as many hosts
as KV stores: the prefill and decode workers with a number use the store with the same number. The
gRPC address that other processes use may be a proxy's.
"""

import argparse
import asyncio
import os
import signal
import sys
import time
from collections.abc import Iterable, Mapping, Sequence
from contextlib import AsyncExitStack, ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from urllib.request import urlopen

from baton.cli.shared.cluster_view import health
from baton.cluster.etcd.local import LocalEtcd
from baton.host.ports import held_port
from baton.rpc.channel.channel import Channel
from bench.harness.child import log_path, process
from bench.harness.metrics import parse_metrics
from bench.harness.releases import CHECKOUT, Release

READY_SECONDS = 120.0
STOP_SECONDS = 40.0
PROBE_SECONDS = 1.0
METRICS_SECONDS = 20.0
"""A machine that starts processes constantly exposes their metrics late."""
SERVICES = ("kvstore", "router", "prefill", "decode", "frontend")
"""In the order in which processes start."""
COMBINED = "combined"
"""Workers that prefill and decode: there are none unless counts name them."""


def counts_of(text: str) -> dict[str, int]:
    """Return the processes per service from numbers in the order of `SERVICES`: `1,1,1,2,1`."""
    return dict(zip(SERVICES, map(int, text.split(",")), strict=True))


def add_counts(parser: argparse.ArgumentParser, default: Mapping[str, int]) -> None:
    """Add the option `--counts`, the number of processes per service."""
    words = ", ".join(f"{default[service]} {service}" for service in SERVICES)
    parser.add_argument(
        "--counts",
        type=counts_of,
        default=default,
        metavar="N,N,N,N,N",
        help=f"processes by service; default: {words}",
    )


@dataclass
class Member:
    """One process of the cluster, running or not."""

    id: str
    service: str
    settings: dict[str, str]
    """The environment variables with which it starts."""
    grpc_port: int
    ops_port: int
    http_port: int = 0
    """HTTP port of a frontend."""
    program: Sequence[str | Path] = ()
    """It and its arguments; empty: `baton serve`."""
    child: asyncio.subprocess.Process | None = None
    stack: AsyncExitStack = field(default_factory=AsyncExitStack)
    starts: int = 0

    @property
    def pid(self) -> int:
        """The process id; 0: the process does not run."""
        if self.child is None or self.child.returncode is not None:
            return 0
        return self.child.pid

    async def metrics(self) -> dict[str, float]:
        """Return its metrics at /metrics, by name with labels.

        Raises:
            OSError: the process does not respond.
        """
        return parse_metrics(
            await _get(f"http://127.0.0.1:{self.ops_port}/metrics", METRICS_SECONDS)
        )


def total(metrics: Mapping[str, float], name: str, part: str = "") -> float:
    """Return the sum of a metric over the label sets that contain a text."""
    return sum(
        value
        for sample, value in metrics.items()
        if sample.partition("{")[0] == name and part in sample
    )


class Fleet:
    """The processes by id: `frontend-0`, `router-1`, …

    Args:
        directory: for arenas, disks and etcd's data; empty, and removed by the caller.
        etcd: the cluster's etcd.
        settings: environment variables of all processes.
        counts: number of processes by service.
        advertised: the gRPC port for other processes, by id; otherwise its own port.
        etcd_address: the address of etcd for processes; empty: etcd's own.
    """

    def __init__(
        self,
        directory: Path,
        etcd: LocalEtcd,
        settings: Mapping[str, str],
        counts: Mapping[str, int],
        advertised: Mapping[str, int],
        etcd_address: str = "",
    ) -> None:
        self.etcd = etcd
        self.members: dict[str, Member] = {}
        self._ports = ExitStack()
        """Reserves the ports while their processes are down."""
        stores = counts["kvstore"]
        for service in (*SERVICES, COMBINED):
            for number in range(counts.get(service, 0)):
                name = f"{service}-{number}"
                host = directory / f"host-{number % stores}"
                host.mkdir(exist_ok=True)
                member = Member(name, service, {}, self._port(), self._port())
                member.settings = {
                    "BATON_INSTANCE_ID": name,
                    "BATON_GRPC_PORT": str(member.grpc_port),
                    "BATON_GRPC_ADVERTISE_PORT": str(advertised.get(name, 0)),
                    "BATON_OPS_PORT": str(member.ops_port),
                    "BATON_ETCD_ENDPOINTS": etcd_address or etcd.endpoints[0],
                    "BATON_KV_STORE_ID": f"kvstore-{number % stores}",
                    "BATON_STORE_ARENA_DIR": str(host),
                    "BATON_STORE_DISK_PATH": str(host / "kv.disk"),
                    "OMP_NUM_THREADS": "1",
                    **settings,
                }
                if service == COMBINED:
                    member.settings["BATON_ROLE"] = COMBINED
                if service == "frontend":
                    member.http_port = self._port()
                    member.settings["BATON_HTTP_PORT"] = str(member.http_port)
                self.members[name] = member

    def __getitem__(self, name: str) -> Member:
        return self.members[name]

    def of(self, *services: str) -> list[Member]:
        """Return the members of some services; without arguments, of all."""
        return [m for m in self.members.values() if not services or m.service in services]

    @property
    def frontends(self) -> list[Member]:
        return self.of("frontend")

    async def start(
        self, *names: str, settings: Mapping[str, str] = {}, release: Release = CHECKOUT
    ) -> None:
        """Start processes of a version, with more settings for this run, and return immediately."""
        for name in names:
            member = self[name]
            assert not member.pid, f"{name} is running"
            await member.stack.aclose()
            log = member.stack.enter_context(log_path(f"fleet-{name}").open("ab"))
            service = "decode" if member.service == COMBINED else member.service
            served = (sys.executable, "-m", "baton", "serve", service)
            own = release.settings({**member.settings, **settings}) | release.environment
            member.child = await member.stack.enter_async_context(
                process(member.program or served, own, stdout=log.fileno(), stderr=log)
            )
            member.starts += 1

    async def wait_ready(self, *names: str, seconds: float = READY_SECONDS) -> float:
        """Return the seconds until all of them are ready, as their readiness probes report.

        Raises:
            TimeoutError: they were not ready in time.
            SystemExit: one ended.
        """
        began = time.monotonic()
        async with asyncio.timeout(seconds):
            await asyncio.gather(*(self._ready(self[name]) for name in names or self.members))
        return time.monotonic() - began

    def kill(self, *names: str) -> None:
        """End processes as crashes do."""
        self._signal(names, signal.SIGKILL)

    def freeze(self, *names: str) -> None:
        """Stop processes with SIGSTOP."""
        self._signal(names, signal.SIGSTOP)

    def thaw(self, *names: str) -> None:
        """Continue frozen processes."""
        self._signal(names, signal.SIGCONT)

    async def terminate(self, name: str, seconds: float = STOP_SECONDS) -> float:
        """Send SIGTERM and return the seconds until the process has ended.

        Raises:
            TimeoutError: it had not ended after `seconds`.
        """
        began = time.monotonic()
        self._signal([name], signal.SIGTERM)
        await self.wait_ended(name, seconds)
        return time.monotonic() - began

    async def wait_ended(self, name: str, seconds: float = STOP_SECONDS) -> int:
        """Return the exit code of a process, once it has ended."""
        child = self[name].child
        assert child is not None
        async with asyncio.timeout(seconds):
            return await child.wait()

    async def stop(self) -> None:
        """Kill all processes without draining, as measuring is over."""
        self.kill(*(m.id for m in self.members.values() if m.pid))
        await asyncio.gather(*(member.stack.aclose() for member in self.members.values()))
        self._ports.close()

    def _port(self) -> int:
        return self._ports.enter_context(held_port())

    def _signal(self, names: Iterable[str], number: int) -> None:
        for name in names:
            pid = self[name].pid
            assert pid, f"{name} is not running"
            os.kill(pid, number)

    async def _ready(self, member: Member) -> None:
        while not await is_ready(member):
            if not member.pid:
                raise SystemExit(f"{member.id} ended: see {log_path(f'fleet-{member.id}')}")
            await asyncio.sleep(0.1)


async def is_ready(member: Member) -> bool:
    """Return whether a process is ready, as an orchestrator's readiness probe reports."""
    if member.http_port:
        try:
            await _get(f"http://127.0.0.1:{member.http_port}/health/ready", PROBE_SECONDS)
        except OSError:
            return False
        return True
    async with Channel(f"127.0.0.1:{member.grpc_port}") as channel:
        return await health(channel) == "SERVING"


async def _get(url: str, seconds: float) -> str:
    def get() -> str:
        with urlopen(url, timeout=seconds) as answer:
            return str(answer.read().decode())

    return await asyncio.to_thread(get)
