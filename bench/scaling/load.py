"""Requests at a rate, whether or not earlier ones have ended, and what became of them."""

import asyncio
import random
import time
from dataclasses import dataclass

from baton.client import AsyncClient, BatonClientError, Delta
from bench.harness.stats import percentile

PROMPT_TOKENS = 400
OUTPUT_TOKENS = 4
TIMEOUT_SECONDS = 300.0
_VOCABULARY = 4_000


@dataclass
class SentRequest:
    """One request."""

    at: float
    ttft: float | None = None
    """Seconds until the first token; None: it failed."""
    error: str = ""


class OpenLoad:
    """Sends new prompts at random times.

    Args:
        client: of the frontend.
        model: to request.
        draw: makes the random choices.
    """

    def __init__(self, client: AsyncClient, model: str, draw: random.Random) -> None:
        self._client = client
        self._model = model
        self._draw = draw
        self._tasks: set[asyncio.Task[None]] = set()
        self.sent: list[SentRequest] = []

    async def run(self, per_second: float, seconds: float) -> None:
        """Send for some time; nothing if the rate is 0."""
        until = time.monotonic() + seconds
        while per_second:
            pause = self._draw.expovariate(per_second)
            if time.monotonic() + pause > until:
                break
            await asyncio.sleep(pause)
            self.send()
        await asyncio.sleep(max(0.0, until - time.monotonic()))

    def send(self) -> SentRequest:
        """Send one request in the background."""
        sent = SentRequest(time.monotonic())
        self.sent.append(sent)
        task = asyncio.create_task(self._ask(sent))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return sent

    async def ended(self) -> None:
        """Wait until all requests have ended."""
        while self._tasks:
            await asyncio.wait(self._tasks)

    async def _ask(self, sent: SentRequest) -> None:
        prompt = [self._draw.randrange(3, _VOCABULARY) for _ in range(PROMPT_TOKENS)]
        try:
            async with self._client.generate(
                prompt,
                model=self._model,
                max_tokens=OUTPUT_TOKENS,
                ignore_eos=True,
                timeout=TIMEOUT_SECONDS,
            ) as stream:
                async for event in stream:
                    if isinstance(event, Delta) and sent.ttft is None:
                        sent.ttft = time.monotonic() - sent.at
        except BatonClientError as error:
            sent.ttft, sent.error = None, f"{type(error).__name__}: {error}"


def recovered_after(sent: list[SentRequest], target: float, window: float) -> float:
    """Return the seconds after the first request until p90 of TTFT stays within a target.

    Args:
        sent: requests in the order in which they were sent; failed ones are late.
        target: seconds.
        window: seconds of requests of which the p90 is taken.
    """
    recovered = 0.0
    for end in sent:
        within = [one for one in sent if end.at - window < one.at <= end.at]
        times = [one.ttft if one.ttft is not None else TIMEOUT_SECONDS for one in within]
        if percentile(times, 90) > target:
            recovered = end.at - sent[0].at
    return recovered
