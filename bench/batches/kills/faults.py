"""Kills and freezes frontends, routers, workers and Postgres while lines run."""

import asyncio
import random
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass

from baton.postgres.local.server import LocalPostgres
from bench.batches.kills.progress import Progress
from bench.harness.fleet import Fleet, Member, total
from bench.harness.signals import frozen_family

POSTGRES = "Postgres"
KILLED, FROZEN = "killed", "frozen"
EACH = {("frontend",): 500, ("prefill", "decode", "combined"): 500, ("router",): 1000}
"""Services, and lines for one fault of one of them."""
POSTGRES_EACH = 1000
LEASE_SECONDS = 4.0
FROZEN_SECONDS = (0.5, 2 * LEASE_SECONDS)
"""Of frontends: their leases may end meanwhile."""
AWAY_SECONDS = (0.3, 3.0)
_FIRST, _LAST = 0.03, 0.8
"""Of the lines, between which faults are injected."""
_HIT_SECONDS = 60.0
_POLL_SECONDS = 0.05
_RUNNING = "vllm:num_requests_running"


@dataclass(frozen=True)
class Fault:
    """One fault that was injected."""

    kind: str
    had: int
    """Lines that ran there: requests of a decode or combined worker; leases of a frontend; of the
    others, all lines that ran."""
    meanwhile: int
    """Lines that ended until it was over."""


class Faults:
    """Injects faults one after the other for each kind of service.

    Args:
        fleet: its processes are killed and frozen.
        postgres: as well.
        progress: of the lines.
        draw: the seeded source of randomness.
    """

    def __init__(
        self, fleet: Fleet, postgres: LocalPostgres, progress: Progress, draw: random.Random
    ) -> None:
        self.done: list[Fault] = []
        self._fleet = fleet
        self._postgres = postgres
        self._progress = progress
        self._draw = draw
        self._lines = 0
        self._ready = {one.id for one in fleet.frontends}

    def url(self) -> str:
        """Return the base URL of a frontend that was ready a moment ago."""
        member = self._fleet[self._draw.choice(sorted(self._ready))]
        return f"http://127.0.0.1:{member.http_port}"

    async def run(self, lines: int) -> None:
        """Inject all faults while so many lines run; return once every process runs again."""
        self._lines = lines
        async with asyncio.TaskGroup() as group:
            for services, each in EACH.items():
                group.create_task(self._services(self._times(services, lines // each)))
            group.create_task(self._database(self._times([POSTGRES], lines // POSTGRES_EACH)))

    def _times(self, services: Sequence[str], count: int) -> list[tuple[float, str, str]]:
        """Return the faults of some services: when, as a part of the lines; of what; and which."""
        kinds = [(service, how) for service in services for how in (KILLED, FROZEN)]
        self._draw.shuffle(kinds)
        times = sorted(self._draw.uniform(_FIRST, _LAST) for _ in range(max(2, count)))
        return [(after, *kinds[at % len(kinds)]) for at, after in enumerate(times)]

    async def _services(self, times: Sequence[tuple[float, str, str]]) -> None:
        for after, service, how in times:
            await self._until(after)
            member, had = await self._busy(self._fleet.of(service))
            async with self._counted(f"{member.service} {how}", had):
                if how == KILLED:
                    await self._kill(member)
                else:
                    await self._freeze(member)

    async def _database(self, times: Sequence[tuple[float, str, str]]) -> None:
        for after, _, how in times:
            await self._until(after)
            async with asyncio.timeout(_HIT_SECONDS):
                while not (had := sum(self._progress.running.values())):
                    await asyncio.sleep(_POLL_SECONDS)
            seconds = self._draw.uniform(*AWAY_SECONDS)
            async with self._counted(f"{POSTGRES} {how}", had):
                if how == KILLED:
                    await self._postgres.kill()
                    await asyncio.sleep(seconds)
                    await self._postgres.start()
                else:
                    async with frozen_family(self._postgres.pid or 0):
                        await asyncio.sleep(seconds)

    async def _until(self, part: float) -> None:
        while self._progress.ended < part * self._lines:
            await asyncio.sleep(_POLL_SECONDS)

    async def _busy(self, members: list[Member]) -> tuple[Member, int]:
        """Return one of some processes that runs lines, and how many.

        Raises:
            TimeoutError: none does.
        """
        async with asyncio.timeout(_HIT_SECONDS):
            while True:
                for member in self._draw.sample(members, len(members)):
                    if had := await self._lines_at(member):
                        return member, had
                await asyncio.sleep(_POLL_SECONDS)

    async def _lines_at(self, member: Member) -> int:
        if member.service == "frontend":
            return self._progress.running.get(member.id, 0)
        if member.service in ("decode", "combined"):
            with suppress(OSError):  # it has just started
                return int(total(await member.metrics(), _RUNNING))
            return 0
        return sum(self._progress.running.values())

    @asynccontextmanager
    async def _counted(self, kind: str, had: int) -> AsyncIterator[None]:
        before = self._progress.ended
        yield
        self.done.append(Fault(kind, had, self._progress.ended - before))

    async def _kill(self, member: Member) -> None:
        self._fleet.kill(member.id)
        await self._fleet.wait_ended(member.id)
        self._ready.discard(member.id)
        await asyncio.sleep(self._draw.uniform(0, 1))
        await self._fleet.start(member.id)
        await self._fleet.wait_ready(member.id)
        if member.service == "frontend":
            self._ready.add(member.id)

    async def _freeze(self, member: Member) -> None:
        frontend = member.service == "frontend"
        self._ready.discard(member.id)
        self._fleet.freeze(member.id)
        await asyncio.sleep(self._draw.uniform(*(FROZEN_SECONDS if frontend else AWAY_SECONDS)))
        self._fleet.thaw(member.id)
        if frontend:
            self._ready.add(member.id)


def table_of(done: Sequence[Fault]) -> list[tuple[str, int, int, int]]:
    """Return kind, times, lines that it had, and lines that ended meanwhile, in sum."""
    times, had, meanwhile = Counter[str](), Counter[str](), Counter[str]()
    for fault in done:
        times[fault.kind] += 1
        had[fault.kind] += fault.had
        meanwhile[fault.kind] += fault.meanwhile
    return [(kind, times[kind], had[kind], meanwhile[kind]) for kind in sorted(times)]
