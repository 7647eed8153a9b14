"""Directories in memory."""

import subprocess
from pathlib import Path

SECONDS = 30


def mount_memory(path: Path, options: str) -> None:
    """Put memory behind a directory.

    Args:
        path: exists.
        options: of the mount beside those that every one has.

    Raises:
        subprocess.CalledProcessError: it was refused; standard error has why.
    """
    options = f"nosuid,nodev,{options}"
    tmpfs = ["mount", "-t", "tmpfs", "-o", options, "baton-test", path]
    subprocess.run(tmpfs, check=True, timeout=SECONDS)


def unmount(path: Path | str) -> None:
    """Let go of a directory's memory, once nothing has files of it open any more.

    Raises:
        subprocess.CalledProcessError: nothing is mounted there.
    """
    subprocess.run(["umount", "--lazy", path], check=True, timeout=SECONDS)
