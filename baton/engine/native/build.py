"""Compile the operators: `python -m baton.engine.native.build`; `--all` for CPUs unlike this."""

import argparse
import fcntl
import hashlib
import os
import shlex
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import torch

from baton.engine.native.variants import Variant, compilable, runnable

SOURCE = Path(__file__).parent
_COMPILERS = ("c++", "g++", "clang++")
_FLAGS = (
    "-std=c++20",
    "-O3",
    "-fopenmp",
    "-fPIC",
    "-shared",
    "-Wno-ignored-attributes",
    "-ffp-contract=off",
)
_LIBRARIES = ("-lc10", "-ltorch_cpu", "-ltorch")
_COMPILE_SECONDS = 900
_SHOWN = 2000  # characters of what a compiler says


def library_path(variant: Variant) -> Path:
    """Return where the library of these sources, torch and variant is or would be.

    In the directory that torch keeps extensions in: $TORCH_EXTENSIONS_DIR, or the user's cache.
    """
    kept = os.environ.get("TORCH_EXTENSIONS_DIR")
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    directory = Path(kept) if kept else cache / "torch_extensions"
    digest = hashlib.sha256()
    for source in sorted((*SOURCE.glob("*.cpp"), *SOURCE.glob("*.h"))):
        digest.update(source.read_bytes())
    for part in (torch.__version__, *variant.flags, *_FLAGS):
        digest.update(b"\0" + part.encode())
    return directory / f"baton_native_{variant.name}_{digest.hexdigest()[:16]}.so"


def built_library() -> Path | None:
    """Return the best library for this CPU that was built, or None."""
    return next(filter(Path.exists, map(library_path, runnable())), None)


def build() -> Path:
    """Build this CPU's best library unless it is there, and return its path; takes half a minute.

    Raises:
        RuntimeError: there is no variant for this CPU, no C++ compiler, or the compiler failed.
        OSError: the directory cannot be written.
    """
    if not (variants := runnable()):
        raise RuntimeError("there is no variant for this CPU; x86-64-v3 (AVX2) is the least")
    return build_variant(variants[0])


def build_variant(variant: Variant) -> Path:
    """Build the library of a variant unless it is there, and return its path.

    One process builds at a time, and others wait for it: the lock goes with its process.

    Raises:
        RuntimeError: there is no C++ compiler, or it failed.
        OSError: the directory cannot be written.
    """
    path = library_path(variant)
    if path.exists():  # first: an image's is in a directory that is only read
        return path
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not path.exists():
            with tempfile.TemporaryDirectory(dir=path.parent) as scratch:
                made = Path(scratch) / path.name
                _compile(variant, made)
                made.rename(path)  # readers see it whole or not at all
    return path


def _compile(variant: Variant, library: Path) -> None:
    given = shlex.split(os.environ.get("CXX", ""))
    compiler = given or [found for found in _COMPILERS if shutil.which(found)][:1]
    if not compiler:
        raise RuntimeError(f"there is no C++ compiler: none of {', '.join(_COMPILERS)}")
    home = Path(torch.__file__).parent
    headers = (home / "include", home / "include/torch/csrc/api/include")
    command = [
        *compiler,
        *_FLAGS,
        *variant.flags,
        *(f"-isystem{directory}" for directory in headers),
        str(SOURCE / "ops.cpp"),
        f"-L{home / 'lib'}",
        *_LIBRARIES,
        "-o",
        str(library),
    ]
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
        raise RuntimeError(f"{compiler[0]} failed for {variant.name}: {ended.stdout[-_SHOWN:]}")


def _main() -> None:
    parser = argparse.ArgumentParser(description="Compile the engine's operators.")
    parser.add_argument(
        "--all", action="store_true", help="for every CPU of this architecture, not only this one"
    )
    every = parser.parse_args().all
    for path in map(build_variant, compilable()) if every else (build(),):
        sys.stdout.write(f"{path}\n")


if __name__ == "__main__":
    _main()
