"""A clone of HEAD without build outputs, with the packages that this checkout has installed.

The venv is copied by hard links, so that the clones need no installations of their own. Files that
name this checkout (programs, and where the package is found) are rewritten.
"""

import os
import shutil
import stat
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
VENV = ".venv"
STAMPS = (".made", ".runtime", ".dev", ".vllm", ".clickhouse")
"""The files by which make recognizes installed packages; newer than the clone's files."""


@contextmanager
def clone(directory: Path) -> Iterator[Path]:
    """Create the clone in a directory that does not exist, and remove it afterwards."""
    try:
        _run("git", "clone", "--quiet", "--local", ROOT, directory)
        _run("git", "-C", directory, "checkout", "--quiet", "--detach", head())
        _copy_venv(ROOT / VENV, directory / VENV)
        yield directory
    finally:
        shutil.rmtree(directory, ignore_errors=True)


def head() -> str:
    """Return the tested commit."""
    return _run("git", "-C", ROOT, "rev-parse", "HEAD")


def is_clean() -> bool:
    """Return whether the checkout equals that commit, except for untracked files."""
    return not _run("git", "-C", ROOT, "status", "--porcelain", "--untracked-files=no")


def _copy_venv(source: Path, target: Path) -> None:
    if not (source / ".dev").exists():
        raise SystemExit("nothing is installed here to be tested: make test, once")
    shutil.copytree(source, target, symlinks=True, copy_function=_link)
    paths = [target / "pyvenv.cfg", *(target / "bin").iterdir()]
    paths += target.glob("lib/python*/site-packages/*.pth")
    for path in paths:
        if path.is_file() and not path.is_symlink():
            _rewrite(path, os.fsencode(source.parent), os.fsencode(target.parent))
    for stamp in STAMPS:
        if (path := target / stamp).exists():
            path.unlink()  # a link
            path.touch()


def _link(source: str, target: str) -> None:
    try:
        os.link(source, target)
    except OSError:  # on another file system
        shutil.copy2(source, target)


def _rewrite(path: Path, old: bytes, new: bytes) -> None:
    content = path.read_bytes()
    if old not in content or b"\0" in content:
        return
    mode = stat.S_IMODE(path.stat().st_mode)
    path.unlink()  # otherwise the other checkout's file would be changed
    path.write_bytes(content.replace(old, new))
    path.chmod(mode)


def _run(*command: str | Path) -> str:
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"{' '.join(map(str, command))}: {done.stderr.strip()}")
    return done.stdout.strip()
