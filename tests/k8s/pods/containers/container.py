"""One run of one container."""

import asyncio
import os
import signal
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from tests.k8s.pods.containers.podman import Podman, PodmanError


class Container:
    """A container that runs, from its start until it has ended.

    Its process is watched by a pidfd, which costs nothing, and gets signals by it: podman is only
    started for what it alone can do.

    Args:
        podman: of the run.
        name: of podman's container.
        log: where its output goes, line by line with time and stream.
    """

    def __init__(self, podman: Podman, name: str, log: Path) -> None:
        self._podman = podman
        self.name = name
        self._log = log
        self._pidfd: int | None = None
        self._ended = asyncio.Event()

    async def start(self, pod: str, arguments: Sequence[str]) -> None:
        """Start it in a pod.

        Raises:
            PodmanError: there is no such image, or it cannot be run.
        """
        pid_file = self._log.with_suffix(".pid")
        await self._podman(
            *("run", "--detach", "--pod", pod, "--name", self.name, "--label", self._podman.label),
            *("--pidfile", str(pid_file), "--log-driver", "k8s-file"),
            *("--log-opt", f"path={self._log}", *arguments),
        )
        try:
            self._pidfd = os.pidfd_open(int(pid_file.read_text()))
        except (FileNotFoundError, ProcessLookupError):  # it has ended again
            self._ended.set()
        else:
            asyncio.get_running_loop().add_reader(self._pidfd, self._on_end)

    async def wait(self) -> int:
        """Return its exit code, once it has ended."""
        await self._ended.wait()
        return int(await self._podman("wait", self.name))

    async def ended(self) -> None:
        """Wait until it has ended."""
        await self._ended.wait()

    async def stop(self, seconds: float) -> bool:
        """Send SIGTERM, and SIGKILL after `seconds`; return whether SIGTERM was enough."""
        self._signal(signal.SIGTERM)
        with suppress(TimeoutError):
            async with asyncio.timeout(max(0.0, seconds)):
                await self._ended.wait()
            return True
        self._signal(signal.SIGKILL)
        await self._ended.wait()
        return False

    def kill(self) -> None:
        """End it as a lack of memory would."""
        self._signal(signal.SIGKILL)

    async def execute(self, command: list[str], seconds: float) -> tuple[int, str]:
        """Run a command in it; return exit code and output.

        Raises:
            TimeoutError: it took too long.
        """
        return await self._podman.execute(self.name, command, seconds)

    async def remove(self) -> None:
        """Let podman forget it."""
        self.close()
        with suppress(PodmanError):
            await self._podman("rm", "--force", "--time", "0", self.name)

    def close(self) -> None:
        """Watch it no longer."""
        if self._pidfd is not None:
            asyncio.get_running_loop().remove_reader(self._pidfd)
            os.close(self._pidfd)
            self._pidfd = None
        self._ended.set()

    def _signal(self, number: int) -> None:
        if self._pidfd is not None:
            with suppress(ProcessLookupError):
                signal.pidfd_send_signal(self._pidfd, number)

    def _on_end(self) -> None:
        self.close()
