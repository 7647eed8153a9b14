"""How answers look."""

import io

import pytest
from rich.console import Console

from baton.cli.render import AnswerPrinter, duration, print_steps, printable, size
from baton.client import Delta, Finished, Step, Usage


def test_steps_are_one_line_each() -> None:
    out = io.StringIO()
    steps = [
        Step("route", "router-0", 0.001, 0.0004, 40, 16, 0, "least wait"),
        Step("transfer", "kvstore-0", 0.01, 0.25, 40, 16, 3 << 20, "shm"),
    ]
    print_steps(Console(file=out, width=40), steps)
    lines = out.getvalue().splitlines()
    assert len(lines) == 3
    assert lines[1].split()[:2] == ["route", "router-0"]
    assert "3.0 MiB" in lines[2]
    assert "250 ms" in lines[2]


def test_text_is_printed_as_it_comes_and_is_no_markup() -> None:
    out = io.StringIO()
    printer = AnswerPrinter(Console(file=out, width=20))
    for text in ("[bold]a", " b" * 20, "\x1b[2J"):
        printer.feed(Delta(0, 0, (1,), text, ()))
    printer.feed(Finished(Usage(1, 0, 1, 1, 0.0, 0.0), ()))
    assert out.getvalue() == "[bold]a" + " b" * 20 + "·[2J\n"


def test_control_characters_do_not_reach_the_terminal() -> None:
    assert printable("a\x1b\x07\n\tb\x9b") == "a··\n\tb·"


@pytest.mark.parametrize(
    ("seconds", "text"), [(0.0004, "0.4 ms"), (0.012, "12 ms"), (1.25, "1.25 s")]
)
def test_durations(seconds: float, text: str) -> None:
    assert duration(seconds) == text


@pytest.mark.parametrize(("count", "text"), [(0, "0 B"), (1536, "1.5 KiB"), (1 << 30, "1.0 GiB")])
def test_sizes(count: int, text: str) -> None:
    assert size(count) == text
