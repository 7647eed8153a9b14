"""The times of a request, as a query tells them to a router: in seconds from when it is sent."""

from dataclasses import dataclass
from time import monotonic

from baton.internal.v1 import router_pb2

_NOW = 0.001
"""What a time that has passed is told as: 0 would say that there is none."""


@dataclass(frozen=True, slots=True)
class QueryTimes:
    """When a request came and what it needs when. Times are monotonic, in seconds."""

    arrived: float
    deadline: float
    ttft_target_seconds: float = 0.0
    """From its arrival, for its first token; 0: it has no such wish."""

    def fill_in(self, query: router_pb2.PlaceQuery) -> None:
        """Tell a query, which is sent now, how old its request is and how much time is left."""
        now = monotonic()
        query.waited_seconds = max(0.0, now - self.arrived)
        query.deadline_seconds = max(_NOW, self.deadline - now)
        target = self.ttft_target_seconds
        if target and not query.output_tokens:
            query.ttft_target_seconds = max(_NOW, self.arrived + target - now)
