"""Checks the ports that a cluster will use."""

import errno
import socket

from baton.cli.cluster.local.files.local_clusters import LocalCluster, running_clusters
from baton.cli.shared.errors import CommandError


def require_free(host: str, port: int, flag: str, variable: str) -> None:
    """Check that no process listens on a port. 0 is always free.

    Raises:
        CommandError: one does, or the address does not belong to this machine.
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
                ours = _user(port)
                use = f"in use by cluster {ours.cluster!r} on this machine" if ours else "in use"
                problem = f"is {use}: free it, or choose another"
            else:
                problem = f"cannot be bound ({error.strerror}): choose another"
            raise CommandError(
                f"Port {port} on {host} {problem} with {flag} or {variable} (0: any free port)."
            ) from error


def _user(port: int) -> LocalCluster | None:
    """Return the local cluster that uses a port; None: another process uses it."""
    for cluster in running_clusters():
        if str(port) in {address.rpartition(":")[2] for address in (cluster.http, cluster.grpc)}:
            return cluster
    return None
