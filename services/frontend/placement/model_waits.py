"""Predicted waits of models, asked of the current router in the background."""

import asyncio
import time
from collections.abc import Awaitable, Callable

from baton.errors import BatonError
from baton.process.background import cancel_all, start_background
from baton.telemetry.logs import get_logger

KEEP_SECONDS = 0.25
"""After that an answer is asked for again, by the next request that needs it."""
_MAX_MODELS = 1024

log = get_logger(__name__)


class ModelWaits:
    """Knows how long new requests for models would wait. Lives on the event loop; `close` it.

    A caller never waits for an answer: it gets the last one, and 0 before the first. So models that
    nobody asks about cost nothing.

    Args:
        ask: returns the predicted seconds in the queue of a model.
        clock: monotonic, in seconds.
    """

    def __init__(
        self, ask: Callable[[str], Awaitable[float]], clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._ask = ask
        self._clock = clock
        self._known: dict[str, tuple[float, float]] = {}
        """Times of the answers, and seconds, by model."""
        self._asking: dict[str, asyncio.Task[None]] = {}

    def of(self, model: str) -> float:
        """Return the predicted seconds that a new request for a model waits, as last known."""
        at, seconds = self._known.get(model, (-KEEP_SECONDS, 0.0))
        if self._clock() - at >= KEEP_SECONDS and model not in self._asking:
            self._asking[model] = start_background(self._refresh(model), "model-wait")
        return seconds

    async def close(self) -> None:
        """End all questions."""
        await cancel_all(self._asking.values())

    async def _refresh(self, model: str) -> None:
        seconds = 0.0
        try:
            seconds = await self._ask(model)
        except BatonError as error:  # the router is away or slow: requests are placed without it
            log.debug("request.wait.unknown", model=model, error=str(error))
        finally:
            del self._asking[model]
        if len(self._known) >= _MAX_MODELS:
            self._known.clear()
        self._known[model] = self._clock(), seconds
