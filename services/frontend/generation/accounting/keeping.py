"""Which ended requests routers are to keep for explanations."""

import random
from collections.abc import Callable

from baton.history.kept import KeptKind
from baton.history.rule import kind_of
from baton.internal.v1 import router_pb2
from baton.usage.record import UsageRecord, encode
from services.frontend.metrics import KEEPS

SendToRouter = Callable[[router_pb2.KeepRequest, str], bool]
"""Sends a request to the router with an id, or another one; returns whether there is one."""


class RequestKeeper:
    """Sends failed and slow requests, and a sample of all others, to routers.

    Args:
        send: sends one.
        sample_ratio: share of the other requests, 0 to 1.
        draw: returns random numbers below 1.
    """

    def __init__(
        self,
        send: SendToRouter,
        sample_ratio: float,
        draw: Callable[[], float] = random.random,
    ) -> None:
        self._send = send
        self._sample_ratio = sample_ratio
        self._draw = draw

    def ended(self, record: UsageRecord, error: str) -> bool:
        """Send an ended request if it is to be kept; return whether it failed or was slow.

        Args:
            record: the request.
            error: message of the error that ended it.
        """
        kind = kind_of(record, sampled=self._draw() < self._sample_ratio)
        if kind is None:
            return False
        ended = router_pb2.KeepRequest(kind=kind.value, record=encode(record), error=error)
        sent = self._send(ended, record.router)
        KEEPS.labels(kind.value if sent else "no_router").inc()
        return kind is not KeptKind.SAMPLED
