"""The frontends of the cluster, and how many requests of this picker each has."""

import random
from collections import Counter
from collections.abc import Callable, Sequence

from baton.internal.v1.cluster_pb2 import Instance

MAX_ENDPOINTS = 3
"""Endpoints for one request: a gateway that retries uses the second and third."""


class FrontendChoice:
    """Chooses the frontends with the fewest requests. Lives on the event loop.

    Args:
        frontends: returns the live ones.
        draw: decides among equals.
    """

    def __init__(
        self, frontends: Callable[[], Sequence[Instance]], draw: random.Random | None = None
    ) -> None:
        self._frontends = frontends
        self._draw = draw or random.Random()
        self.active: Counter[str] = Counter()
        """Requests by endpoint; endpoints without any are not kept."""

    def choose(self, subset: frozenset[str] | None = None) -> Sequence[str]:
        """Return endpoints as `host:port`, the best one first; none: there are none.

        A frontend that drains gets requests only where there is no other: it still serves what its
        connections bring.

        Args:
            subset: the ones to choose among, `host:port` or `host`; None: all.
        """
        known = [one for one in self._frontends() if one.http_address]
        if subset is not None:
            known = [one for one in known if _is_in(one.http_address, subset)]
        known = [one for one in known if not one.draining] or known
        self._draw.shuffle(known)
        addresses = [one.http_address for one in known]
        return sorted(addresses, key=lambda address: self.active[address])[:MAX_ENDPOINTS]

    def begin(self, endpoint: str) -> None:
        """Count a request."""
        self.active[endpoint] += 1

    def end(self, endpoint: str) -> None:
        """Count a request no more."""
        self.active[endpoint] -= 1
        if not self.active[endpoint]:
            del self.active[endpoint]


def _is_in(address: str, subset: frozenset[str]) -> bool:
    return address in subset or address.rpartition(":")[0].strip("[]") in subset
