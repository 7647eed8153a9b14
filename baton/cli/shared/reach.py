"""Checks that an address accepts connections, before loading the client code."""

import socket
from collections.abc import Sequence

from baton.cli.shared.errors import EXIT_FAILED, CommandError

CONNECT_SECONDS = 2.0
"""Timeout for all addresses together. Refused connections fail immediately; only silence takes this
long."""


def require_listening(addresses: Sequence[str], flag: str, otherwise: str) -> None:
    """Check that one of several addresses accepts a connection.

    Args:
        addresses: `host:port` each.
        flag: option to name in the error about an invalid address.
        otherwise: error message if none accepts.

    Raises:
        CommandError: none accepts, or one is not an address.
    """
    parts = [split_address(address, flag) for address in addresses]
    for host, port in parts:
        try:
            socket.create_connection((host, port), CONNECT_SECONDS / len(parts)).close()
        except OSError:
            continue
        return
    raise CommandError(otherwise, EXIT_FAILED)


def certificate_hint() -> str:
    """Return a hint about certificates for the case that processes do not respond."""
    from baton.rpc.tls import mutual

    if mutual.current() is None:
        return (
            "If the cluster uses mutual TLS, set an operator's --tls-cert, --tls-key and --tls-ca."
        )
    return (
        "The processes may use no certificates, or certificates of other authorities than --tls-ca."
    )


def split_address(address: str, flag: str) -> tuple[str, int]:
    """Return the host, without brackets, and the port. gRPC would accept a missing port as another
    one.

    Raises:
        CommandError: it is not `host:port`.
    """
    host, _, port = address.rpartition(":")
    if not host or not (port.isascii() and port.isdecimal()) or not 0 < int(port) < 65_536:
        raise CommandError(f"{flag} {address!r} is not host:port with a port from 1 to 65535.")
    return host.strip("[]"), int(port)
