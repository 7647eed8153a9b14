"""Whether anything listens where a command is about to call, before it loads what calls."""

import socket
from collections.abc import Sequence

from baton.cli.shared.errors import EXIT_FAILED, CommandError

CONNECT_SECONDS = 2.0
"""For all addresses together. A refusal comes at once; only silence takes so long."""


def require_listening(addresses: Sequence[str], flag: str, otherwise: str) -> None:
    """Check that one of several addresses accepts a connection.

    Args:
        addresses: `host:port` each.
        flag: names them in the complaint about one that is none.
        otherwise: the sentence to fail with if none accepts.

    Raises:
        CommandError: none accepts, or one is no address.
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
    """Return what may be wrong with certificates where processes do not answer: a sentence."""
    from baton.rpc.tls import mutual

    if mutual.current() is None:
        return (
            "If the cluster uses mutual TLS, set an operator's --tls-cert, --tls-key and --tls-ca."
        )
    return (
        "The processes may use no certificates, or certificates of other authorities than --tls-ca."
    )


def split_address(address: str, flag: str) -> tuple[str, int]:
    """Return the host, without brackets, and the port. gRPC would take no port for another one.

    Raises:
        CommandError: it is no `host:port`.
    """
    host, _, port = address.rpartition(":")
    if not host or not (port.isascii() and port.isdecimal()) or not 0 < int(port) < 65_536:
        raise CommandError(f"{flag} {address!r} is not host:port with a port from 1 to 65535.")
    return host.strip("[]"), int(port)
