"""Conversations while what they need is killed: `python -m bench.conversations.kills`.

Starts three frontends that require keys and share a spool, workers with the simulated engine, a
router, etcd and a Postgres. Clients continue conversations, each turn at a random frontend: half of
them by `previous_response_id`, half by `conversation`, streamed and not. Meanwhile frontends,
decode workers and Postgres are killed and restarted. A client that does not see the end of a turn
sends it again, with another text. Before and after that, eight turns at once are sent to each of
some conversations.

Then rows are compared with what each client saw. The exit code is 1 unless:

- each response has all of its items, and each item its response;
- the turns that a client saw are in its history once and in its order, and other turns only if
  their client did not see their end;
- each turn was computed from the one before;
- of eight turns at once one moved its conversation on, and seven were refused with 409;
- no client saw an error but 409 and 503;
- the usage record of each turn has the tokens and the cost, to the nano-dollar, of its response.
"""

import argparse
import asyncio
import random
from collections import Counter
from typing import Any

import httpx

from baton.conversations.store import ConversationStore
from baton.postgres.database import Database
from baton.settings import ConversationSettings
from bench.conversations.faults import Kills
from bench.conversations.scene import PRICE, REQUEST_SECONDS, Stage, stage
from bench.conversations.turns import Errors, TurnClient
from bench.conversations.verdict import (
    differences,
    half_turns,
    history_of,
    usage_differences,
)
from bench.harness import cli
from bench.harness.problems import concluded
from bench.harness.table import Table
from bench.usage.exactly_once.sources import rows_of

AT_ONCE = 16
SIMULTANEOUS = 8


async def measure(options: argparse.Namespace) -> dict[str, Any]:
    """Print what happened, and what differs."""
    draw = random.Random(options.seed)
    print(f"seed {options.seed}, {options.turns} turns of {options.conversations} conversations")
    async with stage() as made:
        found, problems = await run(made, options, draw)
    return concluded(options, found, problems)


async def run(
    made: Stage, options: argparse.Namespace, draw: random.Random
) -> tuple[dict[str, Any], list[str]]:
    """Return the counts, and what is wrong."""
    errors, ended = Errors(), Counter[str]()
    kills = Kills(made.fleet, made.postgres, lambda: ended["turns"], draw)

    def client(number: int, kind: str, *, managed: bool) -> TurnClient:
        scope, secret = made.keys[number % len(made.keys)]
        return TurnClient(
            f"{kind}-{number}",
            kills.url,
            made.up.model,
            scope,
            errors,
            secret=secret,
            managed=managed,
            stream=number % 3 == 0,
        )

    clients = [client(n, "talk", managed=n // 2 % 2 == 0) for n in range(options.conversations)]
    contested = [client(n, "contested", managed=True) for n in range(options.contested)]
    limits = httpx.Limits(max_connections=None, keepalive_expiry=1)
    async with httpx.AsyncClient(timeout=REQUEST_SECONDS, limits=limits) as http:
        before = await _at_once(contested, http)
        async with asyncio.TaskGroup() as group:
            group.create_task(kills.run(options.turns))
            group.create_task(_converse(clients, options, draw, http, ended))
        drained = await made.drained()
        after = await _at_once(contested, http)
        await made.drained()
    left = await made.stop_frontends()
    problems = [f"{name} is left in a spool" for name in left]
    problems += [f"told {error}" for error in errors.wrong]
    problems += [f"of turns at once: {dict(one)}" for one in (*before, *after) if one != _WANTED]
    store_settings = ConversationSettings(enabled=True, statement_seconds=60)
    async with Database(made.state) as database:
        await database.wait_available(REQUEST_SECONDS)
        store = ConversationStore(database, store_settings)
        others = 0
        for one in clients:
            history = await history_of(store, one)
            problems += differences(one, history)
            others += len(history) - len(one.seen)
        for one in contested:
            if len(history := await history_of(store, one)) != 2:
                problems.append(f"{one.name}: {len(history)} turns, of two times one")
        problems += await half_turns(database)
        responses = (await database.fetch("select count(*) as count from responses"))[0]["count"]
    more, sums = usage_differences(clients, await rows_of(made.state), PRICE)
    counts = {
        "turns": sum(len(one.seen) for one in clients),
        "attempts": sum(len(one.requests) for one in clients),
        "responses stored": responses,
        "turns whose client did not see the end": others,
        "connections cut": errors.cut,
        "told to retry": dict(errors.retried),
        "nano-dollars told": sums["told"],
        "nano-dollars recorded": sums["recorded"],
        "stored after seconds": round(drained, 1),
    }
    table = Table(("fault", "<34"), ("times", "5"), ("turns meanwhile", "15"))
    for kind, times in kills.done.items():
        table.row(kind, times, kills.meanwhile[kind])
    for name, value in counts.items():
        print(f"{name}: {value}")
    return {"faults": dict(kills.done), **counts}, problems + more


_WANTED = Counter({200: 1, 409: SIMULTANEOUS - 1})


async def _at_once(clients: list[TurnClient], http: httpx.AsyncClient) -> list[Counter[int]]:
    """Send turns at once to each conversation; return how often each status came."""
    found = []
    for one in clients:
        await one.begin(http)
        found.append(Counter(await one.one_of(http, SIMULTANEOUS)))
    return found


async def _converse(
    clients: list[TurnClient],
    options: argparse.Namespace,
    draw: random.Random,
    http: httpx.AsyncClient,
    ended: Counter[str],
) -> None:
    """Let each client have its turns, some at once, at the pace of the options."""
    each = max(1, options.turns // len(clients))
    loop = asyncio.get_running_loop()
    slots, began = asyncio.Semaphore(AT_ONCE), loop.time()
    begun = iter(range(each * len(clients)))

    async def talk(one: TurnClient) -> None:
        for _ in range(each):
            await asyncio.sleep(draw.uniform(0, 0.2))
            async with slots:
                await asyncio.sleep(began + next(begun) / options.rate - loop.time())
                await one.begin(http)
                await one.turn(http)
                ended["turns"] += 1

    async with asyncio.TaskGroup() as group:
        for one in clients:
            group.create_task(talk(one))


def arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of this benchmark."""
    parser.add_argument("--conversations", type=int, default=200, help="default: 200")
    parser.add_argument("--turns", type=int, default=2000, help="of all of them; default: 2000")
    parser.add_argument("--contested", type=int, default=20, help="with turns at once; default: 20")
    parser.add_argument("--rate", type=float, default=20.0, help="turns per second; default: 20")
    parser.add_argument("--seed", type=int, default=1, help="seed of all random choices")


if __name__ == "__main__":
    cli.main(
        measure,
        __doc__,
        arguments,
        smallest="--conversations 12 --turns 60 --contested 2 --rate 6",
    )
