"""What runs leave that were killed: whose process is gone, its pods, network and mounts go too."""

import asyncio
import json
import os
from pathlib import Path

from tests.k8s.pods.containers.memory import unmount
from tests.k8s.pods.containers.podman import RUN_LABEL, Podman

PID_LABEL = "baton.test.pid"
DIRECTORY_LABEL = "baton.test.directory"


def owner(podman: Podman, directory: Path) -> list[str]:
    """Return the labels of a run's network, by which it is found when its process is gone."""
    labels = (podman.label, f"{PID_LABEL}={os.getpid()}", f"{DIRECTORY_LABEL}={directory}")
    return [word for label in labels for word in ("--label", label)]


def link_name(run: str) -> str:
    """Return the name of the link that has the addresses of a run's Services."""
    return f"baton{run}"


async def remove_abandoned(directory: Path) -> list[str]:
    """Remove what is left of runs whose process is gone, and return which.

    Args:
        directory: for podman's configuration.
    """
    podman = Podman("abandoned", directory)
    names = await podman("network", "ls", "--quiet", "--filter", f"label={RUN_LABEL}")
    removed = []
    for name in names.split():
        labels = json.loads(await podman("network", "inspect", name))[0]["labels"]
        if PID_LABEL not in labels or _exists("/proc", labels[PID_LABEL]):
            continue
        run = labels[RUN_LABEL]
        await Podman(run, directory).clean()
        if _exists("/sys/class/net", link_name(run)):
            await ip("link", "del", link_name(run))
        await asyncio.to_thread(_unmount, labels[DIRECTORY_LABEL])
        removed.append(run)
    return removed


async def ip(*arguments: str) -> None:
    """Run `ip`.

    Raises:
        OSError: it failed; standard error has why.
    """
    child = await asyncio.create_subprocess_exec("ip", *arguments)
    if await child.wait():
        raise OSError(f"ip {' '.join(arguments)} failed")


def _exists(directory: str, name: str) -> bool:
    return Path(directory, name).exists()


def _unmount(directory: str) -> None:
    mounted = [line.split()[1] for line in Path("/proc/mounts").read_text().splitlines()]
    for path in mounted:
        if path.startswith(f"{directory}/"):
            unmount(path)
