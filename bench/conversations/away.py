"""Requests while Postgres is killed, then frozen: `python -m bench.conversations.away`.

Three frontends, workers with the simulated engine, a router, etcd and a Postgres, as in
`bench.conversations.kills`. Clients send requests that store nothing at a constant rate, and
others continue stored conversations, each turn at a random frontend, before, while and after
Postgres is away. Turns that began before it went away end meanwhile.

Prints latencies of requests that store nothing, per phase; how long requests that need Postgres
took to be refused; and how long each frontend took to serve them again after Postgres accepted
connections. Then rows are compared with what clients saw, as in `bench.conversations.kills`. The
exit code is 1 if a request that stores nothing failed, a refusal was no 503 with retry-after, or
anything that a client was told is missing.
"""

import argparse
import asyncio
import itertools
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Any

import httpx

from baton.conversations.store import ConversationStore
from baton.postgres.database import Database
from baton.settings import ConversationSettings
from bench.conversations.scene import REQUEST_SECONDS, Stage, stage
from bench.conversations.turns import RETRY_SECONDS, Errors, TurnClient
from bench.conversations.verdict import differences, half_turns, history_of
from bench.harness import cli
from bench.harness.problems import concluded
from bench.harness.signals import frozen_family
from bench.harness.stats import percentile
from bench.harness.table import Table

KILLED, FROZEN = "killed", "frozen"
_PROBE_SECONDS = 0.5
_RETRY_AFTER_SECONDS = 1.0
"""As refusals say: clients that retry sooner take the cores of the others."""
_BACK_SECONDS = 60.0


class Stateless:
    """Requests that store nothing, at a constant rate whatever they take."""

    def __init__(self, made: Stage, rate: float) -> None:
        self.phase = "before"
        self.seconds: dict[str, list[float]] = {}
        self.failed: list[str] = []
        self._made = made
        self._rate = rate

    async def run(self, http: httpx.AsyncClient) -> None:
        """Send requests until cancelled."""
        loop, urls = asyncio.get_running_loop(), itertools.cycle(self._made.up.http)
        began = loop.time()
        async with asyncio.TaskGroup() as group:
            for number in itertools.count():
                await asyncio.sleep(began + number / self._rate - loop.time())
                group.create_task(self._one(http, next(urls), number))

    async def _one(self, http: httpx.AsyncClient, url: str, number: int) -> None:
        loop, phase = asyncio.get_running_loop(), self.phase
        body = {"model": self._made.up.model, "input": f"{number}: hello", "store": False}
        headers = {"authorization": f"Bearer {self._made.keys[0][1]}"}
        began = loop.time()
        answer = await http.post(
            f"{url}/v1/responses", json=body | {"max_output_tokens": 8}, headers=headers
        )
        self.seconds.setdefault(phase, []).append(loop.time() - began)
        if answer.status_code != 200:
            self.failed.append(f"stateless, {phase}: {answer.status_code} {answer.text[:200]}")


class Outage:
    """One time during which Postgres is away."""

    def __init__(self, kind: str) -> None:
        self.kind = kind
        self.refused: list[float] = []
        """Seconds until each request that needs Postgres was refused."""
        self.ended = 0
        """Turns that ended meanwhile, told to their clients."""
        self.back: dict[str, float] = {}
        """Seconds from the return of Postgres to the first turn, by frontend."""
        self.problems: list[str] = []

    @asynccontextmanager
    async def away(self, made: Stage) -> AsyncIterator[None]:
        """Let Postgres be away until the block exits; it responds again then."""
        if self.kind == KILLED:
            await made.postgres.kill()
            yield
            await made.postgres.start()
        else:
            async with frozen_family(made.postgres.pid or 0):
                yield


async def measure(options: argparse.Namespace) -> dict[str, Any]:
    """Print a table per kind of outage, and what differs."""
    settings = {"BATON_CONVERSATIONS_STATEMENT_SECONDS": str(options.statement)}
    async with stage(settings=settings) as made:
        found, problems = await _measure(made, options)
    return concluded(options, found, problems)


async def _measure(made: Stage, options: argparse.Namespace) -> tuple[dict[str, Any], list[str]]:
    errors, draw = Errors(), random.Random(options.seed)
    clients = []
    for number in range(options.conversations):
        scope, secret = made.keys[number % len(made.keys)]
        client = TurnClient(
            f"away-{number}",
            lambda: draw.choice(made.up.http),
            made.up.model,
            scope,
            errors,
            secret=secret,
            managed=number % 2 == 0,
            stream=number % 3 == 0,
            retry_seconds=_RETRY_AFTER_SECONDS,
        )
        clients.append(client)
    stateless = Stateless(made, options.rate)
    outages = [Outage(KILLED), Outage(FROZEN)]
    async with httpx.AsyncClient(timeout=REQUEST_SECONDS) as http:
        for one in clients:
            await one.begin(http)
            await one.turn(http)
        running = asyncio.create_task(stateless.run(http))
        try:
            for outage in outages:
                stateless.phase = f"before it is {outage.kind}"
                await asyncio.sleep(options.seconds)
                await _away(made, outage, clients, stateless, http, options)
        finally:
            running.cancel()
            with suppress(asyncio.CancelledError):
                await running
        drained = await made.drained()
    left = await made.stop_frontends()
    problems = [*stateless.failed, *(f"told {error}" for error in errors.wrong)]
    problems += [f"{name} is left in a spool" for name in left]
    problems += [problem for outage in outages for problem in outage.problems]
    problems += await _compare(made, clients)
    found = {one.kind: _report(one, stateless) for one in outages}
    print(f"stored after {drained:.1f} s; told to retry: {dict(errors.retried)}")
    return {"outages": found, "seconds": stateless.seconds}, problems


