"""The networks that upstreams may be in, checked for each connection, after DNS."""

import errno
import ipaddress
import socket
from collections.abc import Sequence
from typing import Any

from baton.host.networks import PUBLIC

NOT_ALLOWED = errno.EACCES
"""Error number of a connection to an address that is not allowed."""


class AllowedNetworks:
    """Decides which addresses may be connected to.

    Args:
        networks: as in `providers.allowed_networks`.
    """

    def __init__(self, networks: Sequence[str]) -> None:
        self._public = PUBLIC in networks
        self._own = [ipaddress.ip_network(one) for one in networks if one != PUBLIC]

    def allow(self, address: str, *, encrypted: bool) -> bool:
        """Return whether an address may be connected to.

        Args:
            address: an IP address.
            encrypted: whether with TLS; without, public addresses are not allowed.
        """
        found = ipaddress.ip_address(address.partition("%")[0])
        mapped = getattr(found, "ipv4_mapped", None)
        if mapped is not None:
            found = mapped
        if any(found in network for network in self._own):
            return True
        return encrypted and self._public and found.is_global and not found.is_multicast

    def make_socket(self, info: tuple[Any, ...], *, encrypted: bool) -> socket.socket:
        """Return a socket for an address of `getaddrinfo`.

        Raises:
            OSError: NOT_ALLOWED.
        """
        family, kind, protocol, _, (address, *_) = info
        if not self.allow(address, encrypted=encrypted):
            raise OSError(NOT_ALLOWED, "the address is not in providers.allowed_networks")
        return socket.socket(family, kind, protocol)
