"""Find the model of a request, waiting for it if necessary."""

import asyncio
from time import monotonic

from baton.errors import BatonError, Reason
from services.frontend.generation.resolution.prompts import size_of
from services.frontend.models.model import ResolvedModel
from services.frontend.models.registry import Registry
from services.frontend.placement.waiting import WorkerWaitQueue
from services.frontend.requests.request import Prompt


class ModelFinder:
    """Finds the models of requests. Runs on the event loop.

    Args:
        registry: the models.
        waiting: holds requests while only workers or a tokenizer are missing.
    """

    def __init__(self, registry: Registry, waiting: WorkerWaitQueue) -> None:
        self._registry = registry
        self._waiting = waiting

    async def find(self, name: str, adapter: str, prompt: Prompt, deadline: float) -> ResolvedModel:
        """Return the model of a request; wait while only workers or a tokenizer are missing.

        Raises:
            BatonError: as for `Registry.get` and `WorkerWaitQueue.enter`, or DEADLINE.
        """
        while True:
            try:
                return self._registry.get(name, adapter)
            except BatonError as error:
                if error.reason not in (Reason.NO_WORKER, Reason.MODEL_LOADING):
                    raise
                missing = error
            try:
                async with asyncio.timeout(max(0.0, deadline - monotonic())):
                    await self._waiting.wait(name, size_of(prompt), missing)
            except TimeoutError:
                late = "no worker was available before the request's deadline"
                raise BatonError(Reason.DEADLINE, late) from missing
