"""A Postgres server as a child of this process."""

import asyncio
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Self
from urllib.parse import quote

from pydantic import SecretStr

from baton.postgres.connecting import StateError, connected
from baton.postgres.local.programs import NOBODY, find_programs, make_directory, usable_programs
from baton.postgres.schema import upgrade
from baton.settings import StartupError, StateSettings

# Becomes a program of Postgres, which root may not run: another user, then, and the kernel shuts it
# down when this process dies (PR_SET_PDEATHSIG is 1, and is lost with a change of the user).
# SIGQUIT is Postgres' immediate shutdown: all its processes end, and its shared memory goes.
_LAUNCHER = """
import ctypes, os, signal, sys
parent, user = int(sys.argv[1]), int(sys.argv[2])
if user:
    os.setgroups([])
    os.setgid(user)
    os.setuid(user)
if sys.platform == "linux":
    ctypes.CDLL(None).prctl(1, signal.SIGQUIT, 0, 0, 0)
if os.getppid() == parent:
    os.execv(sys.argv[3], sys.argv[3:])
"""

START_SECONDS = 60.0
STOP_SECONDS = 5.0
POLL_SECONDS = 0.02
LOG_TAIL_LINES = 20
_HELD = b"pre-existing shared memory block"
"""Log line of a server that cannot start: a running statement ends a while after its server."""
_USER = "baton"
_DATABASE = "postgres"
_SMALL = {
    "listen_addresses": "",
    "unix_socket_permissions": "0700",
    "max_connections": "100",
    "shared_buffers": "32MB",
    "max_wal_size": "256MB",
    "min_wal_size": "32MB",
    "wal_level": "minimal",
    "max_wal_senders": "0",
    # In files of its data: files in /dev/shm remain when it is killed.
    "dynamic_shared_memory_type": "mmap",
    "jit": "off",
    "log_min_messages": "warning",
}


