"""`GET /v1/usage`: usage of teams per day, and its cost at a provider's prices."""

import asyncio
import csv
import io
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from time import time

from baton.errors import invalid_field
from baton.tenancy.directory.directory import Directory
from baton.usage.report.question import Question, UsageGroup
from baton.usage.report.table import Freshness, yielding
from baton.usage.report.totals import PRICE_COLUMNS, Totals, shown, total_of, totals_by
from services.frontend.admin.call import AdminCall, missing
from services.frontend.admin.objects import Object, RawBody
from services.frontend.admin.usage.asked import check_texts, seen_projects
from services.frontend.admin.usage.reader import MAX_GROUPS, UsageReader, encoded
from services.frontend.http.query import QueryString

DAY_SECONDS = 86_400
MAX_DAYS = 366
"""Most days in one report."""

_DAY = re.compile("[0-9]{4}-[0-9]{2}-[0-9]{2}")
_FIELDS = ("team_id", "date", "start_date", "end_date", "format")
_HEAD = ("date", "team_id", "team_name", "model")


@dataclass(frozen=True, slots=True)
class Days:
    """The first and the last day of a report, in UTC."""

    first: date
    last: date

    @property
    def seconds(self) -> tuple[int, int]:
        """The first second, and the one after the last, since the Unix epoch."""
        return _second(self.first), _second(self.last + timedelta(days=1))


async def team_usage(call: AdminCall) -> RawBody:
    """Return usage and cost per team (project), day (UTC) and model, with a provider's prices for
    comparison; as JSON or CSV."""
    query = QueryString(call.query, _FIELDS)
    as_csv = _as_csv(query, call.accept)
    days = read_days(query, datetime.fromtimestamp(time(), UTC).date())
    directory = call.organizations.known
    projects = _teams(query, call, directory)
    begin, end = days.seconds
    scope = Question(tenant=call.tenant, projects=projects)
    question = Question(
        begin,
        end,
        DAY_SECONDS,
        by=("project", *PRICE_COLUMNS),
        tenant=call.tenant,
        projects=projects,
    )
    reader = call.organizations.usage
    groups, fresh = await reader.report(question, scope)
    if len(groups) > MAX_GROUPS:
        raise invalid_field(
            "end_date", f"the report has more than {MAX_GROUPS} rows: select fewer days or teams"
        )
    mine = directory.projects_of.of(call.tenant)
    names = {ident: directory.projects[ident].name for ident in mine}

    def make() -> Object:
        return Report(groups, names, reader).as_object(call.tenant, days, fresh)

    def make_csv() -> bytes:
        return Report(groups, names, reader).as_csv()

    if as_csv:
        return RawBody(await asyncio.to_thread(make_csv), b"text/csv; charset=utf-8")
    return await encoded(make)


def read_days(query: QueryString, today: date) -> Days:
    """Return the requested days; today by default.

    Raises:
        BatonError: INVALID_FIELD.
    """
    one, first, last = (_day(query, name) for name in ("date", "start_date", "end_date"))
    if one is not None:
        for name, value in (("start_date", first), ("end_date", last)):
            if value is not None:
                raise invalid_field(name, "cannot be combined with date: omit one of them")
        return Days(one, one)
    if first is None and last is not None:
        raise invalid_field("start_date", "is required: the first day")
    days = Days(first or today, last or max(first or today, today))
    if days.last < days.first:
        raise invalid_field("end_date", f"{days.last} is before start_date ({days.first})")
    if (days.last - days.first).days >= MAX_DAYS:
        raise invalid_field("end_date", f"a report covers at most {MAX_DAYS} days")
    return days


def _day(query: QueryString, name: str) -> date | None:
    text = query.text(name)
    if not text:
        return None
    try:
        day = date.fromisoformat(text) if _DAY.fullmatch(text) else date.min
    except ValueError:
        day = date.min
    if not 1970 <= day.year <= 5000:
        raise invalid_field(name, f"{text!r} is not a day, for example 2026-11-23")
    return day


def _second(day: date) -> int:
    return int(datetime(day.year, day.month, day.day, tzinfo=UTC).timestamp())


def _as_csv(query: QueryString, accept: str) -> bool:
    wanted = query.text("format")
    if wanted not in ("", "json", "csv"):
        raise invalid_field("format", f"{wanted!r} is not json or csv")
    return wanted == "csv" or (not wanted and "text/csv" in accept.lower())


def _teams(query: QueryString, call: AdminCall, directory: Directory) -> tuple[str, ...] | None:
    """Return the ids of the requested teams; None: all of the tenant.

    Raises:
        BatonError: NOT_FOUND: there is no such team, or the key may not see it.
    """
    seen = seen_projects(call.who)
    asked = query.many("team_id")
    check_texts("team_id", asked)
    if not asked:
        return seen
    mine = [directory.projects[ident] for ident in directory.projects_of.of(call.tenant)]
    found = []
    for name in asked:
        ids = [one.id for one in mine if one.id == name]
        ids = ids or [one.id for one in mine if one.name == name and not one.archived_seconds]
        if not ids or (seen is not None and ids[0] not in seen):
            missing("team", name)
        found.append(ids[0])
    return tuple(found)


class Report:
    """Sums of groups: per day and team, and within these per model.

    Args:
        groups: grouped by project and PRICE_COLUMNS.
        names: of projects, by id.
        reader: has the prices to compare with.
    """

    def __init__(
        self, groups: Sequence[UsageGroup], names: Mapping[str, str], reader: UsageReader
    ) -> None:
        self._groups = groups
        self._names = names
        self._provider = reader.provider
        self._compares = reader.compares
        self._models = totals_by(
            yielding(groups), lambda group: (*_team(group), group.labels.name), self._provider
        )
        """Sums by day, team and model, in this order."""

    def as_object(self, tenant: str, days: Days, fresh: Freshness) -> Object:
        """Return it as an object."""
        rows = {
            team: {**self._head(*team), **self._shown(totals), "models": []}
            for team, totals in totals_by(yielding(self._groups), _team, self._provider).items()
        }
        for (begin, team, name), totals in yielding(self._models.items()):
            rows[begin, team]["models"].append({"model": name, **self._shown(totals)})
        return {
            "object": "usage.report",
            "tenant": tenant,
            "start_date": days.first.isoformat(),
            "end_date": days.last.isoformat(),
            "as_of": int(fresh.now),
            "latest_record_at": None if fresh.latest is None else int(fresh.latest),
            "data": list(rows.values()),
            "total": self._shown(total_of(yielding(self._groups), self._provider)),
        }

    def as_csv(self) -> bytes:
        """Return a header line, and a line per day, team and model."""
        text = io.StringIO()
        writer = csv.writer(text, lineterminator="\r\n")
        writer.writerow((*_HEAD, *self._shown(Totals())))
        writer.writerows(self._lines())
        return text.getvalue().encode()

    def _lines(self) -> Iterator[list[object]]:
        for (begin, team, name), totals in yielding(self._models.items()):
            yield [*self._head(begin, team).values(), name, *self._shown(totals).values()]

    def _head(self, begin: int, team: str) -> Object:
        day = datetime.fromtimestamp(begin, UTC).date().isoformat()
        return {
            "date": day,
            "team_id": team,
            "team_name": self._names.get(team),
        }

    def _shown(self, totals: Totals) -> Object:
        return shown(totals, compares=self._compares)


def _team(group: UsageGroup) -> tuple[int, str]:
    return group.begin, group.labels.project or ""
