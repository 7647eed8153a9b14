"""Compile the operators: `python -m baton.engine.native.build`; `--all` also for other CPUs."""

import argparse
import sys
from collections.abc import Iterable
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple

from baton.compiled.library import CPP, CompileError, Library
from baton.compiled.script import build_main
from baton.engine.native.tried import refusal
from baton.engine.native.variants import Variant, compilable, runnable, why_none_runs

SOURCE = Path(__file__).parent
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


class Built(NamedTuple):
    """A library of the operators."""

    variant: Variant
    path: Path
    reason: str = ""
    """Reason for which a better library is not used here; empty: it is the best."""


def library(variant: Variant) -> Library:
    """Return the description of the library of a variant. Torch is not imported.

    Raises:
        CompileError: torch is not installed.
    """
    found = find_spec("torch")
    if found is None or found.origin is None:
        raise CompileError("torch is not installed")
    home = Path(found.origin).parent
    headers = (home / "include", home / "include/torch/csrc/api/include")
    others = sorted((*SOURCE.rglob("*.cpp"), *SOURCE.rglob("*.h")))
    main = SOURCE / "ops.cpp"
    return Library(
        name=f"baton_native_{variant.name}",
        language=CPP,
        sources=(main, *(source for source in others if source != main)),
        flags=(*_FLAGS, *variant.flags),
        # The version identifies torch's own build: its commit, for CPUs or CUDA.
        built_with=((home / "version.py").read_text(), sys.implementation.cache_tag),
        paths=(
            *(f"-isystem{directory}" for directory in headers),
            f"-L{home / 'lib'}",
            *_LIBRARIES,
        ),
        command="python -m baton.engine.native.build",
    )


def built() -> Built | None:
    """Return the best library for this CPU that was fully built and may be used, or None.

    Takes seconds if a library that must be tried first has not been tried yet.
    """
    reason = ""
    for variant in runnable():
        if (path := library(variant).find()) is not None:
            if not (refused := _refusal(variant, path)):
                return Built(variant, path, reason)
            reason = reason or refused
    return None


def best_library() -> Library:
    """Return the description of this CPU's best library.

    Raises:
        CompileError: there is no variant for this CPU, or none that may be used, or torch is not
            installed.
    """
    return library(_best().variant)


def build() -> Built:
    """Build this CPU's best library unless it exists; takes half a minute.

    Raises:
        CompileError: there is no variant for this CPU, or none that may be used, there is no C++
            compiler, or the compiler failed.
        OSError: the directory is not writable.
    """
    while True:
        best = _best()
        path = library(best.variant).build()
        if not _refusal(best.variant, path):
            return Built(best.variant, path, best.reason)


def why_absent() -> str:
    """Return why no library was built for this CPU, and the remedy, in words."""
    try:
        return best_library().why_absent()
    except CompileError as error:
        return str(error)


class _Best(NamedTuple):
    variant: Variant
    reason: str


def _best() -> _Best:
    """Return the best variant that was not rejected, and why a better one was."""
    reason = ""
    for variant in runnable():
        path = library(variant).find()
        refused = _refusal(variant, path) if path is not None else ""
        if not refused:
            return _Best(variant, reason)
        reason = reason or refused
    raise CompileError(reason or why_none_runs())


def _refusal(variant: Variant, path: Path) -> str:
    found = refusal(path) if variant.tried else ""
    return f"{variant.name} is not used: {found}" if found else ""


def _build_all() -> Iterable[Path]:
    return (library(each).build() for each in compilable())


def _build_best() -> Iterable[Path]:
    best = build()
    if best.reason:
        sys.stderr.write(f"{best.reason}\n")
    return (best.path,)


def _main() -> None:
    parser = argparse.ArgumentParser(description="Compile the engine's operators.")
    parser.add_argument(
        "--all", action="store_true", help="for every CPU of this architecture, not only this one"
    )
    every = parser.parse_args().all
    build_main("the operators", _build_all if every else _build_best)


if __name__ == "__main__":
    _main()
