"""`baton config show`: every setting with its value and source."""

from pathlib import Path

from rich.console import Console
from rich.text import Text

from baton.cli.shared.errors import CommandError
from baton.cli.shared.table import TextTable
from baton.cli.shared.table import show as print_table
from baton.settings import SERVICE_SETTINGS, StartupError, describe, load_with_sources
from baton.settings.names import CONFIG_FLAG


def show(process: str, config: Path | None, console: Console) -> None:
    """Print the settings of a process, or of all processes if none is named.

    Args:
        process: its name; empty: all.
        config: a settings file; None: the one that BATON_CONFIG names, if any.
        console: to print on.

    Raises:
        CommandError: there is no such process, or a setting is invalid.
    """
    if process and process not in SERVICE_SETTINGS:
        known = ", ".join(SERVICE_SETTINGS)
        raise CommandError(f"Unknown process {process!r}: choose one of {known}.")
    arguments = [] if config is None else [f"{CONFIG_FLAG}={config}"]
    for name in [process] if process else SERVICE_SETTINGS:
        try:
            loaded = load_with_sources(SERVICE_SETTINGS[name], arguments, name)
        except StartupError as error:
            raise CommandError(str(error)) from error
        table = TextTable(("setting", "source"), note_heading="value")
        rows = describe(loaded)
        for row in rows:
            source = Text(row.source, style="" if row.source == "default" else "yellow")
            table.add(Text(row.name.env, style="bold"), source, note=row.value)
        console.print(Text(f"{name}:", style="italic"))
        print_table(console, table)
        for kind, place in dict.fromkeys((row.source, row.place) for row in rows if row.place):
            console.print(f"{kind}: {place}", soft_wrap=True, highlight=False, markup=False)
        console.print()
