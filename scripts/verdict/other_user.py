"""Run the tests as another user who may write only into the clone, in another time zone and locale.

Nothing is left on the host: the user is only a number, and its home is a directory owned by root.
"""

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from scripts.verdict.clone import VENV

USER = 65534
ZONE, LOCALE = "Asia/Kathmandu", "C"
"""A quarter of an hour off other zones; not UTF-8."""
ENVIRONMENT = {"TZ": ZONE, "TESTS_TZ": ZONE, "LANG": LOCALE, "TESTS_LANG": LOCALE}


@dataclass(frozen=True)
class OtherUser:
    """How to run commands as that user."""

    command: tuple[str, ...]
    """Prefix of the commands."""
    environment: dict[str, str]


@contextmanager
def other_user(checkout: Path) -> Iterator[OtherUser]:
    """Give a clone to another user if this user is root; otherwise only replace its home.

    Args:
        checkout: the clone, in a directory that others can enter.
    """
    with tempfile.TemporaryDirectory(prefix="baton-verdict-") as name:
        Path(name).chmod(0o755)
        home = Path(name) / "home"
        home.mkdir(mode=0o555)
        environment = ENVIRONMENT | {"HOME": str(home), "XDG_CACHE_HOME": str(home / "cache")}
        if os.getuid() != 0:
            yield OtherUser((), environment)
            return
        if prefix := _open_interpreter(checkout / VENV, Path(name) / "python"):
            environment["LD_LIBRARY_PATH"] = str(prefix / "lib")
        ids = (f"--reuid={USER}", f"--regid={USER}", "--clear-groups")
        command = ("setpriv", *ids, "--inh-caps=-all", "--")
        for path in (checkout, *_own(checkout)):
            os.chown(path, USER, USER, follow_symlinks=False)
        works = [*command, str(checkout / VENV / "bin" / "python"), "-c", ""]
        given = {**os.environ, **environment}
        if subprocess.run(works, cwd=checkout, env=given, stderr=subprocess.DEVNULL).returncode:
            sys.exit(f"user {USER} cannot run the clone's Python in {checkout}: set TMPDIR")
        yield OtherUser(command, environment | {"USER": "nobody", "LOGNAME": "nobody"})


def _own(checkout: Path) -> Iterator[Path]:
    """Yield the files that belong to the clone alone: the venv's files are links."""
    for path in checkout.iterdir():
        yield path
        if path.is_dir() and not path.is_symlink():
            if path.name == VENV:
                yield from (each for each in path.rglob("*") if each.is_dir())
            else:
                yield from path.rglob("*")


def _open_interpreter(venv: Path, copy: Path) -> Path | None:
    """Give the venv a copy of its interpreter if that is in root's home; return its directory."""
    real = (venv / "bin" / "python").resolve()
    prefix = real.parents[1]
    if all(part.stat().st_mode & 0o001 for part in real.parents):
        return None
    shutil.copytree(prefix, copy, symlinks=True, ignore=shutil.ignore_patterns("test", "tests"))
    for path in (venv / "bin").glob("python*"):
        if path.is_symlink() and path.readlink().is_absolute():
            path.unlink()
            path.symlink_to(copy / "bin" / real.name)
    config = venv / "pyvenv.cfg"
    text = config.read_text().replace(str(prefix), str(copy))
    config.unlink()
    config.write_text(text)
    config.chmod(0o644)
    return copy
