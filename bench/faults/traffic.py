"""The load during faults: both APIs, with every output checked."""

import asyncio
import itertools
import random
import time
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from typing import Any

from baton.client import AsyncClient, BatonClientError, Delta
from baton.engine.base import Engine, SequenceRequest
from baton.engine.local import run_local
from baton.sampling import SamplingParams
from bench.faults.bodies import Answer, Bodies, Body
from bench.faults.frontends import Frontends
from bench.faults.http_client import CutError, HttpConnection, RefusedError
from bench.harness.stats import percentile

TIMEOUT_SECONDS = 60.0
MOST_EXAMPLES = 2
AGAIN_SECONDS = 0.2


@dataclass
class Seen:
    """Results of the clients of one API."""

    begun: int = 0
    ok: int = 0
    wrong: int = 0
    cut: int = 0
    """Streams of frontends that died: those of plain HTTP cannot be resumed."""
    unserved: int = 0
    """Number of times that no frontend accepted a connection; the client retries."""
    errors: Counter[str] = field(default_factory=Counter)
    examples: list[str] = field(default_factory=list)
    """Examples of wrong outputs."""
    first: list[float] = field(default_factory=list)
    """Seconds to the first token."""
    gaps: list[float] = field(default_factory=list)
    """The longest gap between two tokens of each stream, in seconds."""

    @property
    def failed(self) -> int:
        """Number of requests that ended with an error."""
        return self.errors.total()

    def summary(self) -> dict[str, Any]:
        """Return the results; the longest gap of each stream, and seconds to the first token."""
        return {
            "begun": self.begun,
            "ok": self.ok,
            "failed": self.failed,
            "wrong": self.wrong,
            "cut": self.cut,
            "unserved": self.unserved,
            "errors": dict(self.errors),
            "examples": self.examples,
            "first_p99": round(percentile(self.first, 99), 2) if self.first else None,
            "gap_p99": round(percentile(self.gaps, 99), 2) if self.gaps else None,
            "gap_max": round(max(self.gaps, default=0.0), 2),
        }

    def judge(self, found: object, expected: object) -> None:
        """Count an output as right or wrong."""
        if found == expected:
            self.ok += 1
            return
        self.wrong += 1
        if len(self.examples) < MOST_EXAMPLES:
            self.examples.append(f"{found} instead of {expected}")

    def time(self, began: float, times: Sequence[float]) -> None:
        """Record the times of a response."""
        if times:
            self.first.append(times[0] - began)
            self.gaps.append(max((b - a for a, b in itertools.pairwise(times)), default=0.0))


@dataclass(frozen=True)
class Shape:
    """The size of the load."""

    streams: int = 8
    """Concurrent streams of each API."""
    prompt_tokens: tuple[int, int] = (60, 260)
    output_tokens: tuple[int, int] = (16, 64)
    long_output_tokens: tuple[int, int] | None = None
    """Output tokens of every third request; None: as the others."""

    def draw_output_tokens(self, number: int, draw: random.Random) -> int:
        """Return a random length for a request's output."""
        long = self.long_output_tokens if number % 3 == 0 else None
        return draw.randint(*(long or self.output_tokens))


