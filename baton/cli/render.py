"""How answers and steps are printed on a terminal."""

from collections.abc import Iterable

from rich.console import Console
from rich.text import Text

from baton.client import Delta, Event, Finished, Step, Usage


class AnswerPrinter:
    """Prints one answer as its events arrive."""

    def __init__(self, console: Console) -> None:
        self._console = console

    def feed(self, event: Event) -> None:
        """Print the text of an event."""
        if isinstance(event, Delta) and event.text:
            # Neither markup nor wrapping: the text is the model's, and comes in pieces.
            self._console.print(
                Text(printable(event.text)), end="", soft_wrap=True, highlight=False
            )
        elif isinstance(event, Finished):
            self._console.print()


def printable(text: str) -> str:
    """Return text without characters that control the terminal; they show as `·`."""
    return "".join(letter if letter.isprintable() or letter in "\n\t" else "·" for letter in text)


def usage_line(usage: Usage, seconds: float) -> Text:
    """Return one line with the tokens and duration of an answer."""
    return Text(
        f"{usage.output_tokens} tokens in {duration(seconds)}; "
        f"of {usage.prompt_tokens} prompt tokens {usage.cached_tokens} were cached",
        style="dim",
    )


def steps_lines(steps: Iterable[Step]) -> list[Text]:
    """Return one line per step of a request, in columns, below a heading."""
    heading = ("step", "instance", "start", "duration", "tokens", "cached", "moved", "")
    rows = [heading, *map(_row, steps)]
    widths = [max(len(row[column]) for row in rows) for column in range(7)]
    lines = []
    for number, row in enumerate(rows):
        left = [row[column].ljust(widths[column]) for column in (0, 1)]
        right = [row[column].rjust(widths[column]) for column in range(2, 7)]
        line = Text("  ".join([*left, *right]), style="dim" if number == 0 else "")
        lines.append(line.append(f"  {row[7]}" if row[7] else "", style="dim"))
    return lines


def _row(step: Step) -> tuple[str, ...]:
    return (
        step.name,
        step.instance,
        f"+{duration(step.start_seconds)}",
        duration(step.duration_seconds),
        str(step.tokens),
        str(step.cached_tokens),
        size(step.bytes) if step.bytes else "",
        printable(step.detail),
    )


def print_steps(console: Console, steps: Iterable[Step]) -> None:
    """Print the steps of a request; on a terminal long lines are cut at its edge."""
    for line in steps_lines(steps):
        if console.is_terminal:
            console.print(line, no_wrap=True, overflow="ellipsis")
        else:
            console.print(line, soft_wrap=True)


def duration(seconds: float) -> str:
    """Return seconds in a readable unit: `0.8 ms`, `12 ms`, `1.25 s`."""
    if seconds < 0.01:
        return f"{seconds * 1000:.1f} ms"
    return f"{seconds * 1000:.0f} ms" if seconds < 1 else f"{seconds:.2f} s"


def size(count: int) -> str:
    """Return bytes in a readable unit: `512 B`, `1.5 MiB`."""
    amount, units = float(count), ["B", "KiB", "MiB", "GiB", "TiB"]
    while amount >= 1024 and len(units) > 1:
        amount /= 1024
        units.pop(0)
    return f"{amount:.0f} {units[0]}" if units[0] == "B" else f"{amount:.1f} {units[0]}"
