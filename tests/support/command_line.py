"""The command line in this process; its commands are built once, which takes 70 ms."""

from collections.abc import Mapping, Sequence
from functools import cache

import typer.testing
from typer.testing import CliRunner, Result

from baton.cli.app import app

typer.testing._get_command = cache(typer.testing._get_command)


def invoke(
    words: Sequence[str], env: Mapping[str, str] | None = None, *, color: bool = False
) -> Result:
    """Run `baton` with arguments, and variables beside those of this process."""
    return CliRunner().invoke(app, words, env=env, color=color)
