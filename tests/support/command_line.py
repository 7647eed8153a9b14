"""The command line in this process; its commands are built once, which takes 70 ms."""

import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache
from typing import Any

import structlog
import typer.testing
from typer.testing import CliRunner, Result

from baton.cli.app import app

typer.testing._get_command = cache(typer.testing._get_command)


def invoke(
    words: Sequence[str], env: Mapping[str, str] | None = None, *, color: bool = False
) -> Result:
    """Run `baton` with arguments, and variables beside those of this process."""
    with _log_of_others_apart():
        return CliRunner().invoke(app, words, env=env, color=color)


@contextmanager
def _log_of_others_apart() -> Iterator[None]:
    """Keep what a cluster in another thread of this process logs out of the command's output."""
    out, command = sys.stdout, threading.get_ident()
    before = structlog.get_config()["logger_factory"]

    def logger(*_: Any) -> structlog.PrintLogger:
        return structlog.PrintLogger(None if threading.get_ident() == command else out)

    structlog.configure(logger_factory=logger)
    try:
        yield
    finally:
        if structlog.get_config()["logger_factory"] is logger:
            structlog.configure(logger_factory=before)
