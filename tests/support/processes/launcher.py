"""Processes of Baton, forked from one that has already imported everything.

Starting `baton serve kvstore` takes a second of CPU, nearly all of it for imports. The launcher is
a Python process that did them once. Its forks run the same `__main__`, each in its own process,
within some milliseconds. It has no threads and no open gRPC channel: neither would survive a fork.
It ends with the test session, and the processes that it started end with it.
"""

import asyncio
import json
import os
import select
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from bench.harness.releases import CHECKOUT, Release
from tests.support.clock import within
from tests.support.runs.host import variables

ROOT = Path(__file__).parents[3]
FORKER = Path(__file__).parent / "forker.py"
MAX_REQUEST_BYTES = 1 << 20


class Launched:
    """A process that a launcher forked, with the needed part of `subprocess.Popen`."""

    def __init__(self, launcher: "Launcher", pid: int) -> None:
        self.pid = pid
        self.returncode: int | None = None
        """As with Popen: negative if a signal ended it; None while it is running, as far as
        known."""
        self._launcher = launcher

    def poll(self) -> int | None:
        """Return the exit code, or None while the process runs."""
        if self.returncode is None:
            self.returncode = self._launcher.ask("poll", pid=self.pid)
        return self.returncode

    def wait(self, timeout: float = 60.0) -> int:
        """Block until the process ends.

        Raises:
            subprocess.TimeoutExpired: it did not end in time.
        """
        if (code := self.poll()) is not None:
            return code
        with self._pidfd() as ended:
            if not select.select([ended], [], [], timeout)[0]:
                raise subprocess.TimeoutExpired(f"process {self.pid}", timeout)
        return self._code()

    async def ended(self) -> int:
        """Wait until the process ends; return its exit code."""
        if (code := self.poll()) is not None:
            return code
        loop, event = asyncio.get_running_loop(), asyncio.Event()
        with self._pidfd() as ended:
            loop.add_reader(ended, event.set)
            try:
                await event.wait()
            finally:
                loop.remove_reader(ended)
        return self._code()

    @contextmanager
    def _pidfd(self) -> Iterator[int]:
        """Yield what can be read once the process has ended: to poll the launcher costs CPU."""
        descriptor = os.pidfd_open(self.pid)
        try:
            yield descriptor
        finally:
            os.close(descriptor)

    def _code(self) -> int:
        code = self.poll()
        assert code is not None, f"process {self.pid} has ended, and its launcher does not know"
        return code

    def send_signal(self, number: int) -> None:
        """Signal the process; no effect if it has ended."""
        if self.poll() is None:
            os.kill(self.pid, number)

    def terminate(self) -> None:
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)


@dataclass(frozen=True)
class Piped:
    """A process that communicates by lines."""

    process: Launched
    stdin: IO[bytes]
    stdout: asyncio.StreamReader

    async def line(self) -> str:
        """Return the next line of its output, without the line end; empty at the end."""
        return (await self.stdout.readline()).decode().rstrip("\n")

    def say(self, line: str) -> None:
        """Write a line to it."""
        self.stdin.write(line.encode() + b"\n")
        self.stdin.flush()

    def close(self) -> None:
        """Kill it if it runs."""
        self.process.kill()
        self.process.wait()
        self.stdin.close()


class Launcher:
    """The test's side of the launcher's process. Used by one thread.

    Args:
        release: the version of Baton that its processes run.
    """

    def __init__(self, release: Release = CHECKOUT) -> None:
        self._socket, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            self._popen = subprocess.Popen(
                [sys.executable, str(FORKER), str(theirs.fileno())],
                cwd=ROOT,
                env={**os.environ, **release.environment, "OMP_NUM_THREADS": "1"},
                stdin=subprocess.DEVNULL,
                pass_fds=[theirs.fileno()],
            )

    def launch(
        self,
        arguments: Sequence[str],
        env: Mapping[str, str],
        stdin: IO[Any] | int | None = None,
        stdout: IO[Any] | int | None = None,
        stderr: IO[Any] | int | None = None,
    ) -> Launched:
        """Run `python ARGUMENTS` in the repository's root.

        Args:
            arguments: `-m MODULE`, `-c CODE` or a script's path, and its arguments.
            env: the whole environment, except the variables that isolate tests from the host
                (host.py). If it names this process as the parent, the launcher becomes the parent.
            stdin: a file or descriptor; None: no input.
            stdout: the same; None: output is discarded.
            stderr: the same.
        """
        env = {**variables(), **env}
        with Path(os.devnull).open("r+b") as null:
            files = [null if each is None else each for each in (stdin, stdout, stderr)]
            fds = [each if isinstance(each, int) else each.fileno() for each in files]
            return Launched(self, self.ask("run", fds, arguments=list(arguments), env=env))

    async def launch_piped(self, arguments: Sequence[str], env: Mapping[str, str]) -> Piped:
        """Run it with pipes; its errors go to the tests' standard error."""
        (stdin, ours), (output, stdout) = os.pipe(), os.pipe()
        process = self.launch(arguments, env, stdin, stdout, stderr=2)
        os.close(stdin)
        os.close(stdout)
        reader = asyncio.StreamReader()
        protocol = asyncio.StreamReaderProtocol(reader)
        loop = asyncio.get_running_loop()
        await loop.connect_read_pipe(lambda: protocol, os.fdopen(output, "rb"))
        return Piped(process, os.fdopen(ours, "wb"), reader)

    async def run(
        self, arguments: Sequence[str], env: Mapping[str, str], timeout: float = 60.0
    ) -> tuple[int, str, str]:
        """Run it and wait for its end; return the exit code, output and errors."""
        with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
            process = self.launch(arguments, env, None, out, err)
            async with within(timeout):
                code = await process.ended()
            texts = []
            for file in (out, err):
                file.seek(0)
                texts.append(file.read().decode())
            return code, texts[0], texts[1]

    def ask(self, method: str, fds: Sequence[int] = (), **fields: Any) -> Any:
        """Send one request and return the response."""
        socket.send_fds(self._socket, [json.dumps({"method": method, **fields}).encode()], fds)
        answer = self._socket.recv(MAX_REQUEST_BYTES)
        if not answer:
            raise RuntimeError("the launcher's process has ended")
        return json.loads(answer)

    def close(self) -> None:
        """End the launcher and everything that it started."""
        self._socket.close()
        self._popen.wait(10)
