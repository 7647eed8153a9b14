"""Build the operators for this machine: `python -m baton.engine.native.build`."""

import fcntl
import hashlib
import os
import platform
import shutil
import sys
import tempfile
from pathlib import Path

import torch

SOURCE = Path(__file__).parent
_FLAGS = ["-std=c++20", "-O3", "-march=native", "-fopenmp", "-Wno-ignored-attributes"]


def library_path() -> Path:
    """Return where the library for these sources, torch and CPU is or would be.

    In the directory that torch keeps extensions in: $TORCH_EXTENSIONS_DIR, or the user's cache.
    """
    kept = os.environ.get("TORCH_EXTENSIONS_DIR")
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    directory = Path(kept) if kept else cache / "torch_extensions"
    digest = hashlib.sha256()
    for source in sorted((*SOURCE.glob("*.cpp"), *SOURCE.glob("*.h"))):
        digest.update(source.read_bytes())
    for part in (torch.__version__, platform.machine(), _cpu_flags(), *_FLAGS):
        digest.update(b"\0" + part.encode())
    return directory / f"baton_native_{digest.hexdigest()[:16]}.so"


def build() -> Path:
    """Build the library unless it is there, and return its path; takes half a minute.

    One process builds at a time, and others wait for it: the lock goes with its process.

    Raises:
        RuntimeError: there is no C++ compiler or ninja, or the compiler failed.
        OSError: the directory cannot be written.
    """
    path = library_path()
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if path.exists():
            return path
        # Imported late: it is slow, and only the builder needs it.
        from torch.utils.cpp_extension import load

        with tempfile.TemporaryDirectory(dir=path.parent) as scratch:
            load(
                name=path.stem,
                sources=[str(SOURCE / "ops.cpp")],
                extra_cflags=_FLAGS,
                extra_ldflags=["-fopenmp"],
                build_directory=scratch,
                is_python_module=False,
            )
            # torch leaves the library beside the objects; readers see it whole or not at all.
            shutil.move(Path(scratch) / path.name, path)
    return path


def _cpu_flags() -> str:
    """Return what the compiler may use here: a library built on another machine may not run."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor()
    return next((line for line in lines if line.lower().startswith(("flags", "features"))), "")


if __name__ == "__main__":
    sys.stdout.write(f"{build()}\n")
