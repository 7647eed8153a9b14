"""`baton usage`: what projects used and what it cost, per day, from record files."""

import json
from dataclasses import asdict
from datetime import date
from pathlib import Path

from rich.console import Console

from baton.cli.errors import CommandError
from baton.cli.table import TextTable
from baton.cli.table import show as print_table
from baton.prices import PriceTable, dollars
from baton.settings import FrontendSettings, StartupError, UsageSettings, load_with_sources
from baton.settings.names import CONFIG_FLAG
from baton.usage.report import RecordFiles, Team, Totals, files_of, summarize

_HEADINGS = (
    "day",
    "tenant",
    "project",
    "requests",
    "prompt",
    "cached",
    "output",
    "cost $",
    "provider $",
)


def usage(
    path: Path | None,
    config: Path | None,
    since: str,
    until: str,
    console: Console,
    as_json: bool,
) -> None:
    """Print the sums of each project and day.

    Args:
        path: the directory of record files, or one of them; None: `usage.jsonl_path` of frontends.
        config: a settings file; None: the one that BATON_CONFIG names, if any.
        since: the first day, as 2026-11-23; empty: the first that there is.
        until: the last day, included.
        console: to print on.
        as_json: print JSON.

    Raises:
        CommandError: there are no files, or an option or setting is wrong.
    """
    settings = _settings(config)
    place = path or settings.jsonl_path
    if place is None:
        raise CommandError(
            "Say where the record files are: --path, or usage.jsonl_path (BATON_USAGE_JSONL_PATH)."
        )
    found = RecordFiles(files_of(place), _day("--since", since), _day("--until", until))
    try:
        teams = summarize(found, PriceTable(settings.provider_prices))
    except OSError as error:
        raise CommandError(f"{place} cannot be read: {error.strerror}.") from error
    if as_json:
        rows = [_row(team, totals) for team, totals in teams.items()]
        print(json.dumps({"usage": rows, "doubles": found.doubles, "damaged": found.damaged}))
        return
    _print(teams, found, console, bool(settings.provider_prices))


def _settings(config: Path | None) -> UsageSettings:
    arguments = [] if config is None else [f"{CONFIG_FLAG}={config}"]
    try:
        return load_with_sources(FrontendSettings, arguments, "frontend").settings.usage
    except StartupError as error:
        raise CommandError(str(error)) from error


def _day(option: str, text: str) -> date | None:
    if not text:
        return None
    try:
        return date.fromisoformat(text)
    except ValueError:
        raise CommandError(f"{option} is {text!r}, and must be a day such as 2026-11-23.") from None


def _row(team: Team, totals: Totals) -> dict[str, object]:
    return {"day": team.day.isoformat(), "tenant": team.tenant, "project": team.project} | asdict(
        totals
    )


def _print(teams: dict[Team, Totals], found: RecordFiles, console: Console, compare: bool) -> None:
    headings = _HEADINGS if compare else _HEADINGS[:-1]
    table = TextTable(headings, right=frozenset(_HEADINGS[3:]))
    for team, totals in teams.items():
        row = [
            team.day.isoformat(),
            team.tenant,
            team.project,
            str(totals.requests),
            str(totals.prompt_tokens),
            str(totals.cached_tokens),
            str(totals.output_tokens),
            dollars(totals.cost_nanodollars),
            dollars(totals.provider_nanodollars),
        ]
        table.add(*row[: len(headings)], note=_note(totals, compare))
    print_table(console, table)
    if found.doubles or found.damaged:
        console.print(
            f"passed over: {found.doubles} copies of records, {found.damaged} lines that are none",
            style="dim",
        )


def _note(totals: Totals, compare: bool) -> str:
    notes = [
        (totals.lost, "lost"),
        (totals.unpriced, "without a price"),
        (totals.provider_unpriced if compare else 0, "without a provider's price"),
    ]
    return ", ".join(f"{count} {what}" for count, what in notes if count)
