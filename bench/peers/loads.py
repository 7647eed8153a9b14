"""The loads, and a system's results for one of them."""

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from bench.harness.machine import cpu_seconds
from bench.peers.serving import Serving
from bench.serving.load.generator import run
from bench.serving.load.streams import Load, report

PROMPT_TOKENS = 124
"""Not whole blocks of 16: a completely cached prompt takes the sim engine a decode step."""


@dataclass(frozen=True)
class Shape:
    """The size of a load."""

    output_tokens: int
    clients: int
    requests: int
    """Measured requests; a multiple of the clients if they start together."""
    together: bool = False
    """Whether every client starts a request at the same moment, and again once the last has its
    response."""


LOADS: Mapping[str, Shape] = {
    "8 to 64": Shape(8, 64, 4000),
    "256 to 64": Shape(256, 64, 256),
    "16 to 1": Shape(16, 1, 150),
    "burst of 64": Shape(8, 64, 20 * 64, together=True),
}
PACED = Shape(128, 64, 192)
"""Enough requests to measure the pace."""
_WARM = Shape(16, 64, 640)


def load_of(serving: Serving, shape: Shape, prompts: list[str], *, over_grpc: bool) -> Load:
    """Return the load of a shape on a system."""
    return Load(
        model=serving.model,
        prompts=prompts,
        http=serving.http,
        grpc=serving.grpc if over_grpc else "",
        output_tokens=shape.output_tokens,
        concurrency=shape.clients,
        requests=shape.requests,
        together=shape.together,
        quick_ack=True,
    )


async def warm_up(serving: Serving, prompts: list[str], *, over_grpc: bool) -> None:
    """Send requests that are not measured."""
    load = load_of(serving, _WARM, prompts, over_grpc=over_grpc)
    await asyncio.to_thread(run, load)


async def measure(serving: Serving, load: Load) -> dict[str, Any]:
    """Run a load; return the clients' results, and the CPU that the path used for it."""
    before = {name: cpu_seconds(pid) for name, pid in serving.path.items()}
    seen = await asyncio.to_thread(run, load)
    used = {name: cpu_seconds(pid) - before[name] for name, pid in serving.path.items()}
    done = max(1, len(seen.first))
    return {
        **report(load, seen),
        "ms_per_request": sum(used.values()) / done * 1e3,
        "us_per_token": sum(used.values()) / done / load.output_tokens * 1e6,
        "parts_ms_per_request": {name: seconds / done * 1e3 for name, seconds in used.items()},
    }


def scaled(shape: Shape, share: float) -> Shape:
    """Return a shape with a share of its requests: at least three per client, or ten."""
    rounds = max(3 if shape.clients > 1 else 10, round(shape.requests * share / shape.clients))
    return replace(shape, requests=rounds * shape.clients)
