"""Compile the table of blocks: run this file; it needs a C compiler and nothing else of Baton."""

import hashlib
import os
import platform
import shlex
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

SOURCE = Path(__file__).with_name("table.c")
COMPILERS = ("cc", "gcc", "clang")
_FLAGS = ("-std=c11", "-O3", "-fPIC", "-shared", "-Wall", "-Wextra", "-Werror")
_COMPILE_SECONDS = 120
_SHOWN = 2000  # characters of what a compiler says


def library_path() -> Path:
    """Return where the library of this source is or would be.

    Beside the engine's: in $TORCH_EXTENSIONS_DIR, or the user's cache.
    """
    kept = os.environ.get("TORCH_EXTENSIONS_DIR")
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    directory = Path(kept) if kept else cache / "torch_extensions"
    digest = hashlib.sha256(SOURCE.read_bytes() + b"\0".join(map(str.encode, _FLAGS)))
    return directory / f"baton_blocks_{platform.machine()}_{digest.hexdigest()[:16]}.so"


def build() -> Path:
    """Build the library unless it is there, and return its path; takes a second.

    Raises:
        RuntimeError: there is no C compiler, or it failed.
        OSError: the directory cannot be written.
    """
    path = library_path()
    if path.exists():
        return path
    given = shlex.split(os.environ.get("CC", ""))
    compiler = given or [found for found in COMPILERS if shutil.which(found)][:1]
    if not compiler:
        raise RuntimeError(f"there is no C compiler: none of {', '.join(COMPILERS)}")
    path.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=path.parent) as scratch:
        made = Path(scratch) / path.name
        command = [*compiler, *_FLAGS, str(SOURCE), "-o", str(made)]
        try:
            ended = subprocess.run(
                command,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                timeout=_COMPILE_SECONDS,
                check=False,
            )
        except subprocess.TimeoutExpired:
            raise RuntimeError(f"{compiler[0]} took more than {_COMPILE_SECONDS} s") from None
        if ended.returncode:
            raise RuntimeError(f"{compiler[0]} failed: {ended.stdout[-_SHOWN:]}")
        made.rename(path)  # readers see it whole or not at all
    return path


if __name__ == "__main__":
    try:
        sys.stdout.write(f"{build()}\n")
    except (RuntimeError, OSError) as error:
        sys.exit(f"cannot build the table of blocks: {error}")
