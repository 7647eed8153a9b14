"""podman, by its command line; all that a run of tests makes carries a label of that run."""

import asyncio
import os
import resource
import shutil
from asyncio.subprocess import PIPE
from contextlib import suppress
from pathlib import Path

COMMAND_SECONDS = 120.0
AT_ONCE = 6
RUN_LABEL = "baton.test.run"
NEEDED = {"podman": "podman", "runc": "runc", "iptables": "iptables", "ip": "iproute2"}
"""Programs, and the packages of Debian that have them."""
CONFIG = """\
[containers]
default_ulimits = ["nofile={files}:{files}", "nproc={processes}:{processes}"]
[engine]
cgroup_manager = "cgroupfs"
runtime = "runc"
events_logger = "file"
"""
"""crun refuses where cgroups are hybrid; without these limits podman asks for more than root may
have where that is bounded."""
MOST_FILES, MOST_PROCESSES = 65536, 4096


class PodmanError(Exception):
    """podman refused; the text is its own."""


def missing() -> str:
    """Return why no pods can be run on this machine; empty: they can."""
    if os.geteuid() != 0:
        return "pods need root: they get addresses, and volumes that are mounted"
    absent = [package for program, package in NEEDED.items() if shutil.which(program) is None]
    return f"apt-get install {' '.join(absent)}" if absent else ""


class Podman:
    """Runs podman with this run's label.

    Args:
        run: names the run; everything is found, and removed, by it.
        directory: for podman's configuration.
    """

    def __init__(self, run: str, directory: Path) -> None:
        self.label = f"{RUN_LABEL}={run}"
        config = directory / "containers.conf"
        files = _limit(resource.RLIMIT_NOFILE, MOST_FILES)
        processes = _limit(resource.RLIMIT_NPROC, MOST_PROCESSES)
        config.write_text(CONFIG.format(files=files, processes=processes))
        self._environment = {**os.environ, "CONTAINERS_CONF": str(config)}
        self._slots = asyncio.Semaphore(AT_ONCE)

    async def __call__(self, *arguments: str, seconds: float = COMMAND_SECONDS) -> str:
        """Run podman and return its output.

        Raises:
            PodmanError: it failed.
            TimeoutError: it took too long, and was killed.
        """
        async with self._slots:
            code, output, errors = await self._run(arguments, seconds)
        if code:
            raise PodmanError(f"podman {' '.join(arguments[:3])} …: {errors.strip()}")
        return output.strip()

    async def execute(self, container: str, command: list[str], seconds: float) -> tuple[int, str]:
        """Run a command in a container; return its exit code and what it wrote.

        Raises:
            TimeoutError: it took too long.
        """
        code, output, errors = await self._run(("exec", container, *command), seconds)
        return code, output + errors

    async def clean(self) -> None:
        """Remove all containers, pods and networks of this run."""
        pods = (await self("pod", "ls", "-q", "--filter", f"label={self.label}")).split()
        if pods:
            await self("pod", "rm", "-f", "-t", "0", *pods)
        networks = (await self("network", "ls", "-q", "--filter", f"label={self.label}")).split()
        if networks:
            await self("network", "rm", "-f", *networks)

    async def _run(self, arguments: tuple[str, ...], seconds: float) -> tuple[int, str, str]:
        child = await asyncio.create_subprocess_exec(
            "podman", *arguments, env=self._environment, stdout=PIPE, stderr=PIPE
        )
        try:
            async with asyncio.timeout(seconds):
                output, errors = await child.communicate()
        finally:
            if child.returncode is None:
                with suppress(ProcessLookupError):  # it has just ended
                    child.kill()
                await child.wait()
        assert child.returncode is not None
        return child.returncode, output.decode(), errors.decode()


def _limit(which: int, most: int) -> int:
    _, hard = resource.getrlimit(which)
    return most if hard == resource.RLIM_INFINITY else min(hard, most)
