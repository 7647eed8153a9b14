"""A cluster, the proxies between its processes, and operations on them."""

import asyncio
import random
import shutil
import time
from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import asdict
from pathlib import Path

from baton.cluster.etcd.local import LocalEtcd, free_port
from bench.faults.links import Rule
from bench.harness.child import Helper, helper
from bench.harness.fleet import SERVICES, Fleet, Member, total
from bench.harness.releases import CHECKOUT, Release

ETCD = "etcd"
RELEASE_SECONDS = 11.0
"""Time in which everything must be released: that of a lease plus a second."""
HELD = (
    ("baton_frontend_requests_active", ""),
    ("baton_frontend_worker_streams", ""),
    ("baton_frontend_tickets", ""),
    ("baton_rpc_calls_active", "InferenceService"),
    ("baton_router_tickets", ""),
    ("baton_worker_streams", ""),
    ("baton_kv_leases", ""),
    ("baton_kv_reservations", ""),
    ("baton_kv_quarantined", ""),
    ("baton_kv_waiters", ""),
)
"""Metrics of what requests hold, and a text in their labels."""


class Scene:
    """The environment of a row.

    Args:
        fleet: the processes.
        proxies: the process through which all their connections pass.
        draw: makes the random choices.
        directory: for etcd's data and the hosts.
    """

    def __init__(self, fleet: Fleet, proxies: Helper, draw: random.Random, directory: Path) -> None:
        self.fleet = fleet
        self.draw = draw
        self.directory = directory
        self._proxies = proxies

    def pick(self, *services: str) -> Member:
        """Return a random process of these services."""
        return self.draw.choice(self.fleet.of(*services))

    async def router_in_use(self) -> Member:
        """Return the router that most frontends use."""
        sessions = [
            total(await one.metrics(), "baton_router_sessions") for one in self.fleet.of("router")
        ]
        return self.fleet.of("router")[sessions.index(max(sessions))]

    async def break_links(self, *rules: Rule) -> None:
        """Apply the rules to the links; links without a rule work."""
        await self._ask(rules=[asdict(rule) for rule in rules])

    async def struck(self) -> dict[str, int]:
        """Return how often rules were applied, by kind."""
        return dict((await self._ask())["struck"])

    async def start(
        self, *names: str, settings: Mapping[str, str] = {}, release: Release = CHECKOUT
    ) -> float:
        """Start processes and return the seconds until they are ready."""
        await self.fleet.start(*names, settings=settings, release=release)
        await self.tell_pids()
        return await self.fleet.wait_ready(*names)

    async def tell_pids(self) -> None:
        """Send the proxies the pids of the processes."""
        await self._ask(pids={m.id: m.pid for m in self.fleet.of() if m.pid})

    async def busy(self, *names: str, seconds: float = 10.0) -> dict[str, float]:
        """Return the streams of each of these workers as soon as all have some.

        Raises:
            TimeoutError: the workers had nothing to do, so a fault would show nothing.
        """
        async with asyncio.timeout(seconds):
            while True:
                shown = await asyncio.gather(*(self.fleet[name].metrics() for name in names))
                streams = [total(one, "baton_worker_streams") for one in shown]
                if all(streams):
                    return dict(zip(names, streams, strict=True))
                await asyncio.sleep(0.02)

    async def sum(self, name: str, *services: str) -> float:
        """Return the sum of a metric over all responding processes of some services."""
        values = 0.0
        for member in self.fleet.of(*services):
            with suppress(OSError):
                values += total(await member.metrics(), name)
        return values

    async def held(self) -> dict[str, float]:
        """Return what requests hold now, by metric; empty: nothing."""
        shown = await asyncio.gather(*(m.metrics() for m in self.fleet.of() if m.pid))
        sums = {name: sum(total(metrics, name, part) for metrics in shown) for name, part in HELD}
        return {name: value for name, value in sums.items() if value}

    async def at_baseline(self, seconds: float) -> tuple[float, dict[str, float]]:
        """Return the seconds until nothing was held, and what is still held after `seconds`."""
        began = time.monotonic()
        while (held := await self.held()) and time.monotonic() - began < seconds:
            await asyncio.sleep(0.05)
        return time.monotonic() - began, held

    async def lose_etcd(self, seconds: float, *, data: bool) -> bool:
        """Kill etcd, and restart it after some time, with or without its data.

        Returns:
            Whether it accepted no connection just before the restart.
        """
        await self.fleet.etcd.kill()
        await asyncio.sleep(seconds)
        away = not await _accepts(self.fleet.etcd.endpoints[0])
        if data:
            for path in (self.directory / ETCD).iterdir():
                if path.is_dir():
                    shutil.rmtree(path)
        await self.fleet.etcd.start()
        return away

    async def _ask(self, **command: object) -> dict[str, dict[str, int]]:
        answer: dict[str, dict[str, int]] = await self._proxies.ask(command)
        return answer


@asynccontextmanager
async def scene(
    directory: Path,
    settings: Mapping[str, str],
    counts: Mapping[str, int],
    draw: random.Random,
) -> AsyncIterator[Scene]:
    """Run a cluster behind proxies until the block exits; yield once all processes are ready.

    Args:
        directory: empty, and removed by the caller.
        settings: environment variables of all processes.
        counts: number of processes by service.
        draw: makes the random choices, including those of the proxies.
    """
    names = [f"{service}-{number}" for service in SERVICES for number in range(counts[service])]
    ports = {name: free_port() for name in [*names, ETCD]}
    (directory / ETCD).mkdir()
    async with (
        LocalEtcd(directory / ETCD) as etcd,
        helper("bench.faults.proxy", str(draw.randrange(2**32))) as proxies,
    ):
        fleet = Fleet(directory, etcd, settings, counts, ports, f"127.0.0.1:{ports[ETCD]}")
        own_ports = {name: fleet[name].grpc_port for name in names}
        own_ports[ETCD] = int(etcd.endpoints[0].rpartition(":")[2])
        await proxies.ask({"listen": {name: (ports[name], own_ports[name]) for name in ports}})
        made = Scene(fleet, proxies, draw, directory)
        try:
            await made.start(*_without_frontends(names))
            await made.start(*(name for name in names if name.startswith("frontend")))
            yield made
        finally:
            await fleet.stop()


async def _accepts(address: str) -> bool:
    host, _, port = address.rpartition(":")
    try:
        _, writer = await asyncio.open_connection(host, int(port))
    except OSError:
        return False
    writer.close()
    return True


def _without_frontends(names: Iterable[str]) -> list[str]:
    return [name for name in names if not name.startswith("frontend")]
