"""Flushing of files, and of the names in a directory, to the disk."""

import os
from pathlib import Path


def flush_to_disk(path: Path) -> None:
    """Flush a file, or the names in a directory: after a crash they are there.

    Raises:
        OSError: it cannot be opened, or the disk failed.
    """
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
