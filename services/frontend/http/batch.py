"""Several requests as one: the prompts of one text completion."""

import asyncio
from collections.abc import Sequence

from services.frontend.events import Event, Finished
from services.frontend.inference import Generation, Inference
from services.frontend.request import Ask

_QUEUED = 4
"""Event lists that may wait per request before it waits for the reader."""


class Batch:
    """Runs requests at once; the first that fails fails all. `close` in a `finally`, always."""

    def __init__(self) -> None:
        self.generations: list[Generation] = []
        self._tasks: list[asyncio.Task[None]] = []
        self._open = 0
        self._news: asyncio.Queue[list[tuple[int, Event]] | Exception] = asyncio.Queue(1)

    async def start(self, inference: Inference, asks: Sequence[Ask], operation: str) -> None:
        """Admit all requests.

        Raises:
            BatonError: one is refused.
        """
        for ask in asks:
            self.generations.append(await inference.start(ask, operation))
        self._open = len(asks)
        if len(asks) > 1:
            self._news = asyncio.Queue(_QUEUED * len(asks))
            for index, generation in enumerate(self.generations):
                self._tasks.append(asyncio.create_task(self._forward(index, generation)))

    @property
    def finished(self) -> bool:
        return self._open == 0

    async def next(self) -> list[tuple[int, Event]]:
        """What happened since the last call, with the index of the request it happened to.

        Raises:
            BatonError: a request failed.
        """
        if self._tasks:
            news = await self._news.get()
            if isinstance(news, Exception):
                raise news
        else:
            news = [(0, event) for event in await self.generations[0].next()]
        if news and type(news[-1][1]) is Finished:
            self._open -= 1
        return news

    def nudge(self) -> None:
        """Let a `next` that waits return, though nothing happened."""
        self.generations[0].nudge()

    def close(self) -> None:
        """Give back everything. A second time does nothing."""
        for task in self._tasks:
            task.cancel()
        for generation in self.generations:
            generation.close()

    async def _forward(self, index: int, generation: Generation) -> None:
        try:
            while not generation.finished:
                events = await generation.next()
                await self._news.put([(index, event) for event in events])
        except Exception as error:  # noqa: BLE001 - it is the reader's, and reaches it
            await self._news.put(error)
