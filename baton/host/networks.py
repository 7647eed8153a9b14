"""The networks that a process may connect to, checked for each connection, after DNS."""

import errno
import ipaddress
import socket
from collections.abc import Sequence
from typing import Any

PUBLIC = "public"
"""All public addresses, among networks."""
NOT_ALLOWED = errno.EACCES
"""Error number of a connection to an address that is not allowed."""
_GLOBAL_UNICAST = ipaddress.ip_network("2000::/3")
_NAT64 = ipaddress.ip_network("64:ff9b::/96")
"""Its last 32 bits are the IPv4 address that a translator connects to (RFC 6052)."""
_SIX_TO_FOUR = ipaddress.ip_network("2002::/16")
"""Has an IPv4 address too, of any network, and is no longer used on the Internet (RFC 7526)."""


class AllowedNetworks:
    """Decides which addresses may be connected to.

    Args:
        networks: as in `providers.allowed_networks`.
        setting: its name, for errors.
    """

    def __init__(
        self, networks: Sequence[str], setting: str = "providers.allowed_networks"
    ) -> None:
        self.setting = setting
        self._public = PUBLIC in networks
        self._own = [ipaddress.ip_network(one) for one in networks if one != PUBLIC]

    @property
    def has_own(self) -> bool:
        """Whether any network is named: only in these, connections may be without TLS."""
        return bool(self._own)

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
        return encrypted and self._public and is_public(found)

    def make_socket(self, info: tuple[Any, ...], *, encrypted: bool) -> socket.socket:
        """Return a socket for an address of `getaddrinfo`.

        Raises:
            OSError: NOT_ALLOWED.
        """
        family, kind, protocol, _, (address, *_) = info
        if not self.allow(address, encrypted=encrypted):
            raise OSError(NOT_ALLOWED, f"the address is not in {self.setting}")
        return socket.socket(family, kind, protocol)


def is_public(address: ipaddress.IPv4Address | ipaddress.IPv6Address) -> bool:
    """Return whether an address is one host on the Internet, however it is reached.

    `is_global` alone is not enough: it is true for multicast, and for IPv6 addresses that stand for
    an IPv4 address of any network.
    """
    if isinstance(address, ipaddress.IPv6Address):
        if address in _NAT64:
            return is_public(ipaddress.IPv4Address(address.packed[-4:]))
        if address not in _GLOBAL_UNICAST or address in _SIX_TO_FOUR:
            return False
    return address.is_global and not address.is_multicast
