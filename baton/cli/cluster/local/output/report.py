"""Messages of a supervisor on standard error while the cluster runs."""

from collections.abc import Sequence
from pathlib import Path

from rich.console import Console
from rich.text import Text

from baton.cli.cluster.local.output.log_lines import readable
from baton.cli.cluster.local.processes.child import exit_reason, tail
from baton.cli.shared.render import printable


class Reporter:
    """Prints sentences, and the last log lines of a process that died below its sentence."""

    def __init__(self, console: Console) -> None:
        self._console = console

    def info(self, sentence: str) -> None:
        """Print a sentence about normal operation."""
        self._print(sentence)

    def warn(self, sentence: str, lines: Sequence[str] = ()) -> None:
        """Print a sentence about a failure, with log lines below it."""
        self._print(sentence, "yellow")
        for line in lines:
            self._print(f"  | {printable(line)}", "dim")

    def _print(self, sentence: str, style: str = "") -> None:
        self._console.print(Text(sentence, style=style))

    def died(self, name: str, pid: int, code: int, lived: float, log_path: Path) -> None:
        """Print that a process ended that should be running."""
        self.warn(
            f"{name} (pid {pid}) {exit_reason(code)} after {lived:.1f} s. The last lines of "
            f"{log_path}:",
            readable(tail(log_path)),
        )
