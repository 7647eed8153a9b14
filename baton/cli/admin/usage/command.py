"""Implementation of `baton usage`: sums per project, and per day, key or model."""

import json
from collections.abc import Sequence
from datetime import UTC, date, datetime, timedelta
from typing import Any

from rich.console import Console

from baton.cli.admin.usage.names import ProjectNames
from baton.cli.admin.usage.options import By, UsageOptions
from baton.cli.admin.usage.sources import UsageReport, UsageSource
from baton.cli.shared.errors import CommandError
from baton.cli.shared.table import TextTable
from baton.cli.shared.table import show as print_table
from baton.request.prices import PriceTable, dollars
from baton.usage.report.question import MAX_SECONDS, Question, UsageGroup
from baton.usage.report.totals import PRICE_COLUMNS, Totals, shown, totals_by

_DAY_SECONDS = 86_400
_AMOUNTS = ("requests", "prompt", "cached", "output", "cost $", "provider $", "saved $")
_COMPARED = 2
"""Number of these columns, at the end, that require a provider's prices."""


def usage(options: UsageOptions, console: Console, as_json: bool) -> None:
    """Print the sums.

    Args:
        options: which records, and how to group them.
        console: to print on.
        as_json: print JSON.

    Raises:
        CommandError: there are no records, they cannot be read, or an option or setting is wrong.
    """
    by: Sequence[By] = tuple(dict.fromkeys(options.by or (By.DAY,)))
    begin, end = _range(options)
    source = UsageSource(options)
    names = ProjectNames(source.cluster)
    question = Question(
        begin,
        end,
        _DAY_SECONDS if By.DAY in by else 0,
        by=("tenant", "project", *(("key",) if By.KEY in by else ()), *PRICE_COLUMNS),
        tenant=options.tenant or None,
        projects=names.ids(options.tenant, options.project) if options.project else None,
    )
    answer = source.answer(question)
    provider = PriceTable(source.usage.provider_prices)
    compares = bool(source.usage.provider_prices)
    totals = totals_by(answer.groups, lambda group: _key(group, by), provider)
    if as_json:
        rows = [_row(key, by, names) | shown(one, compares=compares) for key, one in totals.items()]
        told = {"usage": rows, "doubles": answer.doubles, "damaged": answer.damaged}
        print(json.dumps(told))
        return
    _print(totals, by, names, console, compares)
    _tell_passed_over(answer, console)
    if names.problem and source.cluster is not None:
        console.print(f"project names are unknown: {names.problem}", style="dim")


def _range(options: UsageOptions) -> tuple[int, int]:
    first = _day("--since", options.since)
    last = _day("--until", options.until)
    begin = 0 if first is None else _second(first)
    end = MAX_SECONDS if last is None else _second(last + timedelta(days=1))
    if end <= begin:
        raise CommandError(f"--until {options.until} is before --since {options.since}.")
    return begin, end


def _day(option: str, text: str) -> date | None:
    if not text:
        return None
    try:
        day = date.fromisoformat(text)
    except ValueError:
        day = date.min
    if not 1970 <= day.year <= 5000:
        raise CommandError(f"{option} is {text!r}: it must be a day, for example 2026-11-23.")
    return day


def _second(day: date) -> int:
    return int(datetime(day.year, day.month, day.day, tzinfo=UTC).timestamp())


def _key(group: UsageGroup, by: Sequence[By]) -> tuple[str, ...]:
    """Return the key of a row: the values of `_headings`."""
    labels = group.labels
    day = [_date(group.begin)] if By.DAY in by else []
    more = {By.KEY: labels.key or "", By.MODEL: labels.name}
    told = [value for name, value in more.items() if name in by]
    return (*day, labels.tenant or "", labels.project or "", *told)


def _date(seconds: int) -> str:
    return datetime.fromtimestamp(seconds, UTC).date().isoformat()


def _headings(by: Sequence[By]) -> list[str]:
    day = ["day"] if By.DAY in by else []
    return [*day, "tenant", "project", *(name.value for name in (By.KEY, By.MODEL) if name in by)]


def _row(key: tuple[str, ...], by: Sequence[By], names: ProjectNames) -> dict[str, Any]:
    fields = dict(zip(_headings(by), key, strict=True))
    return fields | {"project_name": names.name(fields["project"])}


def _print(
    totals: dict[tuple[str, ...], Totals],
    by: Sequence[By],
    names: ProjectNames,
    console: Console,
    compares: bool,
) -> None:
    headings = _headings(by)
    amounts = _AMOUNTS if compares else _AMOUNTS[:-_COMPARED]
    table = TextTable([*headings, *amounts], right=frozenset(amounts))
    at = headings.index("project")
    for key, one in totals.items():
        cells = [*key[:at], names.name(key[at]), *key[at + 1 :]]
        row = [
            str(one.requests),
            str(one.prompt_tokens),
            str(one.cached_tokens),
            str(one.output_tokens),
            dollars(one.cost_nanodollars),
            dollars(one.provider_nanodollars),
            dollars(one.saved_nanodollars),
        ]
        table.add(*cells, *row[: len(amounts)], note=_note(one, compares))
    print_table(console, table)


def _tell_passed_over(answer: UsageReport, console: Console) -> None:
    if answer.doubles or answer.damaged:
        console.print(
            f"skipped: {answer.doubles} duplicate records, {answer.damaged} invalid lines",
            style="dim",
        )


def _note(totals: Totals, compare: bool) -> str:
    notes = [
        (totals.lost, "lost"),
        (totals.unpriced, "without a price"),
        (totals.provider_unpriced if compare else 0, "without a provider's price"),
    ]
    return ", ".join(f"{count} {what}" for count, what in notes if count)
