"""An upgrade of releases and of the schema beside turns: `python -m bench.conversations.rolling`.

Starts a cluster and its Postgres as an earlier release, with the schema of that release, which is
some revisions older. Clients, without retries, continue conversations by `conversation` and by
`previous_response_id`, streamed and not; others store chat completions, and read each at once.
Each request is a new connection to a ready frontend, as with a Service of Kubernetes.

One process after the other gets SIGTERM and a successor of the next release of `--versions`. The
schema is upgraded when the first frontend is new and the last one is not: both releases then run on
the old schema, and on the new one. A later turn back to the earlier release leaves the schema.

After each step rows are compared with what clients saw, as in `bench.conversations.kills`. The exit
code is 1 unless no request failed, each turn and completion that a client saw is stored, in order
and whole, and the usage record of each has the tokens and the cost of its response.
"""

import argparse
import asyncio
import itertools
import random
import time
from collections.abc import Awaitable, Sequence
from typing import Any, TypeVar

import httpx

from baton.conversations.store import ConversationStore
from baton.postgres.database import Database
from baton.postgres.revisions import CONVERSATIONS
from baton.settings import ConversationSettings
from bench.conversations.completions import CompletionClient, lost_completions
from bench.conversations.scene import PRICE, REQUEST_SECONDS, Stage, stage, upgrade_schema
from bench.conversations.turns import Errors, TurnClient
from bench.conversations.verdict import (
    differences,
    half_turns,
    history_of,
    usage_differences,
)
from bench.faults.frontends import FleetFrontends
from bench.harness import cli
from bench.harness.fleet import SERVICES, add_counts
from bench.harness.problems import concluded, shown
from bench.harness.releases import CHECKOUT, Release
from bench.harness.releases.released import CONVERSATIONS_COMMIT, HistoryError, released
from bench.harness.table import Table
from bench.usage.exactly_once.sources import rows_of

COUNTS = {"kvstore": 1, "router": 2, "prefill": 2, "decode": 2, "frontend": 2}
SETTINGS = {
    "BATON_DRAIN_SECONDS": "60",
    "BATON_LIMITS_DRAIN_NOTICE_SECONDS": "5",
    "BATON_STORE_DRAIN_QUIET_SECONDS": "1",
}
"""Streams end where they run, also on a busy machine: `bench.serving.rolling` has longer ones."""
_STOP_SECONDS = 90.0
_TURNS_EACH = 20
"""Turns of a conversation; then its client begins another one."""
_BETWEEN_SECONDS = 0.3
_RECORDS_SECONDS = 60.0
"""Time for usage records to come in."""

T = TypeVar("T")


class Load:
    """The clients, and what became of their requests."""

    def __init__(self, made: Stage, options: argparse.Namespace, draw: random.Random) -> None:
        self.errors = Errors()
        self.turns: list[TurnClient] = []
        self.completions: list[CompletionClient] = []
        self.replaced = ""
        """The process that is being replaced."""
        self._made = made
        self._draw = draw
        self._addresses = FleetFrontends(made.fleet, draw)
        self._numbers = itertools.count()
        self._talking = [self._new(TurnClient) for _ in range(options.conversations)]
        self._talking += [self._new(CompletionClient) for _ in range(options.completions)]

    @property
    def clients(self) -> Sequence[TurnClient]:
        return [*self.turns, *self.completions]

    @property
    def failed(self) -> int:
        """How many requests got an error, or no end."""
        return self.errors.retried.total() + len(self.errors.wrong) + self.errors.cut

    def _new(self, kind: type[TurnClient]) -> TurnClient:
        number = next(self._numbers)
        scope, secret = self._made.keys[number % len(self._made.keys)]
        client = kind(
            f"client-{number}",
            self._url,
            self._made.up.model,
            scope,
            self.errors,
            secret=secret,
            managed=number // 2 % 2 == 0,
            stream=number % 3 == 0,
        )
        if isinstance(client, CompletionClient):
            self.completions.append(client)
        else:
            self.turns.append(client)
        return client

    def _url(self) -> str:
        try:
            host, port = self._addresses.http_address()
        except ConnectionRefusedError:  # a machine that does other work delays probes
            there = [one for one in self._made.fleet.frontends if one.id != self.replaced]
            host, port = "127.0.0.1", self._draw.choice(there).http_port
        return f"http://{host}:{port}"

    async def during(self, step: Awaitable[T], http: httpx.AsyncClient, seconds: float) -> T:
        """Return the result of a step, beside which all clients send requests, and for some time
        before and after it."""
        stop = asyncio.Event()
        async with asyncio.TaskGroup() as group:
            watching = group.create_task(self._addresses.watch())
            talks = [
                group.create_task(self._talk(place, http, stop))
                for place in range(len(self._talking))
            ]
            await asyncio.sleep(seconds)
            found = await step
            await asyncio.sleep(seconds)
            stop.set()
            await asyncio.gather(*talks)
            watching.cancel()
        return found

    async def _talk(self, place: int, http: httpx.AsyncClient, stop: asyncio.Event) -> None:
        while not stop.is_set():
            if len(self._talking[place].seen) >= _TURNS_EACH:
                self._talking[place] = self._new(type(self._talking[place]))
            one = self._talking[place]
            await one.begin(http)
            await one.turn(http)
            await asyncio.sleep(self._draw.uniform(0, _BETWEEN_SECONDS))

    async def compare(self) -> list[str]:
        """Return what of the rows differs from what clients saw; no request runs."""
        problems: list[str] = []
        settings = ConversationSettings(enabled=True, statement_seconds=60)
        async with Database(self._made.state, "bench", CONVERSATIONS) as database:
            await database.wait_available(REQUEST_SECONDS)
            store = ConversationStore(database, settings)
            for one in self.turns:
                problems += differences(one, await history_of(store, one))
            for each in self.completions:
                problems += await lost_completions(store.completions, each)
            problems += await half_turns(database)
        return problems + await self._compare_usage()

    async def _compare_usage(self) -> list[str]:
        """Wait until usage records are the sums of the responses; return what differs."""
        ends = time.monotonic() + _RECORDS_SECONDS
        while True:
            records = await rows_of(self._made.state)
            problems, _ = usage_differences(self.clients, records, PRICE)
            if not problems or time.monotonic() > ends:
                return problems
            await asyncio.sleep(_BETWEEN_SECONDS)


