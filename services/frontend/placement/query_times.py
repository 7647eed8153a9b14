"""The times of a request in a query to a router: in seconds relative to its sending."""

from dataclasses import dataclass
from time import monotonic

from baton.internal.v1 import router_pb2

_NOW = 0.001
"""Encodes a time that has passed: 0 would mean that there is none."""


@dataclass(frozen=True, slots=True)
class QueryTimes:
    """When a request arrived and its deadlines. Times are monotonic, in seconds."""

    arrived: float
    deadline: float
    ttft_target_seconds: float = 0.0
    """Seconds from arrival to its first token; 0: no target."""
    max_wait: float | None = None
    """The longest predicted wait in the router, in seconds from now; None: no bound."""

    def fill_in(self, query: router_pb2.PlaceQuery) -> None:
        """Set the age of the request and its remaining times in a query that is sent now."""
        now = monotonic()
        query.waited_seconds = max(0.0, now - self.arrived)
        query.deadline_seconds = max(_NOW, self.deadline - now)
        target = self.ttft_target_seconds
        if target and not query.output_tokens:
            query.ttft_target_seconds = max(_NOW, self.arrived + target - now)
        if self.max_wait is not None:
            query.max_wait_seconds = max(_NOW, self.max_wait)
