"""`--help` of every command on a terminal of 80 columns: whole words, nothing cut off."""

import re
from collections.abc import Iterator
from typing import Any

import pytest
import typer.main

from baton.cli.app import app
from tests.support.command_line import invoke

WIDTH = 80


def commands(command: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    yield path, command
    for name, inner in getattr(command, "commands", {}).items():
        yield from commands(inner, (*path, name))


COMMAND = typer.main.get_command(app)
ALL = dict(commands(COMMAND))


@pytest.fixture(autouse=True)
def commands_are_made_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """And not of all functions for each `--help` anew."""
    monkeypatch.setattr("typer.testing._get_command", lambda _: COMMAND)


@pytest.mark.parametrize("path", ALL, ids=" ".join)
def test_help_fits_and_breaks_no_word(path: tuple[str, ...]) -> None:
    command = ALL[path]
    variables = {"COLUMNS": str(WIDTH), "TERMINAL_WIDTH": str(WIDTH)}
    result = invoke([*path, "--help"], variables, color=True)
    assert result.exit_code == 0, result.output
    assert max(map(len, result.output.splitlines())) <= WIDTH
    said = {word for text in texts(command) for word in words(text)}
    assert said - words(result.output) == set()


def words(text: str) -> set[str]:
    return set(re.sub(r"[][;]", " ", text).split())


def texts(command: Any) -> Iterator[str]:
    if not command.add_help_option:  # it prints its own
        return
    yield command.help or ""
    for name, inner in getattr(command, "commands", {}).items():
        if not inner.hidden:
            yield name
            yield inner.help.splitlines()[0]
    for parameter in command.params:
        yield from parameter.opts if parameter.param_type_name == "option" else ()
        yield getattr(parameter, "help", None) or ""
        yield parameter.envvar or ""


def test_choices_are_listed_whole() -> None:
    shown = invoke(["up", "--help"], {"COLUMNS": str(WIDTH)}).output
    assert "<auto|float32|bfloat16|float64>" in shown.split()
