"""The ports that a cluster is about to take: chosen, and checked."""

import errno
import socket
from collections.abc import Iterator
from contextlib import contextmanager

from baton.cli.errors import CommandError
from baton.cli.local.files.rundir import running


@contextmanager
def held_port() -> Iterator[int]:
    """Choose a free TCP port of 127.0.0.1, and let the kernel give it to nobody who asks for any.

    It is bound and not listened on: who names it and sets SO_REUSEADDR, as servers do, gets it.
    """
    with socket.socket() as held:
        held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        held.bind(("127.0.0.1", 0))
        yield held.getsockname()[1]


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
                use = "in use by the cluster that runs here" if _is_ours(port) else "in use"
                problem = f"is {use}: stop what uses it, or choose another"
            else:
                problem = f"cannot be listened on ({error.strerror}): choose another"
            raise CommandError(
                f"Port {port} on {host} {problem} with {flag} or {variable} (0 takes a free one)."
            ) from error


def _is_ours(port: int) -> bool:
    local = running()
    ports = [address.rpartition(":")[2] for address in (local.http, local.grpc)] if local else []
    return str(port) in ports
