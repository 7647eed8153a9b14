"""Faults of frontends, Postgres and the broker during the load."""

import asyncio
import random
from collections import Counter
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from functools import partial

from baton.postgres.local.server import LocalPostgres
from bench.faults.links import Rule
from bench.harness.broker import Broker
from bench.harness.child import Helper
from bench.harness.fleet import Fleet, total
from bench.harness.signals import frozen_family

FRONTEND, AGAIN = "frontend killed", "frontend killed as it starts"
POSTGRES, POSTGRES_FROZEN = "Postgres killed", "Postgres frozen"
FROZEN, RESETS, HOLE = "broker frozen", "broker's connections reset", "broker unreachable"
KAFKA = "kafka"
"""The broker's name at the proxy."""
HIT_SECONDS = 30.0
"""A fault lasts until it affects something, and at most this long."""
STATEMENT_SECONDS = 0.3
"""Time for frozen statements to end."""
_POLL_SECONDS = 0.1


@dataclass
class Load:
    """What the faults know of the clients."""

    begun: int = 0
    told: int = 0
    """Responses whose end was received."""
    running: Counter[tuple[str, int]] = field(default_factory=Counter)
    """Requests by frontend and the number of its start."""


@dataclass
class Done:
    """Faults of one kind."""

    count: int = 0
    hits: int = 0
    """Faults that affected something."""
    hit: int = 0
    """Requests that were cut off, or ended during the fault."""


class Faults:
    """Injects faults, one after the other for each kind of process.

    Args:
        fleet: its frontends are killed.
        postgres: the database.
        broker: the broker.
        proxies: forwards all connections to the broker.
        load: the clients' state.
        draw: the seeded source of randomness.
    """

    def __init__(
        self,
        fleet: Fleet,
        postgres: LocalPostgres,
        broker: Broker,
        proxies: Helper,
        load: Load,
        draw: random.Random,
    ) -> None:
        self._fleet = fleet
        self._postgres = postgres
        self._broker = broker
        self._proxies = proxies
        self._load = load
        self._draw = draw
        self.ready = {one.id for one in fleet.frontends}
        """Frontends that clients use."""
        self.killed: set[tuple[str, int]] = set()
        """Starts of frontends that were killed."""
        kinds = (FRONTEND, AGAIN, POSTGRES, POSTGRES_FROZEN, FROZEN, RESETS, HOLE)
        self.done = {kind: Done() for kind in kinds}

    async def run(self, requests: int) -> None:
        """Inject all faults during a number of requests; return once everything is restored."""
        more = requests // 600
        frontends = [AGAIN, FRONTEND, *self._draw.choices((FRONTEND, FRONTEND, AGAIN), k=more)]
        postgres = [POSTGRES, POSTGRES_FROZEN]
        postgres += self._draw.choices((POSTGRES, POSTGRES, POSTGRES_FROZEN), k=max(0, more - 1))
        broker = [
            FROZEN,
            RESETS,
            HOLE,
            *self._draw.choices((FROZEN, RESETS, HOLE), k=max(0, more - 1)),
        ]
        async with asyncio.TaskGroup() as group:
            for kinds in (frontends, postgres, broker):
                self._draw.shuffle(kinds)
                times = sorted(self._draw.uniform(0.03, 0.85) * requests for _ in kinds)
                group.create_task(self._do(list(zip(times, kinds, strict=True)), requests))

    async def _do(self, faults: list[tuple[float, str]], requests: int) -> None:
        for at, kind in faults:
            while self._load.begun < min(at, requests - 1):
                await asyncio.sleep(_POLL_SECONDS)
            done = self.done[kind]
            done.count += 1
            if kind in (FRONTEND, AGAIN):
                hit = await self._kill_frontend(again=kind == AGAIN)
            else:
                before = self._load.told
                await self._away(kind)
                hit = self._load.told - before
            done.hits += hit > 0
            done.hit += hit

    async def _kill_frontend(self, *, again: bool) -> int:
        """Kill a frontend that runs requests and restart it; return the number of its requests."""
        load, fleet = self._load, self._fleet
        while len(self.ready) < 2:
            await asyncio.sleep(_POLL_SECONDS)
        name = self._draw.choice(sorted(self.ready))
        generation = (name, fleet[name].starts)
        with suppress(TimeoutError):
            async with asyncio.timeout(HIT_SECONDS):
                while not load.running[generation]:
                    await asyncio.sleep(0.005)
        self.ready.discard(name)
        hit = load.running[generation]
        await self._kill(name)
        if again:  # also while it takes over runs of its predecessor
            await asyncio.sleep(self._draw.uniform(0, 0.5))
            await fleet.start(name)
            await asyncio.sleep(self._draw.uniform(0.5, 4))
            await self._kill(name)
        await asyncio.sleep(self._draw.uniform(0, 1))
        await fleet.start(name)
        await fleet.wait_ready(name)
        self.ready.add(name)
        return hit

    async def _kill(self, name: str) -> None:
        self.killed.add((name, self._fleet[name].starts))
        self._fleet.kill(name)
        await self._fleet.wait_ended(name)

    async def _away(self, kind: str) -> None:
        """Stop Postgres or the broker, until responses have ended during that time."""
        sleep = self._draw.uniform(0.3, 4)
        if kind == POSTGRES:
            await self._postgres.kill()
            await self._until_hit(sleep)
            await self._postgres.start()
        elif kind == POSTGRES_FROZEN:
            # Longer than a statement may take: it completes later, without a response.
            failed = await self._failures("postgres")
            # The statement completes before it can be cancelled.
            async with frozen_family(self._postgres.pid or 0, STATEMENT_SECONDS):
                await self._until_hit(0, partial(self._has_failed, "postgres", failed))
        elif kind == FROZEN:
            failed = await self._failures(KAFKA)
            self._broker.freeze()
            try:
                await self._until_hit(0, partial(self._has_failed, KAFKA, failed))
            finally:
                self._broker.thaw()
        else:
            reset = Rule("reset", server=KAFKA, share=0.3)
            rule = reset if kind == RESETS else Rule("black-hole", server=KAFKA)
            await self._proxies.ask({"rules": [asdict(rule)]})
            await self._until_hit(sleep)
            await self._proxies.ask({"rules": []})

    async def _until_hit(
        self, seconds: float, failed: Callable[[], Awaitable[bool]] | None = None
    ) -> None:
        """Return after a time, once a response has ended in it and `failed` returns true."""
        before = self._load.told
        with suppress(TimeoutError):
            async with asyncio.timeout(HIT_SECONDS):
                await asyncio.sleep(seconds)
                while self._load.told == before:
                    await asyncio.sleep(_POLL_SECONDS)
                while failed is not None and not await failed():
                    await asyncio.sleep(_POLL_SECONDS)

    async def _has_failed(self, sink: str, before: dict[tuple[str, int], float]) -> bool:
        """Return whether a sink has failed since."""
        now = await self._failures(sink)
        return any(count > before.get(one, 0) for one, count in now.items())

    async def _failures(self, sink: str) -> dict[tuple[str, int], float]:
        """Return how often a sink failed, by frontend and start."""
        found = {}
        for one in self._fleet.frontends:
            with suppress(OSError):
                shown = await one.metrics()
                name = "baton_usage_sink_failures_total"
                found[one.id, one.starts] = total(shown, name, f'"{sink}"')
        return found
