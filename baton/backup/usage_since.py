"""What was spent since a backup, from usage records: of requests in files or in Postgres."""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from baton.postgres.connecting import StateError, connected, errors_of, place
from baton.postgres.revisions import USAGE
from baton.postgres.schema import read_problem
from baton.settings import StateSettings
from baton.tenancy.limits.budget.month import month_of
from baton.tenancy.limits.spec import Subject
from baton.usage.report.files import RecordFiles, files_of

LAG_SECONDS = 5
"""A request's cost is in etcd at most this long after its end."""
_AHEAD_SECONDS = 3
"""How far clocks of frontends may be ahead of that of the backup."""
_SECONDS = 300.0
"""Time limit of the statement."""

# Values: begin of the first month, the backup's time, and the two bounds around it.
_STATEMENT = """
select to_char(began at time zone 'UTC', 'YYYYMM')::int, tenant, project, key,
       sum(cost_nanodollars)::bigint,
       coalesce(sum(cost_nanodollars) filter (where ended <= $2), 0)::bigint,
       coalesce(sum(cost_nanodollars) filter (where ended <= $3), 0)::bigint,
       coalesce(sum(cost_nanodollars) filter (where ended <= $4), 0)::bigint
from usage_records
where began >= $1 and cost_nanodollars > 0
group by 1, 2, 3, 4
"""


@dataclass(slots=True)
class MonthCosts:
    """Costs of the requests of a subject that began in one month, in nano-dollars."""

    all: int = 0
    before: int = 0
    """Of those that ended before the backup."""
    surely: int = 0
    """Of those that ended LAG_SECONDS before it: its record of spending has them."""
    possibly: int = 0
    """Of those that the record may have."""

    def add(self, other: "MonthCosts") -> None:
        """Add the costs of other requests."""
        self.all += other.all
        self.before += other.before
        self.surely += other.surely
        self.possibly += other.possibly

    def spent(self, saved: int) -> int:
        """Return what was spent in all.

        A record of spending lags by a second or two, so that the time of the backup does not tell
        which requests it has. If it can have all of the month's until then, the month's sum is
        exact. Otherwise the budget was set in the middle of the month and counts from then, and
        what ended after the backup is added.

        Args:
            saved: cost of ended requests in the backup's record.
        """
        if self.surely <= saved <= self.possibly:
            return self.all
        return saved + self.all - self.before


class UsageSince:
    """Costs of requests from the month of a backup on, by month and subject.

    Bounded by the subjects that spent.

    Args:
        created_seconds: when the backup was made, in seconds since the Unix epoch.
    """

    def __init__(self, created_seconds: int) -> None:
        self._created = created_seconds
        self._first_month = month_of(created_seconds)
        self._costs: dict[tuple[int, str, str], MonthCosts] = {}

    @property
    def empty(self) -> bool:
        """Whether no request cost anything."""
        return not self._costs

    def read_files(self, path: Path) -> None:
        """Read the record files of a directory, or a file.

        Raises:
            OSError: it cannot be read.
        """
        for record in RecordFiles(files_of(path)):
            month, cost = month_of(record.began_ms / 1000), record.cost_nanodollars or 0
            if cost and record.ended_ms is not None and month >= self._first_month:
                late = record.ended_ms / 1000 - self._created
                costs = MonthCosts(
                    cost,
                    cost * (late <= 0),
                    cost * (late <= -LAG_SECONDS),
                    cost * (late <= _AHEAD_SECONDS),
                )
                self._add(month, record.tenant, record.project, record.key, costs)

    async def read_postgres(self, settings: StateSettings) -> None:
        """Read the table of usage records.

        Raises:
            StartupError: its driver is not installed, or settings are wrong.
            StateError: the database does not respond, or has another schema.
        """
        year, month = divmod(self._first_month, 100)
        bounds = [
            datetime.fromtimestamp(self._created + more, UTC)
            for more in (0, -LAG_SECONDS, _AHEAD_SECONDS)
        ]
        begin = datetime(year, month, 1, tzinfo=UTC)
        async with connected(settings) as connection:
            with errors_of(settings):
                problem = await read_problem(connection, USAGE)
                if problem:
                    raise StateError(f"{place(settings)}: {problem}")
                rows = await connection.fetch(_STATEMENT, begin, *bounds, timeout=_SECONDS)
        for month, tenant, project, key, *costs in rows:
            self._add(month, tenant, project, key, MonthCosts(*costs))

    def spent(self, name: str, saved: int) -> int:
        """Return what was spent of a budget in a month.

        Args:
            name: of its record, `spending/202611/tenant/acme`.
            saved: cost of ended requests in the backup's record.
        """
        _, month, subject, ident = name.split("/", 3)
        costs = self._costs.get((int(month), subject, ident))
        return saved if costs is None else costs.spent(saved)

    def names(self) -> Iterator[tuple[str, str]]:
        """Yield the subjects that spent, `tenant/acme`, each with the name of its record."""
        for month, subject, ident in self._costs:
            yield f"{subject}/{ident}", f"spending/{month}/{subject}/{ident}"

    def _add(self, month: int, tenant: str, project: str, key: str, costs: MonthCosts) -> None:
        for subject, ident in (
            (Subject.TENANT, tenant),
            (Subject.PROJECT, project),
            (Subject.KEY, key),
        ):
            if ident:
                self._costs.setdefault((month, subject, ident), MonthCosts()).add(costs)