class LocalPostgres:
    """One Postgres server on a socket of this machine; entering starts it, leaving stops it.

    The server dies with this process: start it from a thread that lives as long. Data survives
    `stop` and `kill`, so that `start` continues from it. It is not bound to an event loop.

    Args:
        directory: of its data and its socket, as `make_directory` makes it; `start` does where
            it is missing. The caller removes it with `remove_data`.
        log_path: where its output is appended; None: `postgres.log` in the directory.
        durable: wait for the disk at each commit. If false, commits survive `kill` but not a crash
            of the machine.
        options: settings of Postgres beside those of a small server.
    """

    def __init__(
        self,
        directory: Path,
        log_path: Path | None = None,
        *,
        durable: bool = False,
        options: Mapping[str, str] = MappingProxyType({}),
    ) -> None:
        self._directory = directory
        self._options = options
        self._durable = durable
        self._log_path = log_path or directory / "postgres.log"
        self._user = NOBODY if os.getuid() == 0 else 0
        self._process: subprocess.Popen[bytes] | None = None

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop()

    @property
    def url(self) -> str:
        """Its URL, as for `state.url`; available once its directory exists."""
        return self.url_of(_DATABASE)

    @property
    def pid(self) -> int | None:
        """Process id; None while it is not running."""
        return self._process.pid if self._process and self._process.poll() is None else None

    @property
    def log_path(self) -> Path:
        """File with the output of all its starts."""
        return self._log_path

    def url_of(self, database: str) -> str:
        """Return the URL of one of its databases."""
        return f"postgresql://{_USER}@/{database}?host={quote(str(self._directory.resolve()))}"

    def log_tail(self) -> str:
        """Return the last lines of its log."""
        if not self.log_path.exists():
            return ""
        lines = self.log_path.read_text(errors="replace").splitlines()
        return "\n".join(lines[-LOG_TAIL_LINES:])

    async def start(self) -> None:
        """Start the server and wait until it responds.

        Raises:
            StartupError: there is no Postgres, or it exited or did not respond in time; the message
                contains the last lines of its log.
        """
        programs = find_programs()
        if not self._directory.exists():
            make_directory(self._directory)
        programs = usable_programs(programs, self._directory)
        # The resolved path: its user may not be able to enter the link's directory.
        real = self._directory.resolve()
        data = real / "data"
        if not data.exists():
            await self._initialize(programs, data)
        options = _SMALL | {"unix_socket_directories": str(real)}
        if not self._durable:
            options |= {"fsync": "off", "full_page_writes": "off"}
        options |= self._options
        flags = [part for name, value in options.items() for part in ("-c", f"{name}={value}")]
        deadline = asyncio.get_running_loop().time() + START_SECONDS
        while True:
            logged = self.log_path.stat().st_size if self.log_path.exists() else 0
            self._process = self._launch(programs / "postgres", "-D", str(data), *flags)
            try:
                await self._wait_ready(self._process, deadline)
                return
            except BaseException as error:
                await self.kill()
                held = isinstance(error, StartupError) and self._is_held(logged)
                if not held or asyncio.get_running_loop().time() > deadline:
                    raise
            await asyncio.sleep(POLL_SECONDS)

    async def wait(self) -> int:
        """Wait until it ends; return its exit code, negative for a signal."""
        # Polled, because asyncio's own processes belong to the loop that started them.
        while self._process is not None and self._process.poll() is None:  # noqa: ASYNC110
            await asyncio.sleep(POLL_SECONDS)
        return self._process.returncode if self._process is not None else 0

    async def stop(self) -> None:
        """Shut it down, within a few seconds; no error if it is not running."""
        if self._process is None or self._process.poll() is not None:
            return
        self._process.send_signal(signal.SIGINT)  # does not wait for clients
        try:
            async with asyncio.timeout(STOP_SECONDS):
                await self.wait()
        except TimeoutError:
            await self.kill()

    async def kill(self) -> None:
        """Kill it, as a crash would; no error if it is not running."""
        if self._process is not None:
            self._process.kill()
            await self.wait()

    async def _initialize(self, programs: Path, data: Path) -> None:
        """Create the data atomically: a partial directory from before is created again."""
        new = data.with_suffix(".new")
        shutil.rmtree(new, ignore_errors=True)
        flags = ("--username", _USER, "--auth=trust", "--encoding=UTF8", "--locale=C", "--no-sync")
        process = self._launch(programs / "initdb", "-D", str(new), *flags, "--no-instructions")
        self._process = process
        try:
            async with asyncio.timeout(START_SECONDS):
                code = await self.wait()
        except BaseException:
            process.kill()
            process.wait()
            raise
        if code != 0:
            raise StartupError(
                f"initdb exited with code {code}. Its last lines:\n{self.log_tail()}"
            )
        new.rename(data)

    def _launch(self, program: Path, *arguments: str) -> subprocess.Popen[bytes]:
        launcher = [sys.executable, "-I", "-S", "-c", _LAUNCHER]
        with self.log_path.open("ab") as log:
            return subprocess.Popen(
                [*launcher, str(os.getpid()), str(self._user), str(program), *arguments],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd=self._directory,
                env={k: v for k, v in os.environ.items() if not k.startswith("PG")},
                start_new_session=True,  # a terminal's Ctrl-C must not reach it
            )

    def _is_held(self, since: int) -> bool:
        """Return whether it could not start because processes of a killed server still run."""
        with self.log_path.open("rb") as log:
            log.seek(since)
            return _HELD in log.read()

    async def _wait_ready(self, process: subprocess.Popen[bytes], deadline: float) -> None:
        settings = StateSettings(url=SecretStr(self.url), connect_seconds=1)
        while True:
            if process.poll() is not None:
                raise StartupError(
                    f"Postgres exited with code {process.returncode}. Its last lines:\n"
                    f"{self.log_tail()}"
                )
            try:
                async with connected(settings):
                    return
            except StateError as error:
                if asyncio.get_running_loop().time() > deadline:
                    raise StartupError(
                        f"Postgres is not ready after {START_SECONDS:g} s ({error}). Its last "
                        f"lines:\n{self.log_tail()}"
                    ) from error
            await asyncio.sleep(POLL_SECONDS)


class LocalDatabase(LocalPostgres):
    """A server whose database has the schema of this release as soon as it has started."""

    async def start(self) -> None:
        """Start it, wait until it responds, and upgrade the schema.

        Raises:
            StartupError: it did not start, or its schema is newer.
        """
        await super().start()
        try:
            await upgrade(StateSettings(url=SecretStr(self.url)))
        except StateError as error:
            await self.kill()
            raise StartupError(f"The schema cannot be upgraded: {error}.") from error
