"""Which code this is: its release, and the commit that it was built from.

A wheel has the commit in a file that its build wrote (scripts/build_hook.py); a checkout asks git.
"""

import os
import subprocess
from functools import cache
from pathlib import Path

from baton import __version__
from baton.host.bundled import root

COMMIT_FILE = Path(__file__).with_name("_commit")
_GIT_SECONDS = 5.0


@cache
def commit() -> str:
    """Return the first 8 digits of the commit, with `.dirty` where files differed from it.

    Empty where nothing tells: a source archive without git.
    """
    if (root() / ".git").exists():
        return describe_checkout(root())
    return COMMIT_FILE.read_text().strip() if COMMIT_FILE.exists() else ""


def describe_checkout(directory: Path) -> str:
    """Return the commit of a checkout as `commit` does; empty where git cannot tell."""
    describe = ["git", "-C", str(directory), "describe", "--always", "--exclude=*", "--abbrev=8"]
    try:
        done = subprocess.run(
            [*describe, "--dirty=.dirty"],
            env={**os.environ, "GIT_OPTIONAL_LOCKS": "0"},  # others work in it
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=_GIT_SECONDS,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout.strip() if done.returncode == 0 else ""


def full_version() -> str:
    """Return release and commit as PEP 440 writes them, for example `0.1.0+62147068`."""
    return f"{__version__}+{commit()}" if commit() else __version__
