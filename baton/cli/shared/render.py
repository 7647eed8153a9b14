"""Printing of replies and steps on a terminal."""

from collections.abc import Iterable

from rich.cells import cell_len
from rich.console import Console
from rich.text import Text

from baton.cli.shared.table import TextTable, show
from baton.client import Delta, Event, Finished, Step, Usage
from baton.request.durations import duration


class WordWrap:
    """Wraps streamed text between words.

    An incomplete word is held back, because it may not fit. Spaces are kept, except at a break.

    Args:
        width: columns of the terminal.
    """

    def __init__(self, width: int) -> None:
        self._width = width
        self._column = 0
        self._spaces = ""
        self._word = ""

    def feed(self, text: str) -> str:
        """Return what can be printed now."""
        out = ""
        for letter in text:
            if letter == "\n":
                out += self.flush() + letter
                self._column, self._spaces = 0, ""
            elif letter.isspace():
                out += self.flush()
                self._spaces += " "
            elif cell_len(letter) > 1:  # such scripts break anywhere
                out += self.flush()
                self._word = letter
                out += self.flush()
            else:
                self._word += letter
                if len(self._word) >= self._width:
                    out += self.flush()
        return out

    def flush(self) -> str:
        """Return the word that was held back, which is now complete."""
        word, self._word = self._word, ""
        if not word:
            return ""
        columns = cell_len(word)
        if self._column and self._column + len(self._spaces) + columns > self._width:
            before, self._column = "\n", columns
        else:
            before = self._spaces
            self._column += len(before) + columns
        self._spaces = ""
        return before + word


class AnswerPrinter:
    """Prints one reply as its events arrive, wrapped between words on a terminal."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._wrap = WordWrap(console.width) if console.is_terminal else None

    def feed(self, event: Event) -> None:
        """Print the text of an event."""
        if isinstance(event, Delta) and event.text:
            text = printable(event.text)
            self._print(self._wrap.feed(text) if self._wrap is not None else text)
        elif isinstance(event, Finished):
            self.flush()
            self._console.print()

    def flush(self) -> None:
        """Print the text held back: the reply is complete."""
        if self._wrap is not None:
            self._print(self._wrap.flush())

    def _print(self, text: str) -> None:
        # Neither markup nor rich's wrapping: the text is the model's, and comes in pieces.
        self._console.print(Text(text), end="", soft_wrap=True, highlight=False)


def printable(text: str) -> str:
    """Return text with terminal control characters replaced by `·`."""
    return "".join(letter if letter.isprintable() or letter in "\n\t" else "·" for letter in text)


def usage_line(usage: Usage, seconds: float) -> Text:
    """Return one line with the tokens and duration of a reply."""
    return Text(
        f"{usage.output_tokens} tokens in {duration(seconds)}; "
        f"{usage.cached_tokens} of {usage.prompt_tokens} prompt tokens cached",
        style="dim",
    )


def steps_table(steps: Iterable[Step]) -> TextTable:
    """Return one row per step of a request."""
    numbers = ("start", "duration", "tokens", "cached", "moved")
    table = TextTable(("step", "instance", *numbers), right=frozenset(numbers))
    for step in steps:
        table.add(
            step.name,
            step.instance,
            f"+{duration(step.start_seconds)}",
            duration(step.duration_seconds),
            str(step.tokens),
            str(step.cached_tokens),
            size(step.bytes) if step.bytes else "",
            note=printable(step.detail),
        )
    return table


def print_steps(console: Console, steps: Iterable[Step]) -> None:
    """Print the steps of a request."""
    show(console, steps_table(steps))


def size(count: int) -> str:
    """Return bytes in a readable unit, in about three digits: `512 B`, `1.5 MiB`, `64 MiB`."""
    amount, units = float(count), ["B", "KiB", "MiB", "GiB", "TiB"]
    while amount >= 1024 and len(units) > 1:
        amount /= 1024
        units.pop(0)
    digits = f"{amount:.0f}" if amount >= 100 else f"{amount:.1f}".removesuffix(".0")
    return f"{digits} {units[0]}"
