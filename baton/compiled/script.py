"""The end of a script that compiles: paths on its output, or why not as how it exits."""

import sys
from collections.abc import Callable, Iterable
from pathlib import Path

from baton.compiled.library import CompileError


def build_main(what: str, build: Callable[[], Iterable[Path]]) -> None:
    """Build, and print the paths of what was built.

    Args:
        what: is built, for the sentence with which this exits where it cannot be.
        build: returns the paths; raises what `Library.build` raises.
    """
    try:
        for path in build():
            sys.stdout.write(f"{path}\n")
    except (CompileError, OSError) as error:
        sys.exit(f"cannot build {what}: {error}")
