"""A cluster of the same user next to the tests, which other commands would find."""

import os
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from scripts.verdict import session
from scripts.verdict.clone import ROOT, VENV

NAME = ("--cluster", f"verdict-{os.getpid()}")
"""A name of its own: the user may already run a cluster."""
COMMAND = ("up", "--engine", "sim", "--prefill", "1", "--decode", "1")
PORTS = ("--http-port", "0", "--grpc-port", "0")
START_SECONDS = 120.0


@contextmanager
def baton_up(log: Path) -> Iterator[None]:
    """Run `baton up` until the context exits; its output goes to a file."""
    command = [str(ROOT / VENV / "bin" / "baton"), *COMMAND, *NAME, *PORTS]
    with log.open("wb") as out:
        process = session.start(command, ROOT, out, os.environ)
    try:
        until = time.monotonic() + START_SECONDS
        while not _is_found():
            if process.poll() is not None or time.monotonic() > until:
                raise SystemExit(f"baton up did not start: see {log}")
            time.sleep(0.2)
        yield
        if process.poll() is not None:
            raise SystemExit(f"baton up ended while the tests ran: see {log}")
    finally:
        session.end(process)


def _is_found() -> bool:
    """Return whether another command of this user finds a cluster. Tests must not find it."""
    command = [str(ROOT / VENV / "bin" / "baton"), "status", *NAME]
    clean = {name: value for name, value in os.environ.items() if not name.startswith("BATON_")}
    return subprocess.run(command, cwd=ROOT, env=clean, capture_output=True).returncode == 0
