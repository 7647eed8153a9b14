"""Several requests as one: the prompts of one text completion."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from functools import partial

from baton.request.stream_events import Event
from services.frontend.generation.generation import Generation
from services.frontend.generation.inference import Inference
from services.frontend.generation.turns import LoopTurns
from services.frontend.requests.record import RequestRecord
from services.frontend.requests.request import GenerationRequest

Sink = Callable[[int, list[Event]], bool]
"""Receives a request's events, by its index, and returns whether it has enough for now; it must
not wait."""


class GenerationBatch:
    """Runs requests concurrently; the first failure fails all. Call `close` in a `finally`."""

    def __init__(self) -> None:
        self.generations: list[Generation] = []
        self._tasks: list[asyncio.Task[None]] = []
        self._turns: LoopTurns

    async def start(
        self, inference: Inference, requests: Sequence[GenerationRequest], record: RequestRecord
    ) -> None:
        """Admit all requests, which are one for the client and have one record.

        Raises:
            BatonError: one is rejected.
        """
        self._turns = inference.turns
        self.generations = await inference.start_all(requests, record)

    async def run(self, sink: Sink, on_enough: Callable[[], Awaitable[None]]) -> None:
        """Run all to their ends.

        Args:
            sink: called with events.
            on_enough: awaited each time that `sink` has enough, before it receives more of the same
                request.

        Raises:
            BatonError: a request failed.
        """
        if len(self.generations) == 1:
            await self._run(0, sink, on_enough)
            return
        self._tasks = [
            asyncio.create_task(self._run_in_turn(index, sink, on_enough))
            for index in range(len(self.generations))
        ]
        done, _ = await asyncio.wait(self._tasks, return_when=asyncio.FIRST_EXCEPTION)
        failures = [error for task in done if (error := task.exception()) is not None]
        if failures:
            raise failures[0]

    def wake(self) -> None:
        """Call the sink without an event."""
        self.generations[0].buffer.wake()

    def pause(self) -> None:
        """Pause events to the sink until `resume`."""
        for generation in self.generations:
            generation.buffer.pause()

    def resume(self) -> None:
        """Deliver queued events to the sink, and later ones."""
        for generation in self.generations:
            generation.buffer.resume()

    def close(self) -> None:
        """Release everything. Idempotent."""
        for task in self._tasks:
            task.cancel()
        for generation in self.generations:
            generation.close()

    async def _run_in_turn(
        self, index: int, sink: Sink, on_enough: Callable[[], Awaitable[None]]
    ) -> None:
        await self._turns.wait()
        await self._run(index, sink, on_enough)

    async def _run(self, index: int, sink: Sink, on_enough: Callable[[], Awaitable[None]]) -> None:
        generation = self.generations[index]
        while not generation.finished:
            await generation.follow(partial(sink, index))
            await on_enough()
