"""Clients that send requests whether or not earlier ones have ended, in their own process.

Reads lines of JSON, each an `Offer`, and responds to each with a line: the results of its requests.
"""

import asyncio
import gc
import json
import math
import random
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import uvloop

from baton.errors import BatonError, Reason
from baton.rpc.channel.call import ClientCall
from baton.rpc.channel.channel import Channel
from baton.rpc.transport.inbox import END
from baton.v1 import inference_pb2
from baton.v1.inference_pb2_grpc import InferenceServiceStub

SIGMA = 0.8
"""Standard deviation of the logarithm of prompt lengths: 1 of 100 is 4.7 times as long as the
mean."""
MIN_TOKENS, MAX_TOKENS = 16, 3_000
VOCABULARY = 4_000
LEAVE = "left"
"""Result of a request that its client cancelled."""


@dataclass(frozen=True)
class Source:
    """A client and its rate."""

    name: str
    secret: str
    """The secret of its API key."""
    per_second: float
    target: float = 0.0
    """Target of the time to first token in seconds; 0: none."""
    waited_for: bool = True
    """Whether its requests may continue after the offer, until `drain_seconds` have passed."""


@dataclass(frozen=True)
class Offer:
    """Requests of some sources over `seconds`, at random times."""

    address: str
    """`host:port` of the frontend's gRPC API."""
    model: str
    sources: Sequence[Source]
    seconds: float
    drain_seconds: float
    mean_tokens: float
    """Mean tokens of prompts."""
    output_tokens: int
    seed: int = 1

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> "Offer":
        return cls(**{**value, "sources": [Source(**one) for one in value["sources"]]})

    def arrivals(self) -> "list[tuple[float, Source, int]]":
        """Return (seconds, source, prompt tokens) in order; each source's are the same as alone."""
        found = []
        for source in self.sources:
            draw = random.Random(f"{self.seed} {source.name}")
            at = draw.expovariate(source.per_second)
            while at < self.seconds:
                found.append((at, source, self._tokens(draw)))
                at += draw.expovariate(source.per_second)
        return sorted(found, key=lambda one: one[0])

    def _tokens(self, draw: random.Random) -> int:
        drawn = draw.lognormvariate(math.log(self.mean_tokens) - SIGMA**2 / 2, SIGMA)
        return round(min(MAX_TOKENS, max(MIN_TOKENS, drawn)))


@dataclass
class Outcome:
    """One request; times in seconds since the offer began."""

    source: str
    prompt_tokens: int
    due: float
    """When it should have been sent."""
    sent: float
    first: float | None = None
    """When its first token came."""
    ended: float = 0.0
    reason: str = ""
    """The reason of its error; empty: it succeeded."""

    @property
    def refused(self) -> bool:
        return self.reason == Reason.OVERLOADED.name

    @property
    def ttft(self) -> float:
        """Seconds; infinite if there was no first token."""
        return math.inf if self.first is None else self.first - self.sent


class Clients:
    """The clients of one offer, on one connection per source."""

    def __init__(self, offer: Offer) -> None:
        self._offer = offer
        self._channels = {source.name: Channel(offer.address) for source in offer.sources}
        self._calls: dict[asyncio.Task[None], tuple[Source, ClientCall]] = {}
        self._began = 0.0

    async def run(self) -> list[Outcome]:
        """Send the requests; return their results, in the order of their arrivals."""
        offer = self._offer
        draw = np.random.default_rng()  # not by the seed: no offer finds KV of an earlier one
        # All are created before the first is sent, as the clients share cores with the cluster.
        asked = [
            (due, source, tokens, self._request(source, tokens, draw))
            for due, source, tokens in offer.arrivals()
        ]
        outcomes = []
        gc.freeze()
        self._began = time.perf_counter()
        for due, source, tokens, request in asked:
            if (pause := due - self._now()) > 0:
                await asyncio.sleep(pause)
            outcome = Outcome(source.name, tokens, due, self._now())
            outcomes.append(outcome)
            self._ask(source, request, outcome)
        await asyncio.sleep(max(0.0, offer.seconds - self._now()))
        self._leave(lambda source: not source.waited_for)
        if self._calls:
            await asyncio.wait(list(self._calls), timeout=offer.drain_seconds)
        self._leave(lambda _: True)
        if self._calls:
            await asyncio.wait(list(self._calls))
        await asyncio.gather(*(channel.close() for channel in self._channels.values()))
        return outcomes

    def _now(self) -> float:
        return time.perf_counter() - self._began

    def _request(
        self, source: Source, tokens: int, draw: np.random.Generator
    ) -> inference_pb2.GenerateRequest:
        """Return a prompt that shares no prefix with others."""
        request = inference_pb2.GenerateRequest()
        request.context.model = self._offer.model
        request.context.ttft_target_seconds = source.target
        request.token_ids.ids.extend(draw.integers(1, VOCABULARY, tokens).tolist())
        request.sampling.temperature = 0.0
        request.sampling.max_tokens = self._offer.output_tokens
        request.sampling.ignore_eos = True
        return request

    def _ask(
        self, source: Source, request: inference_pb2.GenerateRequest, outcome: Outcome
    ) -> None:
        stub: Any = self._channels[source.name].stub(InferenceServiceStub)
        metadata = (("authorization", f"Bearer {source.secret}"),)
        call: ClientCall = stub.Generate(request, timeout=600.0, metadata=metadata)
        task = asyncio.create_task(self._read(call, outcome))
        self._calls[task] = source, call
        task.add_done_callback(self._calls.pop)

    async def _read(self, call: ClientCall, outcome: Outcome) -> None:
        try:
            while (event := await call.read()) is not END:
                if outcome.first is None and event.HasField("delta"):
                    outcome.first = self._now()
        except BatonError as error:
            outcome.reason = error.reason.name if error.message != LEAVE else LEAVE
        finally:
            outcome.ended = self._now()
            call.cancel()

    def _leave(self, whose: Any) -> None:
        for source, call in list(self._calls.values()):
            if whose(source):
                call.cancel(BatonError(Reason.CANCELLED, LEAVE))


def _lines() -> Iterator[str]:
    with suppress(KeyboardInterrupt):
        yield from sys.stdin


def main() -> None:
    """Process offers until standard input ends."""
    for line in _lines():
        offer = Offer.from_json(json.loads(line))
        outcomes = uvloop.run(Clients(offer).run())
        print(json.dumps([asdict(one) for one in outcomes]), flush=True)


if __name__ == "__main__":
    main()
