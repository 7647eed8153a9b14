"""Binds a port before listening on it."""

import socket


def bind(host: str, port: int, *, reuse_port: bool) -> socket.socket:
    """Return a socket bound to the first address of a host; it does not listen yet.

    Other processes cannot bind the port, and connections to it are refused; if several processes
    share it, this one receives no connections yet.

    Raises:
        OSError: the port is taken, or the address is not one of this machine's.
    """
    family, kind, protocol, _, address = socket.getaddrinfo(
        host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
    )[0]
    bound = socket.socket(family, kind, protocol)
    try:
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, int(reuse_port))
        if family == socket.AF_INET6:
            bound.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        bound.bind(address)
    except OSError:
        bound.close()
        raise
    bound.setblocking(False)
    return bound
