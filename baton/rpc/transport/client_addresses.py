"""Limits the connections of each client address, over HTTP and gRPC together."""

from collections import Counter as Counts
from ipaddress import IPv6Address

from baton.telemetry.logs import get_logger
from baton.telemetry.metrics import Counter

log = get_logger(__name__)

REFUSED = Counter(
    "baton_public_connections_refused_total",
    "Client connections rejected because their address had `public.max_connections_per_address` "
    "open, by surface (`http`, `grpc`).",
    ["surface"],
)
_NETWORK_BITS = 64
"""Bits of an IPv6 address that identify a client's network."""


class ClientAddresses:
    """Counts the open connections of each address, on the event loop.

    IPv6 addresses with the same first 64 bits count as one: a client controls all of them.

    Args:
        most: most connections of one address; 0: any number.
    """

    def __init__(self, most: int) -> None:
        self.most = most
        self._open: Counts[str] = Counts()
        self._told: set[str] = set()
        """Addresses for which the limit was logged."""

    def enter(self, address: str, surface: str) -> int:
        """Count a connection; return the number beyond the limit, in which case the caller rejects
        it.

        Args:
            address: address of the client; empty: it has none, as on a Unix socket.
            surface: `http` or `grpc`.
        """
        if not self.most or not address:
            return 0
        key = _network(address)
        self._open[key] += 1
        excess = self._open[key] - self.most
        if excess <= 0:
            return 0
        REFUSED.labels(surface).inc()
        if key not in self._told:
            self._told.add(key)
            log.warning(
                "public.address.crowded",
                address=key,
                surface=surface,
                setting="public.max_connections_per_address",
            )
        return excess

    def leave(self, address: str) -> None:
        """Stop counting a connection, including a rejected one."""
        if not self.most or not address:
            return
        key = _network(address)
        self._open[key] -= 1
        if not self._open[key]:
            del self._open[key]
            self._told.discard(key)


def _network(address: str) -> str:
    if ":" not in address:
        return address
    number = IPv6Address(address.partition("%")[0])
    if number.ipv4_mapped is not None:
        return str(number.ipv4_mapped)
    bits = int(number) >> _NETWORK_BITS << _NETWORK_BITS
    return f"{IPv6Address(bits)}/{_NETWORK_BITS}"
