"""Running streams while long prompts arrive: the load and its figures.

Only the standard library, so that a peer's environment runs the same load.
"""

import asyncio
import math
import random
import time
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import aclosing
from dataclasses import asdict, dataclass, field
from typing import Any

from bench.harness.stats import percentile

Generate = Callable[[list[int], int], AsyncGenerator[int, None]]
"""(prompt, output tokens) → number of tokens received, event by event."""


@dataclass(frozen=True)
class MixedLoad:
    """The requests within a window of `seconds` that starts after `warm_seconds`."""

    prompts_per_second: float
    """Long prompts, at random times whether or not earlier ones have ended."""
    seconds: float = 30.0
    streams: int = 8
    """Clients that each send one request after the other."""
    stream_prompt_tokens: int = 128
    stream_output_tokens: int = 128
    """Mean output tokens of streams: random, from half to one and a half times as many."""
    prompt_tokens: int = 3000
    prompt_output_tokens: int = 8
    vocab_tokens: int = 8192
    warm_seconds: float = 4.0
    drain_seconds: float = 10.0
    """How long prompts of the window may continue after it; the streams run until then."""
    seed: int = 1

    @property
    def stream_outputs(self) -> tuple[int, int]:
        """The shortest and the longest output of a stream, in tokens."""
        return self.stream_output_tokens // 2, self.stream_output_tokens * 3 // 2

    @property
    def prompts(self) -> int:
        """Number of prompts: fixed, with random times like those of a Poisson process."""
        return round(self.prompts_per_second * self.seconds)


@dataclass(frozen=True)
class Targets:
    """Targets of a good request; seconds."""

    first_token: float
    inter_token: float
    """For 99 of 100 of a request's intervals."""


@dataclass
class Request:
    """One request; times count from the start of the window."""

    long: bool
    asked: float
    times: list[float] = field(default_factory=list)
    """Times of the tokens; an event with several tokens counts for each."""
    ended: bool = False
    error: str = ""

    @property
    def first_token(self) -> float:
        """Seconds; infinite if there was no first token."""
        return self.times[0] - self.asked if self.times else math.inf

    def gaps(self, until: float = math.inf) -> list[float]:
        """Intervals between tokens that came within the window."""
        return [
            b - a for a, b in zip(self.times, self.times[1:], strict=False) if a >= 0 and b <= until
        ]

    def good(self, targets: Targets) -> bool:
        gaps = sorted(self.gaps())
        late = sum(gap > targets.inter_token for gap in gaps)
        in_time = self.first_token <= targets.first_token
        return self.ended and in_time and late <= len(gaps) // 100


async def run(generate: Generate, load: MixedLoad) -> list[Request]:
    """Run the load until every started request has ended."""
    requests: list[Request] = []
    draw = random.Random(load.seed)
    begin = time.perf_counter() + load.warm_seconds

    def tokens(count: int) -> list[int]:
        return [draw.randrange(256, load.vocab_tokens) for _ in range(count)]

    async def ask(prompt: list[int], output: int, *, long: bool) -> None:
        request = Request(long, time.perf_counter() - begin)
        requests.append(request)
        try:
            async with aclosing(generate(prompt, output)) as events:
                async for count in events:
                    request.times += [time.perf_counter() - begin] * count
            request.ended = len(request.times) == output
        except Exception as error:  # noqa: BLE001 - what fails is a figure here
            request.error = f"{type(error).__name__}: {error}"[:200]
            await asyncio.sleep(0.5)

    async def stream(number: int) -> None:
        await asyncio.sleep(number * 0.1)  # clients do not start all at once
        while True:
            output = draw.randint(*load.stream_outputs)
            await ask(tokens(load.stream_prompt_tokens), output, long=False)

    async def arrive() -> None:
        async with asyncio.TaskGroup() as prompts:
            for at in sorted(draw_arrival.random() for _ in range(load.prompts)):
                await asyncio.sleep(begin + at * load.seconds - time.perf_counter())
                prompt = tokens(load.prompt_tokens)
                prompts.create_task(ask(prompt, load.prompt_output_tokens, long=True))

    # A separate source, so that every system sees the same arrivals.
    draw_arrival = random.Random(load.seed + 1)
    streams = [asyncio.create_task(stream(number)) for number in range(load.streams)]
    arrivals = asyncio.create_task(arrive())
    try:
        await asyncio.sleep(begin + load.seconds - time.perf_counter())
        await asyncio.wait([arrivals], timeout=load.drain_seconds)
    finally:
        tasks = [*streams, arrivals]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
    return requests


def figures(requests: Sequence[Request], load: MixedLoad, targets: Targets) -> dict[str, Any]:
    """Return the window's results; seconds, infinite if a prompt was never answered."""
    long = [request for request in requests if request.long]
    streams = [request for request in requests if not request.long]
    done = [r for r in streams if (r.ended and 0 <= r.times[-1] <= load.seconds) or r.error]
    gaps = [gap for request in streams for gap in request.gaps(load.seconds)]
    firsts = [request.first_token for request in long]
    good_long = sum(request.good(targets) for request in long)
    good_streams = sum(request.good(targets) for request in done)
    return {
        "prompts_per_second": load.prompts_per_second,
        "stream_tokens_per_second": len(gaps) / load.seconds,
        "inter_token_p50": percentile(gaps, 50),
        "inter_token_p99": percentile(gaps, 99),
        "inter_token_max": max(gaps, default=math.nan),
        "prompts": len(long),
        "first_token_p50": percentile(firsts, 50),
        "first_token_p99": percentile(firsts, 99),
        "prompts_good": good_long,
        "streams_done": len(done),
        "streams_good": good_streams,
        "goodput": (good_long + good_streams) / load.seconds,
        "errors": sorted({r.error for r in requests if r.error}),
    }


def to_json(requests: Sequence[Request]) -> list[dict[str, Any]]:
    return [asdict(request) for request in requests]


def from_json(rows: Sequence[dict[str, Any]]) -> list[Request]:
    return [Request(**row) for row in rows]
