"""What new requests would meet at the routers: asked when it is needed, and kept for a moment."""

import asyncio
import time
from collections.abc import Callable, Collection, Sequence
from typing import NamedTuple

from baton.errors import BatonError
from baton.internal.v1 import router_pb2, router_pb2_grpc
from baton.internal.v1.cluster_pb2 import Instance
from baton.rpc.channel.channel import Channel
from baton.telemetry.logs import get_logger

CALL_SECONDS = 0.1
"""A router that takes longer counts as one where nothing waits."""

log = get_logger(__name__)


class Outlook(NamedTuple):
    """What a new request would meet at every router."""

    waits: bool = False
    full: bool = False
    wait_seconds: float = 0.0


class RouterOutlooks:
    """Asks the routers about models. Lives on the event loop; `close` ends its connections.

    A frontend asks one router at a time, which the picker does not know: a request waits for
    certain only where it would wait at each of them.

    Args:
        routers: returns the live ones.
        models: returns the names of the cluster's models: no other is asked about, so that
            clients cannot fill the memory.
        tenant: that all requests have; empty: they have several.
        keep_seconds: for so long an answer is used again.
        clock: monotonic, in seconds.
    """

    def __init__(
        self,
        routers: Callable[[], Sequence[Instance]],
        models: Callable[[], Collection[str]],
        tenant: str,
        keep_seconds: float,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._routers = routers
        self._models = models
        self._tenant = tenant
        self._keep_seconds = keep_seconds
        self._clock = clock
        self._known: dict[str, tuple[float, Outlook]] = {}
        self._asking: dict[str, asyncio.Task[Outlook]] = {}
        self._channels: dict[str, Channel] = {}

    async def of(self, model: str) -> Outlook:
        """Return the outlook of a model; with an error of a router, that nothing waits."""
        if model not in self._models():
            return Outlook()
        at, known = self._known.get(model, (-self._keep_seconds, Outlook()))
        if self._clock() - at < self._keep_seconds:
            return known
        asking = self._asking.get(model)
        if asking is None:
            asking = self._asking[model] = asyncio.create_task(self._ask(model))
        return await asyncio.shield(asking)

    async def close(self) -> None:
        """End all calls and connections."""
        for task in self._asking.values():
            task.cancel()
        if self._asking:
            await asyncio.wait(self._asking.values())
        for channel in self._channels.values():
            await channel.close()

    async def _ask(self, model: str) -> Outlook:
        try:
            routers = [one.address for one in self._routers() if not one.draining]
            await self._close_others(routers)
            found = await asyncio.gather(*(self._ask_one(one, model) for one in routers))
            outlook = Outlook(
                bool(found) and all(one.waits for one in found),
                bool(found) and all(one.full for one in found),
                min((one.wait_seconds for one in found), default=0.0),
            )
            before = self._known.get(model, (0.0, Outlook()))[1]
            if before.full != outlook.full:
                log.info(
                    "picker.queue.filled" if outlook.full else "picker.queue.freed", model=model
                )
            names = self._models()
            self._known = {name: one for name, one in self._known.items() if name in names}
            self._known[model] = self._clock(), outlook
            return outlook
        finally:
            del self._asking[model]

    async def _ask_one(self, address: str, model: str) -> router_pb2.OutlookResponse:
        channel = self._channels.get(address)
        if channel is None:
            channel = self._channels[address] = Channel(address)
        stub = channel.stub(router_pb2_grpc.RouterServiceStub)
        asked = router_pb2.OutlookRequest(model=model, tenant=self._tenant)
        try:
            answer: router_pb2.OutlookResponse = await stub.Outlook(asked, timeout=CALL_SECONDS)
        except BatonError as error:
            log.debug("picker.router.failed", peer=address, error=str(error))
            return router_pb2.OutlookResponse()
        return answer

    async def _close_others(self, addresses: Sequence[str]) -> None:
        """Close connections to routers that left."""
        for address in self._channels.keys() - set(addresses):
            await self._channels.pop(address).close()
