"""What runs leave that were killed: whose process is gone, its pods, network and mounts go too."""

import asyncio
import json
import os
from pathlib import Path

from tests.k8s.pods.containers.memory import abandoned_mounts, unmount
from tests.k8s.pods.containers.podman import RUN_LABEL, Podman

PID_LABEL = "baton.test.pid"


def owner(podman: Podman) -> list[str]:
    """Return the labels of a run's network, by which it is found when its process is gone."""
    labels = (podman.label, f"{PID_LABEL}={os.getpid()}")
    return [word for label in labels for word in ("--label", label)]


def link_name(run: str) -> str:
    """Return the name of the link that has the addresses of a run's Services."""
    return f"baton{run}"


async def remove_abandoned(directory: Path) -> list[str]:
    """Remove what is left of runs whose process is gone, and return those that had a network.

    Args:
        directory: for podman's configuration.
    """
    podman = Podman("abandoned", directory)
    names = await podman("network", "ls", "--quiet", "--filter", f"label={RUN_LABEL}")
    removed = []
    for name in names.split():
        labels = json.loads(await podman("network", "inspect", name))[0]["labels"]
        if PID_LABEL not in labels or _lives(labels[PID_LABEL]):
            continue
        run = labels[RUN_LABEL]
        await Podman(run, directory).clean()
        if _exists("/sys/class/net", link_name(run)):
            await ip("link", "del", link_name(run))
        removed.append(run)
    # After the pods, which have files open there; also of runs that had no network any more.
    await asyncio.to_thread(_unmount)
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


def _lives(process: str) -> bool:
    return _exists("/proc", process)


def _unmount() -> None:
    for path in abandoned_mounts(Path("/proc/mounts").read_text(), _lives):
        unmount(path)
