"""Compiles one part of the libraries, in a separate low-priority process."""

import os
import sys
from collections.abc import Iterator
from pathlib import Path

from baton.cli.cluster.local.compiling.parts import PARTS
from baton.compiled.library import CompileError

_NICE = 19


def main(part: str) -> None:
    """Build a part's libraries, one after another, and print their paths.

    Exit with the reasons if some could not be built; the others are built.
    """
    os.nice(_NICE)
    failed: list[str] = []
    for path in _build(part, failed):
        sys.stdout.write(f"{path}\n")
    if failed:
        sys.exit("\n".join(failed))


def _build(part: str, failed: list[str]) -> Iterator[Path]:
    for library in PARTS[part]():
        try:
            yield library.build()
        except (CompileError, OSError) as error:
            failed.append(f"cannot build {library.name}: {error}")


if __name__ == "__main__":
    main(sys.argv[1])
