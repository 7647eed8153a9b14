"""Directories in memory."""

import os
import re
import subprocess
from collections.abc import Callable
from pathlib import Path

SECONDS = 30
SOURCE = "baton-test"
"""What stands where other mounts have their device, before the process that mounted."""
_ESCAPED = re.compile(r"\\([0-7]{3})")


def mount_memory(path: Path, options: str) -> None:
    """Put memory behind a directory.

    Args:
        path: exists.
        options: of the mount beside those that every one has.

    Raises:
        subprocess.CalledProcessError: it was refused; standard error has why.
    """
    options = f"nosuid,nodev,{options}"
    tmpfs = ["mount", "-t", "tmpfs", "-o", options, f"{SOURCE}-{os.getpid()}", path]
    subprocess.run(tmpfs, check=True, timeout=SECONDS)


def unmount(path: Path | str) -> None:
    """Let go of a directory's memory, once nothing has files of it open any more.

    Raises:
        subprocess.CalledProcessError: nothing is mounted there.
    """
    subprocess.run(["umount", "--lazy", path], check=True, timeout=SECONDS)


def abandoned_mounts(mounts: str, lives: Callable[[str], bool]) -> list[str]:
    """Return where memory is mounted by processes that live no more, the last one first.

    Directories are not looked at: pytest renames those of earlier runs.

    Args:
        mounts: the text of /proc/mounts.
        lives: whether there is a process of an id.
    """
    found = []
    for line in mounts.splitlines():
        source, path, *_ = line.split(" ")
        name, _, process = source.rpartition("-")
        if source == SOURCE or (name == SOURCE and not lives(process)):
            found.append(_ESCAPED.sub(lambda match: chr(int(match[1], 8)), path))
    return found[::-1]