async def _away(
    made: Stage,
    outage: Outage,
    clients: list[TurnClient],
    stateless: Stateless,
    http: httpx.AsyncClient,
    options: argparse.Namespace,
) -> None:
    """Let Postgres be away while turns run; then let each client have a turn."""
    before = [len(one.seen) for one in clients]
    loop = asyncio.get_running_loop()
    turns = [asyncio.create_task(one.turn(http)) for one in clients]
    # They have read what they continue, and end while Postgres is away.
    await asyncio.sleep(options.start)
    async with outage.away(made):
        stateless.phase = outage.kind
        ends = loop.time() + options.seconds
        while loop.time() < ends:
            await _probe(made, outage, clients[0], http)
            await asyncio.sleep(_PROBE_SECONDS)
        outage.ended = sum(
            len(one.seen) - count for one, count in zip(clients, before, strict=True)
        )
    stateless.phase = f"after it was {outage.kind}"
    returned = loop.time()
    await asyncio.gather(*(_back(outage, clients[0], url, http, returned) for url in made.up.http))
    await asyncio.gather(*turns)
    await asyncio.gather(*(one.turn(http) for one in clients))


async def _probe(made: Stage, outage: Outage, client: TurnClient, http: httpx.AsyncClient) -> None:
    """Read a conversation, at each frontend."""
    loop = asyncio.get_running_loop()

    async def one(url: str) -> None:
        began = loop.time()
        answer = await http.get(f"{url}/v1/conversations/{client.last}", headers=client.headers)
        seconds = loop.time() - began
        outage.refused.append(seconds)
        if answer.status_code != 503 or "retry-after" not in answer.headers:
            outage.problems.append(f"{outage.kind}: a read was {answer.status_code}")

    await asyncio.gather(*map(one, made.up.http))


async def _back(
    outage: Outage,
    client: TurnClient,
    url: str,
    http: httpx.AsyncClient,
    returned: float,
) -> None:
    """Read a conversation at a frontend until it is there."""
    loop = asyncio.get_running_loop()
    async with asyncio.timeout(_BACK_SECONDS):
        while True:
            answer = await http.get(f"{url}/v1/conversations/{client.last}", headers=client.headers)
            if answer.status_code == 200:
                outage.back[url] = loop.time() - returned
                return
            await asyncio.sleep(RETRY_SECONDS / 2)


async def _compare(made: Stage, clients: list[TurnClient]) -> list[str]:
    problems: list[str] = []
    settings = ConversationSettings(enabled=True, statement_seconds=60)
    async with Database(made.state) as database:
        await database.wait_available(REQUEST_SECONDS)
        store = ConversationStore(database, settings)
        for one in clients:
            problems += differences(one, await history_of(store, one))
        problems += await half_turns(database)
    return problems


def _report(outage: Outage, stateless: Stateless) -> dict[str, Any]:
    table = Table(
        ("requests that store nothing", "<28"),
        ("number", "6"),
        ("p50 ms", "7.1f"),
        ("p99 ms", "7.1f"),
    )
    found: dict[str, Any] = {}
    names = (f"before it is {outage.kind}", outage.kind, f"after it was {outage.kind}")
    for name in names:
        values = [1000 * one for one in stateless.seconds.get(name, [])]
        table.row(name, len(values), percentile(values, 50), percentile(values, 99))
        found[name] = percentile(values, 99)
    ratio = found[outage.kind] / found[names[0]]
    longest, back = max(outage.refused), max(outage.back.values())
    print(f"p99 while {outage.kind}, against before: {ratio:.3f}")
    print(
        f"{len(outage.refused)} refused, p50 {percentile(outage.refused, 50):.3f} s, "
        f"p99 {percentile(outage.refused, 99):.3f} s, longest {longest:.3f} s; "
        f"turns that ended meanwhile: {outage.ended}; "
        f"back after {back:.2f} s"
    )
    return found | {
        "ratio": ratio,
        "refused": len(outage.refused),
        "refused_longest": longest,
        "ended": outage.ended,
        "back": back,
    }


def arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of this benchmark."""
    parser.add_argument("--seconds", type=float, default=60.0, help="away; default: 60")
    parser.add_argument("--rate", type=float, default=10.0, help="requests per second; default: 10")
    parser.add_argument("--conversations", type=int, default=16, help="default: 16")
    parser.add_argument("--start", type=float, default=0.2, help="seconds from turns to outage")
    parser.add_argument("--statement", type=float, default=0.5, help="seconds of a statement")
    parser.add_argument("--seed", type=int, default=1, help="seed of the frontends")


if __name__ == "__main__":
    cli.main(
        measure,
        __doc__,
        arguments,
        smallest="--seconds 3 --rate 5 --conversations 4 --start 0.4 --statement 2",
    )
