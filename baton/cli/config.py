"""`baton config show`: every setting with its value and source."""

from pathlib import Path

from rich.console import Console
from rich.table import Table
from rich.text import Text

from baton.cli.errors import CommandError
from baton.settings import SERVICE_SETTINGS, StartupError, describe, load_with_sources
from baton.settings.names import CONFIG_FLAG


def show(process: str, config: Path | None, console: Console) -> None:
    """Print the settings of a process, or of each when none is named.

    Args:
        process: its name; empty: all.
        config: a settings file; None: the one that BATON_CONFIG names, if any.
        console: to print on.

    Raises:
        CommandError: there is no such process, or a setting is wrong.
    """
    if process and process not in SERVICE_SETTINGS:
        known = ", ".join(SERVICE_SETTINGS)
        raise CommandError(f"There is no process {process!r}: choose one of {known}.")
    arguments = [] if config is None else [f"{CONFIG_FLAG}={config}"]
    for name in [process] if process else SERVICE_SETTINGS:
        try:
            loaded = load_with_sources(SERVICE_SETTINGS[name], arguments, name)
        except StartupError as error:
            raise CommandError(str(error)) from error
        table = Table(box=None, pad_edge=False, header_style="dim", title=f"{name}:")
        table.title_justify = "left"
        table.add_column("setting", style="bold", no_wrap=True)
        table.add_column("value", overflow="fold", min_width=14)
        table.add_column("source", no_wrap=True)
        rows = describe(loaded)
        for row in rows:
            source = Text(row.source, style="" if row.source == "default" else "yellow")
            table.add_row(row.name.env, Text(row.value), source)
        console.print(table)
        for kind, place in dict.fromkeys((row.source, row.place) for row in rows if row.place):
            console.print(f"{kind}: {place}", soft_wrap=True, highlight=False, markup=False)
        console.print()
