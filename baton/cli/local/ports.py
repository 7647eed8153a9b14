"""Checks of the ports that a cluster is about to take."""

import errno
import socket

from baton.cli.errors import CommandError


def require_free(host: str, port: int, flag: str, variable: str) -> None:
    """Check that no process listens on a port. 0 is always free.

    Raises:
        CommandError: one does, or the address is not this machine's.
    """
    if port == 0:
        return
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host.strip("[]"), port))
        except OSError as error:
            if error.errno == errno.EADDRINUSE:
                problem = "is in use: stop what uses it, or choose another"
            else:
                problem = f"cannot be listened on ({error.strerror}): choose another"
            raise CommandError(
                f"Port {port} on {host} {problem} with {flag} or {variable} (0 takes a free one)."
            ) from error
