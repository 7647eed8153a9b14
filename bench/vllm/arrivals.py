"""Requests of mixed sizes that arrive at random while others decode.

Only the standard library, so that every side runs the same load.
"""

import asyncio
import random
import time
from collections.abc import Sequence
from contextlib import aclosing
from dataclasses import dataclass

from bench.harness.stats import percentile
from bench.serving.load.mixed import Generate, Request


@dataclass(frozen=True)
class Arrivals:
    """A Poisson process of prompts whose lengths are uniform in the logarithm."""

    requests: int = 16
    per_second: float = 2.0
    shortest: int = 64
    """Least tokens of a prompt."""
    longest: int = 1500
    output_tokens: int = 64
    vocab_tokens: int = 8192
    round: int = 0
    """Another round has other prompts, with the same lengths and times, so that nothing is
    cached."""
    seed: int = 1


async def arrive(generate: Generate, load: Arrivals) -> list[Request]:
    """Send all requests; return each once all have ended.

    Raises:
        ExceptionGroup: a request failed.
    """
    draw = random.Random(load.seed)
    words = random.Random(f"{load.seed} {load.round}")
    began = time.perf_counter()

    async def ask(at: float, prompt: list[int]) -> Request:
        await asyncio.sleep(began + at - time.perf_counter())
        request = Request(long=True, asked=time.perf_counter() - began)
        async with aclosing(generate(prompt, load.output_tokens)) as counts:
            async for count in counts:
                request.times += [time.perf_counter() - began] * count
        request.ended = len(request.times) == load.output_tokens
        return request

    at, tasks = 0.0, []
    async with asyncio.TaskGroup() as group:
        for _ in range(load.requests):
            at += draw.expovariate(load.per_second)
            length = round(load.shortest * (load.longest / load.shortest) ** draw.random())
            prompt = [words.randrange(256, load.vocab_tokens) for _ in range(length)]
            tasks.append(group.create_task(ask(at, prompt)))
    return [task.result() for task in tasks]


def figures(requests: Sequence[Request]) -> dict[str, float]:
    """Return percentiles in seconds, and the number of incomplete requests."""
    firsts = [request.first_token for request in requests]
    gaps = [gap for request in requests for gap in request.gaps()]
    return {
        "first_p50": percentile(firsts, 50),
        "first_p95": percentile(firsts, 95),
        "gap_p50": percentile(gaps, 50),
        "gap_p95": percentile(gaps, 95),
        "cut": sum(not request.ended for request in requests),
    }
