"""Compile the placement scores: run this file; requires a C compiler."""

from pathlib import Path

from baton.compiled.library import Library, c_library
from baton.compiled.script import build_main


def library() -> Library:
    """Return the sources and options of the library."""
    return c_library("scores", Path(__file__), "scores.c", "-ffp-contract=off")


if __name__ == "__main__":
    build_main("the scores of placements", lambda: [library().build()])
