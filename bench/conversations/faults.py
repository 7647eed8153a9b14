"""Kills frontends, workers and Postgres while clients have turns."""

import asyncio
import random
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress

from baton.postgres.local.server import LocalPostgres
from bench.harness.fleet import Fleet, total

FRONTEND, WORKER, POSTGRES = "frontend killed", "worker killed", "Postgres killed"
BOTH = "frontend with turns on disk killed"
EACH = {FRONTEND: 300, WORKER: 500, POSTGRES: 500, BOTH: 500}
"""Turns for one fault of each kind."""
HIT_SECONDS = 30.0
KEEPS = "baton_conversations_spool_oldest_timestamp_seconds"
AWAY_SECONDS = (0.3, 3.0)
_POLL_SECONDS = 0.05


class Kills:
    """Kills and restarts, one after the other for each kind of process.

    Args:
        fleet: its frontends and decode workers are killed.
        postgres: the database.
        turns: returns how many turns have ended.
        draw: the seeded source of randomness.
    """

    def __init__(
        self,
        fleet: Fleet,
        postgres: LocalPostgres,
        turns: Callable[[], int],
        draw: random.Random,
    ) -> None:
        self.done: Counter[str] = Counter()
        self.meanwhile: Counter[str] = Counter()
        """Turns that ended while a process of a kind was away."""
        self._fleet = fleet
        self._postgres = postgres
        self._turns = turns
        self._draw = draw
        self._ready = {one.id for one in fleet.frontends}

    def url(self) -> str:
        """Return the base URL of a frontend that was ready a moment ago."""
        member = self._fleet[self._draw.choice(sorted(self._ready))]
        return f"http://127.0.0.1:{member.http_port}"

    async def run(self, turns: int) -> None:
        """Inject all faults during a number of turns; return once everything runs again."""
        async with asyncio.TaskGroup() as group:
            for kinds in ((FRONTEND,), (WORKER,), (POSTGRES, BOTH)):
                times = [
                    (self._draw.uniform(0.05, 0.85) * turns, kind)
                    for kind in kinds
                    for _ in range(max(1, turns // EACH[kind]))
                ]
                group.create_task(self._inject(sorted(times)))

    async def _inject(self, times: Sequence[tuple[float, str]]) -> None:
        kills = {
            FRONTEND: self._frontend,
            WORKER: self._worker,
            POSTGRES: self._database,
            BOTH: self._both,
        }
        for at, kind in times:
            while self._turns() < at:
                await asyncio.sleep(_POLL_SECONDS)
            before = self._turns()
            await kills[kind]()
            self.done[kind] += 1
            self.meanwhile[kind] += self._turns() - before

    async def _frontend(self) -> None:
        await self._restart(self._draw.choice(sorted(self._ready)))

    async def _worker(self) -> None:
        await self._restart(self._draw.choice(self._fleet.of("decode")).id)

    async def _restart(self, name: str) -> None:
        """Kill a process, unless it is dead, and start it again."""
        member = self._fleet[name]
        if member.pid:
            self._fleet.kill(name)  # clients that know it learn it from their connections
        await self._fleet.wait_ended(name)
        self._ready.discard(name)
        await asyncio.sleep(self._draw.uniform(0, 1))
        await self._fleet.start(name)
        await self._fleet.wait_ready(name)
        if member in self._fleet.frontends:
            self._ready.add(name)

    async def _database(self) -> None:
        await self._postgres.kill()
        await asyncio.sleep(self._draw.uniform(*AWAY_SECONDS))
        await self._postgres.start()

    async def _both(self) -> None:
        """Kill a frontend that keeps turns for Postgres, which is back before it is."""
        await self._postgres.kill()
        async with asyncio.timeout(HIT_SECONDS):
            while not (keeps := await self._keeping()):
                await asyncio.sleep(_POLL_SECONDS)
        name = self._draw.choice(keeps)
        self._fleet.kill(name)
        await self._postgres.start()
        await self._restart(name)

    async def _keeping(self) -> list[str]:
        """Return the frontends that keep turns on disk."""
        keeps = []
        for name in sorted(self._ready):
            with suppress(OSError):
                if total(await self._fleet[name].metrics(), KEEPS):
                    keeps.append(name)
        return keeps
