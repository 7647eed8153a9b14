"""One process of a local cluster."""

import asyncio
import os
import signal
import sys
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Protocol

from baton.cli.shared.errors import EXIT_FAILED, CommandError

TAIL_LINES = 8
TAIL_BYTES = 64 * 1024


class Child(Protocol):
    """A process as a supervisor handles it. `LocalEtcd` also implements it."""

    @property
    def pid(self) -> int | None:
        """Process id; None while it is not running."""

    @property
    def log_path(self) -> Path:
        """File with the output of all its starts."""

    async def start(self) -> None:
        """Start it, for the first time or again, and return once it runs."""

    async def wait(self) -> int:
        """Wait until it ends; return its exit code, negative for a signal."""

    async def stop(self) -> None:
        """Terminate it, and kill it if it does not end; no error if it is not running."""

    async def kill(self) -> None:
        """Kill it; no error if it is not running."""


class ServiceProcess:
    """`baton serve <name>`, configured by its environment, writing to a log file.

    Start it from a thread that lives as long as this process: the kernel ends it with that thread.

    Args:
        name: name of the process, as in `baton.serve.PROCESSES`.
        environment: settings, on top of this process's environment.
        log_path: where its output is appended.
        stop_seconds: how long `stop` waits before it kills.
    """

    def __init__(
        self, name: str, environment: Mapping[str, str], log_path: Path, stop_seconds: float
    ) -> None:
        self._name = name
        self._environment = dict(environment)
        self._log_path = log_path
        self._stop_seconds = stop_seconds
        self._process: asyncio.subprocess.Process | None = None

    @property
    def pid(self) -> int | None:
        process = self._process
        return process.pid if process is not None and process.returncode is None else None

    @property
    def log_path(self) -> Path:
        return self._log_path

    async def start(self) -> None:
        environment = {**os.environ, **self._environment, "BATON_PARENT_PID": str(os.getpid())}
        with self._log_path.open("ab") as log:
            self._process = await asyncio.create_subprocess_exec(
                sys.executable,
                "-P",  # a folder called `baton` in the working directory is not this one
                "-m",
                "baton",
                "serve",
                self._name,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=environment,
                process_group=0,  # a terminal's Ctrl-C is for the supervisor, which drains
            )

    async def wait(self) -> int:
        if self._process is None:
            raise CommandError(f"{self._name} was not started", EXIT_FAILED)
        return await self._process.wait()

    async def stop(self) -> None:
        if self._process is None or self._process.returncode is not None:
            return
        self._signal(signal.SIGTERM)
        try:
            async with asyncio.timeout(self._stop_seconds):
                await self._process.wait()
        except TimeoutError:
            await self.kill()

    async def kill(self) -> None:
        if self._process is not None and self._process.returncode is None:
            self._signal(signal.SIGKILL)
            await self._process.wait()

    def _signal(self, number: signal.Signals) -> None:
        # Not Popen.send_signal: that reaps a process that asyncio waits for.
        if self.pid is not None:
            with suppress(ProcessLookupError):  # it ended just now
                os.kill(self.pid, number)


def tail(log_path: Path, lines: int = TAIL_LINES) -> list[str]:
    """Return the last lines of a log; none if it does not exist."""
    try:
        with log_path.open("rb") as log:
            log.seek(max(0, log.seek(0, os.SEEK_END) - TAIL_BYTES))
            text = log.read().decode(errors="replace")
    except FileNotFoundError:
        return []
    return text.splitlines()[-lines:]


def exit_reason(code: int) -> str:
    """Return how a process ended: `ended with code 1`, `was killed by SIGKILL`."""
    if code >= 0:
        return f"exited with code {code}"
    try:
        return f"was killed by {signal.Signals(-code).name}"
    except ValueError:
        return f"was killed by signal {-code}"
