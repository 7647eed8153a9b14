"""The decision on one request: an endpoint, or why it gets none."""

import time
from collections.abc import Collection, Sequence

from baton.errors import BatonError, Reason
from services.picker.choice.frontends import FrontendChoice
from services.picker.choice.outlooks import RouterOutlooks
from services.picker.exchange.request import PickRequest
from services.picker.metrics import PICK_SECONDS, PICKS

MIN_RETRY_SECONDS = 1.0
MAX_RETRY_SECONDS = 60.0


class EndpointPicker:
    """Picks endpoints. Lives on the event loop.

    Args:
        frontends: the endpoints.
        outlooks: of models, at the routers.
        sheddable: names of objectives whose requests are rejected rather than kept waiting.
    """

    def __init__(
        self, frontends: FrontendChoice, outlooks: RouterOutlooks, sheddable: Collection[str]
    ) -> None:
        self._frontends = frontends
        self._outlooks = outlooks
        self._sheddable = frozenset(sheddable)

    async def pick(self, request: PickRequest) -> Sequence[str]:
        """Return endpoints as `host:port`, the best one first.

        A request whose model is not known gets one too: the frontend knows all names, and its
        error is the one that clients know.

        Raises:
            BatonError: UNAVAILABLE: there is no frontend; NO_CAPACITY: the queue is full, or the
                request is sheddable and would have to wait.
        """
        began = time.perf_counter()
        try:
            return await self._pick(request)
        finally:
            PICK_SECONDS.observe(time.perf_counter() - began)

    async def _pick(self, request: PickRequest) -> Sequence[str]:
        if request.model:
            outlook = await self._outlooks.of(request.model)
            retry = min(MAX_RETRY_SECONDS, max(MIN_RETRY_SECONDS, outlook.wait_seconds))
            if outlook.full:
                PICKS.labels("full").inc()
                text = f"the queues for model {request.model!r} are full"
                raise BatonError(Reason.NO_CAPACITY, text, retry_after=retry)
            if outlook.waits and request.objective in self._sheddable:
                PICKS.labels("shed").inc()
                text = (
                    f"requests for model {request.model!r} have to wait, and those with objective "
                    f"{request.objective!r} are rejected then"
                )
                raise BatonError(Reason.NO_CAPACITY, text, retry_after=retry)
        endpoints = self._frontends.choose(request.subset)
        if not endpoints:
            PICKS.labels("no_frontend").inc()
            text = "no frontend is available" + (
                " among the endpoints that the gateway allows" if request.subset is not None else ""
            )
            raise BatonError(Reason.UNAVAILABLE, text, retry_after=MIN_RETRY_SECONDS)
        PICKS.labels("picked").inc()
        return endpoints