class Traffic:
    """Requests at constant concurrency over both APIs.

    Args:
        frontends: the frontends to use.
        model: the name of their model.
        engine: creates an engine like the workers', for the expected outputs.
        draw: chooses the requests.
        has_logprobs: whether the engine reports log probabilities.
    """

    def __init__(
        self,
        frontends: Frontends,
        model: str,
        engine: Callable[[], Engine],
        draw: random.Random,
        shape: Shape,
        *,
        has_logprobs: bool,
    ) -> None:
        self._frontends = frontends
        self._model = model
        self._engine = engine
        self._draw = draw
        self._shape = shape
        self._grpc_answers: list[tuple[SequenceRequest, tuple[int, ...], int]] = []
        self._bodies = Bodies(
            model,
            draw,
            lambda number: shape.draw_output_tokens(number, draw),
            has_logprobs=has_logprobs,
        )
        self._numbers = itertools.count()

    async def learn(self, *, exact: bool) -> None:
        """Record the expected outputs over HTTP, from an undisturbed cluster.

        Raises:
            SystemExit: two outputs differ although they must be exact.
        """
        await self._bodies.learn(self._ask, exact=exact)

    def replace_refused(self) -> int:
        """Replace the requests that were rejected as poison; return how many were replaced."""
        return self._bodies.replace()

    async def _ask(self, body: Body) -> Answer:
        async with HttpConnection(*self._frontends.http_address()) as connection:
            answer = await connection.ask(*body)
        return answer.said, answer.output_tokens

    async def run(
        self, stop: asyncio.Event, *, resume: bool, seen: dict[str, Seen] | None = None
    ) -> dict[str, Seen]:
        """Send requests until `stop` is set and all have ended.

        Args:
            stop: when to start nothing more.
            resume: whether gRPC clients retry and resume elsewhere, as for lost frontends.
            seen: filled in during the run; None: new ones.

        Returns:
            The results of clients, by API.
        """
        seen = seen or {"grpc": Seen(), "http": Seen()}
        async with AsyncExitStack() as stack:
            probing = asyncio.create_task(self._frontends.watch())
            stack.callback(probing.cancel)
            target = self._frontends.grpc_target
            client = await stack.enter_async_context(
                AsyncClient(target, timeout=TIMEOUT_SECONDS, retries=20 if resume else 0)
            )
            count = range(self._shape.streams)
            await asyncio.gather(
                *(self._over_grpc(client, seen["grpc"], stop, resume=resume) for _ in count),
                *(self._over_http(seen["http"], stop) for _ in count),
            )
        self._check(seen["grpc"])
        return seen

    def _check(self, seen: Seen) -> None:
        """Compare gRPC's outputs with those of an undisturbed engine."""
        if not self._grpc_answers:
            return
        engine = self._engine()
        for begin in range(0, len(self._grpc_answers), 64):
            answers = self._grpc_answers[begin : begin + 64]
            outputs = run_local(engine, [request for request, _, _ in answers])
            for (_, tokens, output_tokens), output in zip(answers, outputs, strict=True):
                (expected,) = output.tokens.values()
                usage = len(expected) if output_tokens == -1 else output_tokens
                seen.judge((tokens, usage), (tuple(expected), len(expected)))
        self._grpc_answers.clear()

    async def _over_grpc(
        self, client: AsyncClient, seen: Seen, stop: asyncio.Event, *, resume: bool
    ) -> None:
        while not stop.is_set():
            number = next(self._numbers)
            n = 2 if number % 8 == 7 and not resume else 1
            params = SamplingParams(
                seed=number,
                temperature=0.0 if number % 3 == 0 else 1.0,
                top_p=0.9 if number % 3 == 2 else 1.0,
                max_tokens=self._shape.draw_output_tokens(number, self._draw),
                ignore_eos=True,
            )
            seen.begun += 1
            prompt = [
                self._draw.randrange(3, 250)
                for _ in range(self._draw.randint(*self._shape.prompt_tokens))
            ]
            began, times = time.monotonic(), list[float]()
            stream = client.generate(
                prompt,
                model=self._model,
                seed=params.seed or 0,
                temperature=params.temperature,
                top_p=params.top_p,
                max_tokens=params.max_tokens or 1,
                ignore_eos=True,
                n=n,
                resume=resume,
            )
            try:
                async with stream:
                    async for event in stream:
                        if isinstance(event, Delta) and event.choice == 0:
                            times.append(time.monotonic())
                    answer = await stream.answer()
            except BatonClientError as error:
                seen.errors[f"{type(error).__name__}: {error}"[:160]] += 1
                await asyncio.sleep(AGAIN_SECONDS)
                continue
            seen.time(began, times)
            for index, choice in enumerate(answer.choices):
                request = SequenceRequest(
                    len(self._grpc_answers), b"root", prompt, params, choices=(index,)
                )
                # A call that resumes another counts its own tokens.
                usage = answer.usage.output_tokens if n == 1 and not resume else -1
                self._grpc_answers.append((request, choice.token_ids, usage))

    async def _over_http(self, seen: Seen, stop: asyncio.Event) -> None:
        connection: HttpConnection | None = None
        async with AsyncExitStack() as stack:
            while not stop.is_set():
                index, body, expected = self._bodies.get(next(self._numbers))
                seen.begun += 1
                began = time.monotonic()
                fresh = connection is None or not connection.usable
                try:
                    async with asyncio.timeout(TIMEOUT_SECONDS):
                        if fresh:
                            await stack.aclose()
                            connection = HttpConnection(*self._frontends.http_address())
                            await stack.enter_async_context(connection)
                        assert connection is not None
                        answer = await connection.ask(*body)
                except CutError:
                    seen.cut += 1
                    connection = None
                except (OSError, RefusedError, TimeoutError) as error:
                    if isinstance(error, ConnectionRefusedError):
                        seen.unserved += 1
                    elif isinstance(error, OSError) and not isinstance(error, TimeoutError):
                        seen.cut += 1
                    else:
                        seen.errors[f"{type(error).__name__}: {error}"[:160]] += 1
                    if isinstance(error, RefusedError) and error.is_poison:
                        self._bodies.refused(index)
                    connection = None
                    await asyncio.sleep(AGAIN_SECONDS)
                else:
                    seen.time(began, answer.times)
                    found = (answer.said, answer.output_tokens)
                    seen.judge(found, expected)
