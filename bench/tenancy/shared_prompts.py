"""Whether prompts show in other tenants' times: `python -m bench.tenancy.shared_prompts`.

Tenant one sends a new prompt. Then, in a random order, tenant two sends the same prompt, tenant two
sends a new one, and tenant one sends its own again. Prints cached tokens, times to the first token,
and the AUC compared with the new prompt: how often the time is shorter. 0.5: the two are
indistinguishable. Tenant one's own prompt is the positive control: its KV is found, and that shows.
"""

import argparse
import asyncio
import json
import os
import random
import time
from typing import Any

import httpx

from baton.tenancy.records.tenants import Tier
from bench.harness import cli
from bench.harness.stats import auc, percentile
from bench.harness.table import Table
from bench.tenancy.scene import Scene, scene

COUNTS = {"kvstore": 1, "router": 1, "prefill": 1, "decode": 1, "frontend": 1}
PROMPT_TOKENS = 160
SAME, NEW, OWN = "other tenant's", "nobody's", "its own"
STORED_SECONDS = 0.05
"""Time from a response until its KV can be found, and workers are idle."""
MAX_WAIT_SECONDS = 30.0


class Asker:
    """Requests one token with a tenant's key."""

    def __init__(self, up: Scene, secret: str) -> None:
        self._model = up.model
        headers = {"authorization": f"Bearer {secret}"}
        self._client = httpx.AsyncClient(
            base_url=up.http[0], headers=headers, timeout=MAX_WAIT_SECONDS
        )

    async def ask(self, prompt: list[int]) -> tuple[float, int]:
        """Return the seconds to the first token, and the number of cached tokens."""
        body = {
            "model": self._model,
            "prompt": prompt,
            "max_tokens": 1,
            "ignore_eos": True,
            "stream": True,
            "stream_options": {"include_usage": True},
        }
        first, cached = 0.0, -1
        began = time.perf_counter()
        async with self._client.stream("POST", "/v1/completions", json=body) as answer:
            answer.raise_for_status()
            async for line in answer.aiter_lines():
                if line.startswith("data: {"):
                    first = first or time.perf_counter() - began
                    usage = json.loads(line.removeprefix("data: ")).get("usage")
                    if usage:
                        cached = usage["prompt_tokens_details"]["cached_tokens"]
        if cached < 0:
            raise RuntimeError("an answer has no usage")
        return first, cached

    async def close(self) -> None:
        await self._client.aclose()


def new_prompt() -> list[int]:
    return [random.randrange(3, 250) for _ in range(PROMPT_TOKENS)]


async def pairs(one: Asker, two: Asker, count: int) -> dict[str, tuple[list[float], int]]:
    """Return times to first token and the sum of cached tokens, by the prompt's tenant."""
    seconds: dict[str, list[float]] = {SAME: [], NEW: [], OWN: []}
    cached = dict.fromkeys(seconds, 0)
    for _ in range(count):
        prompt = new_prompt()
        await one.ask(prompt)
        await asyncio.sleep(STORED_SECONDS)
        asks = [(SAME, two, prompt), (NEW, two, new_prompt()), (OWN, one, prompt)]
        random.shuffle(asks)
        for name, asker, asked in asks:
            first, found = await asker.ask(asked)
            seconds[name].append(first)
            cached[name] += found
    return {name: (taken, cached[name]) for name, taken in seconds.items()}


async def measure(options: argparse.Namespace) -> list[dict[str, Any]]:
    print(f"load average {os.getloadavg()[0]:.1f}, engine {options.engine}")
    async with scene(COUNTS, engine=options.engine, dtype="float32") as up:
        askers = []
        for name in ("one", "two"):
            await up.admin.create_tenant(name, Tier.PRO)
            _, secret = await up.admin.create_key(await up.admin.find_project(name, "default"))
            askers.append(Asker(up, secret))
        await asyncio.sleep(1)  # until the frontend knows the keys
        one, two = askers
        await pairs(one, two, min(10, options.pairs))  # warm-up
        try:
            found = await pairs(one, two, options.pairs)
        finally:
            for asker in askers:
                await asker.close()
    return show(found)


def show(found: dict[str, tuple[list[float], int]]) -> list[dict[str, Any]]:
    table = Table(
        ("prompt", "<14"),
        ("asked", "6"),
        ("cached tokens", "13.1f"),
        ("ttft ms p50", "11.2f"),
        ("p99", "8.2f"),
        ("AUC to nobody's", ">15"),
    )
    new = found[NEW][0]
    rows = []
    for name, (seconds, cached) in found.items():
        p50, p99 = (percentile(seconds, percent) * 1e3 for percent in (50, 99))
        against = "-" if name == NEW else f"{auc(new, seconds):.3f}"
        table.row(name, len(seconds), cached / len(seconds), p50, p99, against)
        rows.append({"prompt": name, "cached_tokens": cached, "p50_ms": p50, "auc": against})
    return rows


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--pairs", type=int, default=500, help="default: 500")
    parser.add_argument("--engine", choices=("sim", "torch"), default="sim")


if __name__ == "__main__":
    cli.main(measure, __doc__, arguments, smallest="--pairs 4")
