"""What a supervisor says to the person who started it: sentences on standard error."""

from collections.abc import Sequence
from pathlib import Path

from rich.console import Console
from rich.text import Text

from baton.cli.local.child import ending, tail
from baton.cli.local.log_lines import readable
from baton.cli.render import printable


class Report:
    """Writes sentences; the log lines of a process that died stand indented below its sentence."""

    def __init__(self, console: Console) -> None:
        self._console = console

    def say(self, sentence: str) -> None:
        """Something that a person may want to know."""
        self._console.print(Text(sentence))

    def warn(self, sentence: str, lines: Sequence[str] = ()) -> None:
        """Something that went wrong."""
        self._console.print(Text(sentence, style="yellow"), soft_wrap=True)
        for line in lines:
            self._console.print(Text(f"  | {printable(line)}", style="dim"), soft_wrap=True)

    def died(self, name: str, pid: int, code: int, lived: float, log_path: Path) -> None:
        """A process ended that should not have."""
        self.warn(
            f"{name} (pid {pid}) {ending(code)} after {lived:.1f} s. Its log is {log_path}, and "
            "ends with:",
            readable(tail(log_path)),
        )
