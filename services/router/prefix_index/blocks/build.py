"""Compile the table of blocks: run this file; requires a C compiler."""

from pathlib import Path

from baton.compiled.library import Library, c_library
from baton.compiled.script import build_main


def library() -> Library:
    """Return the sources and options of the library."""
    return c_library("blocks", Path(__file__), "table.c")


if __name__ == "__main__":
    build_main("the table of blocks", lambda: [library().build()])
