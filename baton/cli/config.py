"""`baton config show`: every setting, its value, and where that came from."""

from rich.console import Console
from rich.table import Table
from rich.text import Text

from baton.cli.errors import CommandError
from baton.cli.local.checks import SETTINGS
from baton.settings import StartupError, describe, load


def show(process: str, console: Console) -> None:
    """Print the settings of a process, or of each when none is named.

    Raises:
        CommandError: there is no such process, or a setting is wrong.
    """
    if process and process not in SETTINGS:
        raise CommandError(f"There is no process {process!r}: choose one of {', '.join(SETTINGS)}.")
    for name in [process] if process else SETTINGS:
        try:
            settings = load(SETTINGS[name], (), name)
        except StartupError as error:
            raise CommandError(str(error)) from error
        table = Table(box=None, pad_edge=False, header_style="dim", title=f"{name}:")
        table.title_justify = "left"
        table.add_column("setting", style="bold", no_wrap=True)
        table.add_column("value", overflow="fold", min_width=14)
        table.add_column("from", no_wrap=True)
        for row in describe(settings):
            source = Text(row.source, style="" if row.source == "default" else "yellow")
            table.add_row(row.env, Text(row.value), source)
        console.print(table)
        console.print()
