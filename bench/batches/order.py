"""Prompt tokens that the lines of a batch compute: `python -m bench.batches.order`.

Lines have one of 40 prefixes of 1,024 tokens each, in random order, and KV has room for a tenth of
the prefixes, in the sim engine and in the store alike. Such lines run as requests in the order of
the file, a few at once and 64 at once, and as a batch, which runs those one after the other that
begin alike. Of 64 that wait, the engine takes those first of whose prompts it has most. Prompts are
new to the cluster each time. "least": what any order has to compute, with each prefix once.
"""

import argparse
import asyncio
import json
import random
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

import httpx

from bench.harness import cli
from bench.harness.cluster import cluster
from bench.harness.table import Table

SHARED, OWN, OUTPUT = 1024, 96, 8
"""Tokens: of a prefix, of a line's own, and of its output."""
TOKEN_KV_BYTES = 16
"""Of the sim engine."""
PLACES = 3
"""Sequences that the engine runs at once: so many prefixes fit."""
AT_ONCE = 64
SECONDS = 600.0
CHAT = "/v1/chat/completions"
Way = Callable[[httpx.AsyncClient, list[dict[str, Any]]], Awaitable[tuple[int, int]]]
"""Runs bodies; returns prompt tokens and those found."""


def lines(prefixes: int, each: int, model: str, draw: random.Random) -> list[dict[str, Any]]:
    """Return bodies of requests in random order."""
    found = []
    for _ in range(prefixes):
        shared = words(SHARED, draw)
        for _ in range(each):
            messages = [
                {"role": "system", "content": shared},
                {"role": "user", "content": words(OWN, draw)},
            ]
            body = {"model": model, "messages": messages, "max_tokens": OUTPUT, "ignore_eos": True}
            found.append(body)
    draw.shuffle(found)
    return found


def words(tokens: int, draw: random.Random) -> str:
    """Return a text of so many tokens of the sim engine's model."""
    return "".join(draw.choice("0123456789") for _ in range(tokens))


async def as_requests(
    client: httpx.AsyncClient, bodies: list[dict[str, Any]], at_once: int
) -> tuple[int, int]:
    """Run bodies as requests in their order; return prompt tokens and those found."""
    waiting, prompt, cached = iter(bodies), 0, 0

    async def some() -> None:
        nonlocal prompt, cached
        for body in waiting:
            response = await client.post(CHAT, json=body)
            response.raise_for_status()
            usage = response.json()["usage"]
            prompt += usage["prompt_tokens"]
            cached += usage["prompt_tokens_details"]["cached_tokens"]

    async with asyncio.TaskGroup() as tasks:
        for _ in range(at_once):
            tasks.create_task(some())
    return prompt, cached


async def as_batch(client: httpx.AsyncClient, bodies: list[dict[str, Any]]) -> tuple[int, int]:
    """Run bodies as a batch; return prompt tokens and those found."""
    data = b"".join(
        json.dumps({"custom_id": str(at), "method": "POST", "url": CHAT, "body": body}).encode()
        + b"\n"
        for at, body in enumerate(bodies)
    )
    form = {"purpose": "batch"}
    file = await client.post("/v1/files", data=form, files={"file": ("lines.jsonl", data)})
    file.raise_for_status()
    asked = {"input_file_id": file.json()["id"], "endpoint": CHAT, "completion_window": "24h"}
    batch = (await client.post("/v1/batches", json=asked)).json()
    while batch["status"] not in ("completed", "failed", "expired", "cancelled"):
        await asyncio.sleep(0.2)
        batch = (await client.get(f"/v1/batches/{batch['id']}")).json()
    if batch["request_counts"]["completed"] != len(bodies):
        raise SystemExit(f"the batch did not complete: {batch}")
    usage = batch["usage"]
    return usage["input_tokens"], usage["input_tokens_details"]["cached_tokens"]


async def measure(options: argparse.Namespace) -> list[dict[str, Any]]:
    room = options.prefixes * SHARED * TOKEN_KV_BYTES // 10
    settings = {
        "BATON_ENGINE_KV_BYTES": str(max(room, 64 * 1024)),
        "BATON_ENGINE_MAX_RUNNING": str(PLACES),
        "BATON_ENGINE_SIM_TIME_SCALE": "0.2",
        "BATON_STORE_TENANT_BYTES": f"default={room}",
    }
    arguments = ("--engine", "sim", "--batches")
    pools = ("--prefill", "0", "--decode", "0", "--combined", "1")
    results: list[dict[str, Any]] = []
    table = Table(
        ("lines run", "<30"),
        ("prompt tokens", "9d"),
        ("found", "9d"),
        ("computed", "9d"),
        ("of the first", "6.3f"),
    )
    ways: dict[str, Way] = {
        f"as they come, {PLACES} at once": partial(as_requests, at_once=PLACES),
        f"as they come, {AT_ONCE} at once": partial(as_requests, at_once=AT_ONCE),
        "as a batch": as_batch,
    }
    async with (
        cluster(*arguments, *pools, settings=settings) as up,
        httpx.AsyncClient(base_url=f"http://{up.http}", timeout=SECONDS) as client,
    ):
        for round_ in range(options.rounds):
            first = 0
            for name, run in ways.items():
                draw = random.Random(f"{round_} {name}")
                bodies = lines(options.prefixes, options.each, up.model, draw)
                prompt, cached = await run(client, bodies)
                first = first or prompt - cached
                table.row(name, prompt, cached, prompt - cached, (prompt - cached) / first)
                results.append({"round": round_, "run": name, "prompt": prompt, "cached": cached})
            most = options.prefixes * (options.each - 1) * SHARED
            table.row("least", prompt, most, prompt - most, (prompt - most) / first)
    return results


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--prefixes", type=int, default=40)
    parser.add_argument("--each", type=int, default=25, help="lines of each prefix")


if __name__ == "__main__":
    cli.main(measure, __doc__, arguments, 1, smallest="--rounds 1 --prefixes 40 --each 2")
