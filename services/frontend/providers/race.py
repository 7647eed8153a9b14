"""A request at one upstream, and at a second one if the first token is late."""

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

from baton.errors import BatonError
from services.frontend.metrics import UPSTREAM_HEDGES
from services.frontend.providers.call import UpstreamCall
from services.frontend.providers.formats import UpstreamStream
from services.frontend.workers.events import ProviderOutput

if TYPE_CHECKING:
    from services.frontend.providers.upstream import Upstream


class UpstreamRun(NamedTuple):
    """An upstream, and the request in its format."""

    upstream: "Upstream"
    call: UpstreamCall


async def run_race(
    first: UpstreamRun, second: UpstreamRun | None, on_winner: Callable[["Upstream"], None]
) -> UpstreamStream:
    """Run a request to its end; return the stream of the upstream whose output was passed on.

    The second one is asked once the first is late and its `HedgePolicy` permits; the one that has
    output first goes on, and the other is cancelled.

    Args:
        first: whose errors count if both fail.
        second: None: the first one alone.
        on_winner: called with the upstream just before its first output.

    Raises:
        BatonError: it failed. Output that was passed on before is valid.
    """
    delay = None if second is None else first.upstream.hedging.delay()
    race = _Race(on_winner)
    try:
        leading = race.start(first)
        if second is not None and delay is not None:
            await race.wait(delay)
            if race.winner is None and not leading.done() and first.upstream.hedging.take():
                UPSTREAM_HEDGES.labels(first.upstream.provider.id).inc()
                race.start(second)
        return await race.result()
    finally:
        await race.stop()


class _Race:
    def __init__(self, on_winner: Callable[["Upstream"], None]) -> None:
        self.winner: Upstream | None = None
        self._on_winner = on_winner
        self._tasks: dict[Upstream, asyncio.Task[UpstreamStream]] = {}
        self._begun = asyncio.Event()

    def start(self, runner: UpstreamRun) -> asyncio.Task[UpstreamStream]:
        """Ask an upstream."""
        upstream, call = runner

        def on_output(found: list[ProviderOutput]) -> None:
            if found and self.winner is None:
                self.winner = upstream
                for other, losing in self._tasks.items():
                    if other is not upstream:
                        losing.cancel()
                self._on_winner(upstream)
                self._begun.set()
            if self.winner is upstream:
                call.on_output(found)

        run = upstream.run(call._replace(on_output=on_output))
        task = self._tasks[upstream] = asyncio.ensure_future(run)
        task.add_done_callback(lambda _: self._begun.set())
        return task

    async def wait(self, seconds: float) -> None:
        """Wait for the first output or the first end."""
        try:
            async with asyncio.timeout(seconds):
                await self._begun.wait()
        except TimeoutError:
            return

    async def result(self) -> UpstreamStream:
        """Return the winner's stream, or raise the first one's error if all have failed."""
        running = set(self._tasks.values())
        while running and self.winner is None:
            done, running = await asyncio.wait(running, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                if not task.cancelled() and not isinstance(task.exception(), BatonError):
                    return task.result()  # or raise what is no error of the upstream
        if self.winner is not None:
            return await self._tasks[self.winner]
        return await next(iter(self._tasks.values()))

    async def stop(self) -> None:
        """Cancel what runs, and wait for it."""
        for task in self._tasks.values():
            task.cancel()
        await asyncio.gather(*self._tasks.values(), return_exceptions=True)