async def measure(options: argparse.Namespace) -> dict[str, Any]:
    """Print a row for each step."""
    draw = random.Random(options.seed)
    versions = [_version(name) for name in options.versions.split(",")]
    settings = {**SETTINGS, "BATON_ENGINE_SIM_DECODE_STEP_SECONDS": str(options.step)}
    async with stage(options.counts, settings, versions[0]) as made:
        found, problems = await _run(made, options, draw, versions)
    return concluded(options, found, problems)


async def _run(
    made: Stage, options: argparse.Namespace, draw: random.Random, versions: Sequence[Release]
) -> tuple[dict[str, Any], list[str]]:
    """Return the counts, and what is wrong."""
    load, problems, upgraded = Load(made, options, draw), list[str](), ""
    table = Table(
        ("step", "<44"), ("s", "5.1f"), ("turns", "6"), ("completions", "11"), ("failed", "6")
    )

    async def step(name: str, doing: Awaitable[object]) -> None:
        began, before = time.monotonic(), len(problems)
        await load.during(doing, http, options.pause)
        took = time.monotonic() - began
        problems.extend(f"{name}: {problem}" for problem in await load.compare())
        done = [sum(len(one.seen) for one in kind) for kind in (load.turns, load.completions)]
        table.row(name, took, *done, load.failed)
        shown(problems[before:]) if len(problems) > before else None

    async def replace(name: str, release: Release) -> None:
        load.replaced = name
        await made.fleet.terminate(name, _STOP_SECONDS)
        await made.fleet.start(name, release=release)
        await made.fleet.wait_ready(name)
        load.replaced = ""

    limits = httpx.Limits(max_connections=None, max_keepalive_connections=0)
    async with httpx.AsyncClient(timeout=REQUEST_SECONDS, limits=limits) as http:
        for release in versions[1:]:
            members = made.fleet.of(*options.roles.split(","))
            for member in members:
                last = member.id == made.fleet.frontends[-1].id
                if last and release is CHECKOUT and not upgraded:
                    upgrading = asyncio.ensure_future(upgrade_schema(release, made.postgres))
                    await step("schema upgraded, both releases run", upgrading)
                    upgraded = upgrading.result()
                    print(upgraded)
                await step(f"{member.id} is {release.name}", replace(member.id, release))
    problems += [f"told {error}" for error in load.errors.wrong]
    problems += [f"{count} times told {what}" for what, count in load.errors.retried.items()]
    problems += [f"{load.errors.cut} connections cut"] if load.errors.cut else []
    problems += [] if upgraded else ["the schema was not upgraded"]
    _, sums = usage_differences(load.clients, await rows_of(made.state), PRICE)
    counts = {
        "turns": sum(len(one.seen) for one in load.turns),
        "completions": sum(len(one.seen) for one in load.completions),
        "failed": load.failed,
        "nano-dollars told": sums["told"],
        "nano-dollars recorded": sums["recorded"],
    }
    print(", ".join(f"{name}: {value}" for name, value in counts.items()))
    return {"upgraded": upgraded, **counts}, problems


def _version(name: str) -> Release:
    """Return the version with a name of `--versions`.

    Raises:
        SystemExit: there is no such version, or the history lacks it.
    """
    if name == "checkout":
        return CHECKOUT
    if name != "released":
        raise SystemExit(f"no version is called {name}: checkout or released")
    try:
        return released(CONVERSATIONS_COMMIT, {})
    except HistoryError as error:
        print(error)
        raise SystemExit(cli.NEEDS_MORE) from None


def arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of this benchmark."""
    parser.add_argument("--versions", default="released,checkout,released,checkout")
    parser.add_argument("--roles", default=",".join(SERVICES), help="roles to replace, in order")
    parser.add_argument("--conversations", type=int, default=12, help="default: 12")
    parser.add_argument("--completions", type=int, default=4, help="clients; default: 4")
    parser.add_argument("--step", type=float, default=0.05, help="seconds per decode step")
    parser.add_argument("--pause", type=float, default=2.0, help="seconds before and after a step")
    add_counts(parser, COUNTS)
    parser.add_argument("--seed", type=int, default=1, help="seed of the requests")


if __name__ == "__main__":
    cli.main(
        measure,
        __doc__,
        arguments,
        smallest="--versions released,checkout --roles frontend --counts 1,1,1,1,2 "
        "--conversations 4 --completions 1 --step 0.02 --pause 0.5",
    )
