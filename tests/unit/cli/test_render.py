"""How answers look."""

import io
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len
from rich.console import Console

from baton.cli.shared.render import AnswerPrinter, WordWrap, print_steps, printable, size
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
    assert lines[1].endswith("least wait")
    assert "3 MiB" in lines[2]
    assert "250 ms" in lines[2]


def test_text_is_printed_as_it_comes_and_is_no_markup() -> None:
    out = io.StringIO()
    printer = AnswerPrinter(Console(file=out, width=20))
    for text in ("[bold]a", " b" * 20, "\x1b[2J"):
        printer.feed(Delta(0, 0, (1,), text, ()))
    printer.feed(Finished(Usage(1, 0, 1, 1, 0.0, 0.0), ()))
    assert out.getvalue() == "[bold]a" + " b" * 20 + "·[2J\n"


WORDS = st.text(st.sampled_from("ab .,-  \n\u6f22"), max_size=60)


@given(text=WORDS, cuts=st.lists(st.integers(0, 60)))
def test_on_a_terminal_text_is_broken_between_words_however_it_comes(
    text: str, cuts: list[int]
) -> None:
    width = 12
    wrap = WordWrap(width)
    bounds = [0, *sorted(min(cut, len(text)) for cut in cuts), len(text)]
    printed = "".join(wrap.feed(text[a:b]) for a, b in pairwise(bounds)) + wrap.flush()
    assert printed.replace("\u6f22", " \u6f22 ").split() == (
        text.replace("\u6f22", " \u6f22 ").split()
    ) or any(len(word) > width for word in text.split())
    assert "".join(printed.split()) == "".join(text.split())
    longest = max((len(word) for word in text.split()), default=0)
    assert all(cell_len(line) <= max(width, longest) + 1 for line in printed.split("\n"))
    whole = WordWrap(width)
    assert printed == whole.feed(text) + whole.flush()


def test_an_answer_on_a_terminal_breaks_no_word() -> None:
    out = io.StringIO()
    printer = AnswerPrinter(Console(file=out, width=20, force_terminal=True))
    for text in ("Once upon a time the", "re was a pati", "ent fox"):
        printer.feed(Delta(0, 0, (1,), text, ()))
    printer.feed(Finished(Usage(1, 0, 1, 1, 0.0, 0.0), ()))
    assert out.getvalue().splitlines() == ["Once upon a time", "there was a patient", "fox"]


def test_control_characters_do_not_reach_the_terminal() -> None:
    assert printable("a\x1b\x07\n\tb\x9b") == "a··\n\tb·"


@pytest.mark.parametrize(
    ("count", "text"), [(0, "0 B"), (1536, "1.5 KiB"), (1 << 30, "1 GiB"), (200 << 10, "200 KiB")]
)
def test_sizes(count: int, text: str) -> None:
    assert size(count) == text
