"""Where compiled libraries lie, and how they get there whole.

A library's last bytes seal its name and what stands before them, so that no half-written file and
none of other sources is ever loaded.
"""

import hashlib
import os
from pathlib import Path

from baton import __version__
from baton.host.bundled import root

DIRECTORY_ENV = "BATON_NATIVE_DIRECTORY"
VARIANT_ENV = "BATON_NATIVE_VARIANT"
"""Names the one variant of the engine's operators to take, such as one that all CPUs run."""
PREBUILT = Path(__file__).parents[1] / "_native"
"""Where a wheel has those that were compiled for it."""
_SEAL_BYTES = hashlib.sha256().digest_size


def directory() -> Path:
    """Return where libraries are built: $BATON_NATIVE_DIRECTORY, or where no others' are.

    That is `build/native` of a checkout; of an installed wheel, a directory of its version in the
    user's state.
    """
    if given := os.environ.get(DIRECTORY_ENV):
        return Path(given)
    if (root() / "pyproject.toml").exists():
        return root() / "build/native"
    state = os.environ.get("XDG_STATE_HOME")
    return (Path(state) if state else Path.home() / ".local/state") / "baton" / __version__


def find(name: str) -> Path | None:
    """Return where a library of this file name is whole, or None."""
    candidates = (directory() / name, PREBUILT / name)
    return next((path for path in candidates if is_whole(path)), None)


def seal(made: Path, name: str) -> None:
    """Append the digest of a file's name-to-be and content, and write it all to the disk."""
    digest = _digest(name, made.read_bytes())
    with made.open("ab") as file:
        file.write(digest)
        file.flush()
        os.fsync(file.fileno())


def is_whole(path: Path) -> bool:
    """Return whether a file is there and was sealed by its name."""
    try:
        content = path.read_bytes()
    except OSError:
        return False
    return content[-_SEAL_BYTES:] == _digest(path.name, content[:-_SEAL_BYTES])


def _digest(name: str, content: bytes) -> bytes:
    return hashlib.sha256(name.encode() + b"\0" + content).digest()
