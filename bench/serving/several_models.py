"""Two models on one cluster compared with each alone: `python -m bench.serving.several_models`.

Prints how long `baton up` takes and the resident memory of its processes, for one model and for
two, in rounds. Then mixed requests at both models of one cluster: each must have the tokens that
its model has alone, and find no KV of the other, which had the same prompt just before; the same
through an alias that moves from one model to the other. Models are random, in float64, with one
combined worker each.
"""

import argparse
import asyncio
import os
import random
import sys
import tempfile
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from statistics import median
from typing import Any

from baton.client import AsyncClient
from baton.engine.testing.random_checkpoint import write_random_checkpoint
from bench.harness import cli
from bench.harness.child import process
from bench.harness.cluster import Cluster, cluster
from bench.harness.machine import rss_bytes
from bench.harness.table import Table

NAMES = ("first", "second")
ALIAS = "moved"
AT_ONCE = 8
POINT_SECONDS = 30.0
PROMPT_TOKENS = 80
"""Five blocks of 16 tokens."""
OUTPUT_TOKENS = 16
SMALL = {"BATON_ENGINE_KV_BYTES": "64MiB", "BATON_STORE_ARENA_BYTES": "64MiB"}
OPTIONS = ("--prefill", "0", "--decode", "0", "--combined", "1", "--dtype", "float64")
Outcome = tuple[tuple[int, ...], int]
"""Tokens of an answer, and cached tokens of its prompt."""


@asynccontextmanager
async def serving(models: Sequence[Path]) -> AsyncIterator[Cluster]:
    """Run a cluster of these models until the exit."""
    given = [word for path in models for word in ("--model", str(path))]
    async with cluster(*OPTIONS, *given, settings=SMALL) as one:
        yield one


async def ask(address: str, asked: Sequence[tuple[str, list[int]]]) -> list[Outcome]:
    """Return the outcome of each (model, prompt), in order."""
    slots = asyncio.Semaphore(AT_ONCE)

    async with AsyncClient(address, timeout=120.0) as client:

        async def one(model: str, prompt: list[int]) -> Outcome:
            async with (
                slots,
                client.generate(
                    prompt,
                    model=model,
                    max_tokens=OUTPUT_TOKENS,
                    temperature=0.0,
                    ignore_eos=True,
                ) as stream,
            ):
                answer = await stream.answer()
            return tuple(answer.token_ids), answer.usage.cached_tokens

        return list(await asyncio.gather(*(one(*each) for each in asked)))


async def point(one: Cluster, model: str) -> None:
    """Have the alias mean a model, and wait until the frontend knows."""
    command = (sys.executable, "-m", "baton", "aliases", "set", ALIAS, model)
    async with process(command, {"XDG_RUNTIME_DIR": one.runtime}) as child:
        if code := await child.wait():
            raise SystemExit(f"baton aliases set ended with exit code {code}")
    async with AsyncClient(one.grpc) as client, asyncio.timeout(POINT_SECONDS):
        while ALIAS not in {n for m in await client.models() if m.name == model for n in m.aliases}:
            await asyncio.sleep(0.05)


def resident_mib(one: Cluster) -> dict[str, float]:
    """Return the resident memory of each process."""
    return {name: rss_bytes(pid) / 2**20 for name, pid in sorted(one.pids().items())}


async def measure(options: argparse.Namespace) -> dict[str, Any]:
    """Measure all of it; exit with an error if a token or a cached token is wrong."""
    rng = random.Random(options.seed)
    prompts = [
        [rng.randrange(3, 500) for _ in range(PROMPT_TOKENS)] for _ in range(options.requests // 2)
    ]
    with tempfile.TemporaryDirectory(prefix="baton-models-") as scratch:
        paths = [
            write_random_checkpoint(Path(scratch) / name, seed=seed)
            for seed, name in enumerate(NAMES)
        ]
        table = Table(("models", "<14"), ("processes", "9d"), ("up s", "6.1f"), ("RSS MiB", "8.0f"))
        seconds: dict[str, list[float]] = {}
        memory: dict[str, float] = {}
        alone: dict[str, list[Outcome]] = {}
        for number in range(options.rounds):
            for models in ([paths[0]], [paths[1]], paths):
                label = " + ".join(path.name for path in models)
                async with serving(models) as one:
                    rss = resident_mib(one)
                    table.row(label, len(rss), one.start_seconds, sum(rss.values()))
                    seconds.setdefault(label, []).append(one.start_seconds)
                    memory[label] = sum(rss.values())
                    if len(models) == 1 and number == 0:
                        asked = [(label, prompt) for prompt in prompts]
                        alone[label] = await ask(one.grpc, asked)
                    elif number == 0:
                        wrong = await compare(one, prompts, alone, rng)
        both = " + ".join(NAMES)
        ratio = median(seconds[both]) / median(seconds[NAMES[0]] + seconds[NAMES[1]])
        print(f"up with two models takes {ratio:.2f} times as long as with one")
        return {"seconds": seconds, "rss_mib": memory, "ratio": ratio, **wrong}


async def compare(
    one: Cluster,
    prompts: Sequence[list[int]],
    alone: dict[str, list[Outcome]],
    rng: random.Random,
) -> dict[str, int]:
    """Ask both models and an alias; return what was counted."""
    asked = [(name, number) for number in range(len(prompts)) for name in NAMES]
    rng.shuffle(asked)
    mixed = await ask(one.grpc, [(name, prompts[number]) for name, number in asked])
    pairs = list(zip(asked, mixed, strict=True))
    differ = sum(got[0] != alone[name][number][0] for (name, number), got in pairs)
    foreign = sum(got[1] > 0 for _, got in pairs)
    print(
        f"{len(mixed)} mixed requests: {differ} with other tokens than alone, {foreign} with "
        "cached tokens of the other model"
    )
    fresh = [[rng.randrange(3, 500) for _ in range(PROMPT_TOKENS)] for _ in range(8)]
    moved: list[list[Outcome]] = []
    for name in NAMES:
        await point(one, name)
        moved.append(await ask(one.grpc, [(ALIAS, prompt) for prompt in fresh]))
    again = await ask(one.grpc, [(NAMES[0], prompt) for prompt in fresh])
    found = sum(got[1] > 0 for part in moved for got in part)
    same = sum(got[0] == first[0] for got, first in zip(again, moved[0], strict=True))
    own = sum(got[1] > 0 for got in again)
    print(
        f"alias moved: {found} of {2 * len(fresh)} with cached tokens; the first model again, by "
        f"its name: {own} of {len(fresh)} with its own, {same} with the same tokens"
    )
    if differ or foreign or found or same < len(fresh) or own < len(fresh):
        raise SystemExit("a model found KV of another, lost its own, or has other tokens")
    return {"mixed": len(mixed), "differ": differ, "foreign": foreign, "alias_found": found}


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--requests", type=int, default=400, help="mixed requests; default: 400")
    parser.add_argument("--seed", type=int, default=1)


if __name__ == "__main__":
    os.environ.setdefault("OMP_WAIT_POLICY", "passive")
    cli.main(measure, __doc__, arguments, 3, smallest="--rounds 1 --requests 8")
