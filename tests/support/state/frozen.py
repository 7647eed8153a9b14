"""A Postgres that does not respond, though its connections stay."""

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from baton.postgres.local.server import LocalPostgres


@contextmanager
def frozen(server: LocalPostgres) -> Iterator[None]:
    """Stop all processes of a server."""
    children = Path(f"/proc/{server.pid}/task/{server.pid}/children").read_text().split()
    assert server.pid is not None
    processes = [server.pid, *map(int, children)]
    for pid in processes:
        os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        for pid in processes:
            os.kill(pid, signal.SIGCONT)
