"""Which models can be used, and what depends on it."""

import asyncio
from typing import NoReturn

from baton.cluster.members.discovery import Discovery
from baton.internal.v1 import cluster_pb2
from baton.ops.checks import Readiness
from services.frontend.metrics import MODELS
from services.frontend.models.loader import TokenizerLoader
from services.frontend.models.registry import Registry
from services.frontend.placement.router_client import RouterClient
from services.frontend.placement.waiting import WorkerWaitQueue
from services.frontend.workers.pool import WorkerPool

ASK_AGAIN_SECONDS = 5.0
"""Less than the time over which routers count arrivals."""
MODELS_PART = "models"
"""Readiness: no request is rejected for a model that will be available in a moment."""


class Availability:
    """Keeps models, connections and waiting requests up to date. Runs on the event loop.

    Everything that may unblock a request is reported here: a connected worker, a loaded tokenizer,
    a model's card. Then the frontend lists the models and wakes the waiting requests.
    """

    def __init__(
        self,
        registry: Registry,
        loader: TokenizerLoader,
        pool: WorkerPool,
        router_client: RouterClient,
        waiting: WorkerWaitQueue,
        readiness: Readiness,
    ) -> None:
        self._registry = registry
        self._loader = loader
        self._pool = pool
        self._router_client = router_client
        self._waiting = waiting
        self._readiness = readiness
        self._first = asyncio.Event()
        readiness.wait_for(MODELS_PART, registry.missing_reason())
        pool.on_change = loader.on_loaded = self.update
        waiting.is_starting = registry.is_starting

    async def follow(self, discovery: Discovery) -> None:
        """Follow changes in the cluster, until cancelled."""
        async for change in discovery.changes():
            if change.kind == "models":
                self._registry.set_cards(discovery.models.values(), discovery.kept)
                self._loader.update()
            else:
                alive = change.kind != "down"
                self._registry.follow(change.instance, alive=alive)
                self._pool.follow(change.instance, alive=alive)
                self._router_client.follow(change.instance, alive=alive)
                if change.kind == "up" and change.instance.role == cluster_pb2.ROLE_ROUTER:
                    # It is to learn of the requests that wait for a worker to be started.
                    self._waiting.wake(self._registry.is_starting)
            self.update()

    async def keep_asking(self) -> NoReturn:
        """Have routers know of requests that wait for a worker to be started, until cancelled."""
        while True:
            await asyncio.sleep(ASK_AGAIN_SECONDS)
            self._waiting.ask_again()

    async def wait_first(self) -> None:
        """Return once a model has been available."""
        await self._first.wait()

    def update(self) -> None:
        """Apply that models or workers changed."""
        self._registry.update_listed()
        self._waiting.wake(self._registry.can_serve)
        listed = len(self._registry.listed())
        MODELS.set(listed)
        if listed and not self._first.is_set():
            self._first.set()
            self._readiness.done(MODELS_PART)
        elif not self._first.is_set():
            self._readiness.wait_for(MODELS_PART, self._registry.missing_reason())
