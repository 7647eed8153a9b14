"""Helper programs of benchmarks."""

import asyncio
import json
import os
import signal
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager, suppress
from pathlib import Path
from typing import IO, Any

from bench.harness import ROOT

STOP_SECONDS = 20.0
ANSWER_SECONDS = 600.0
LINE_BYTES = 1 << 28


@asynccontextmanager
async def process(
    command: Sequence[str | Path],
    settings: Mapping[str, str] = {},
    stdin: int | None = None,
    stdout: int | None = None,
    stderr: IO[Any] | None = None,
    *,
    kill_group: bool = False,
) -> AsyncIterator[Process]:
    """Run a program in the repository's root until the block exits.

    A program whose standard input is a pipe may then end by itself, since the pipe is closed.
    Otherwise, or if it takes too long, it is terminated, and killed if that takes too long as well.

    Args:
        command: the program and its arguments.
        settings: environment variables in addition to those of this process.
        stdin: `PIPE`, or None: that of this process. `stdout` as well.
        stdout: destination of its output.
        stderr: a file for standard error; None: that of this process.
        kill_group: whether it leads a process group that is killed at the end. Its session stays
            the same as this one: Linux shares cores between sessions before it considers niceness.
    """
    path = os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH"))))
    parent = {"PYTHONPATH": path, "BATON_PARENT_PID": str(os.getpid())}
    child = await asyncio.create_subprocess_exec(
        *map(str, command),
        cwd=ROOT,
        env={**os.environ, **parent, **settings},
        stdin=stdin,
        stdout=stdout,
        stderr=stderr,
        limit=LINE_BYTES,
        preexec_fn=os.setpgrp if kill_group else None,  # uvloop knows no process_group
    )
    try:
        yield child
    finally:
        try:
            if stdin is None or not await _ended(child):
                with suppress(ProcessLookupError):
                    child.terminate()
                if not await _ended(child):
                    child.kill()
                    await child.wait()
        finally:
            if kill_group:
                with suppress(ProcessLookupError):
                    os.killpg(child.pid, signal.SIGKILL)


async def _ended(child: Process) -> bool:
    if child.stdin is not None:
        child.stdin.close()  # `communicate` without an input does so only from Python 3.12 on
    try:
        async with asyncio.timeout(STOP_SECONDS):
            await child.communicate()
    except TimeoutError:
        return False
    return True


def log_path(name: str) -> Path:
    """Return the log path of the processes called `name`."""
    path = ROOT / "build" / "bench" / f"{name}.log"
    path.parent.mkdir(parents=True, exist_ok=True)
    return path


class Helper:
    """A program that responds on its standard output, line by line."""

    def __init__(self, name: str, child: Process) -> None:
        self._name = name
        self._child = child

    @property
    def pid(self) -> int:
        """The pid of its process."""
        return self._child.pid

    async def send(self, line: str) -> None:
        """Write a line to its standard input."""
        assert self._child.stdin is not None
        self._child.stdin.write(line.encode() + b"\n")
        await self._child.stdin.drain()

    async def receive(self) -> str:
        """Return the next line of its output.

        Raises:
            SystemExit: the program ended.
            TimeoutError: it wrote nothing for `ANSWER_SECONDS`.
        """
        assert self._child.stdout is not None
        async with asyncio.timeout(ANSWER_SECONDS):
            line = await self._child.stdout.readline()
        if not line:
            raise SystemExit(f"{self._name} ended: see what it said on standard error")
        return line.decode().strip()

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Stop its processes until the block exits: a waiting engine may spin on a core."""
        os.killpg(self._child.pid, signal.SIGSTOP)
        try:
            yield
        finally:
            os.killpg(self._child.pid, signal.SIGCONT)

    async def ask(self, question: Any) -> Any:
        """Send a line of JSON and return the response."""
        await self.send(json.dumps(question))
        return json.loads(await self.receive())


@asynccontextmanager
async def helper(
    module: str,
    *arguments: str | Path,
    python: str | Path = sys.executable,
    settings: Mapping[str, str] = {},
    stderr: IO[Any] | None = None,
) -> AsyncIterator[Helper]:
    """Run a module of `bench` until the block exits, with this or another environment's Python."""
    command = (python, "-m", module, *arguments)
    started = process(command, settings, PIPE, PIPE, stderr, kill_group=True)
    async with started as child:
        yield Helper(module, child)
