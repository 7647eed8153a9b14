"""How the models of a local cluster are used, read from the metrics of routers and workers."""

import asyncio
import time
from collections.abc import Callable, Iterable, Mapping, Sequence

from baton.cli.cluster.local.models.streams import streams_of
from baton.cli.cluster.local.output.running_requests import read_metrics
from baton.internal.v1.cluster_pb2 import ROLE_ROUTER, Instance
from baton.on_demand.routers import oldest_waits
from baton.on_demand.turns import ModelUse


class UseReader:
    """Reads how models are used.

    Args:
        instances: returns the live instances.
        clock: a monotonic clock, in seconds.
    """

    def __init__(
        self,
        instances: Callable[[], Iterable[Instance]],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._instances = instances
        self._clock = clock

    async def read(self, workers: Mapping[str, Sequence[str]]) -> dict[str, ModelUse]:
        """Return how each model is used.

        Args:
            workers: ids of the workers that run, by model; none for models that are away.
        """
        there = {one.id: one for one in self._instances() if one.metrics_address}
        routers = [one.metrics_address for one in there.values() if one.role == ROLE_ROUTER]
        addresses = {
            model: [there[one].metrics_address for one in ids if one in there]
            for model, ids in workers.items()
        }
        asked = [*routers, *(one for some in addresses.values() for one in some)]
        texts = dict(zip(asked, await asyncio.gather(*map(read_metrics, asked)), strict=True))
        oldest = oldest_waits(texts[router] for router in routers)
        now = self._clock()
        return {
            model: ModelUse(
                now - oldest[model] if oldest.get(model) else None,
                # A worker that does not respond is busy, as far as is known.
                any(
                    not texts[address] or streams_of(texts[address]) for address in addresses[model]
                ),
            )
            for model in workers
        }
