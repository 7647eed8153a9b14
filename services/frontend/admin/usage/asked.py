"""Parameters of usage and cost requests."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace

from baton.errors import invalid_field
from baton.tenancy.directory.principal import Principal
from baton.tenancy.records.tenants import Scope
from baton.usage.report.question import MAX_SECONDS, Column, Question
from services.frontend.admin.usage.buckets import Range, read_token
from services.frontend.http.query import QueryString
from services.frontend.requests.refusals import unsupported

COMMON = ("start_time", "end_time", "bucket_width", "group_by", "limit", "page")
"""Parameters of all requests with time buckets."""
NOT_HERE = ("user_id", "api_source")
"""Groups of OpenAI's that do not apply: there are no users, and only one API."""


@dataclass(frozen=True, slots=True)
class Width:
    """A width of buckets."""

    seconds: int
    default: int
    """Default number of buckets per page."""
    most: int


WIDTHS = {"1d": Width(86_400, 7, 31), "1h": Width(3600, 24, 168), "1m": Width(60, 60, 1440)}
"""Widths for usage, as in OpenAI's API; the first is the default."""
COST_WIDTHS = {"1d": Width(86_400, 7, 180)}
"""Widths for costs."""

Groups = Mapping[str, tuple[Column, ...]]
"""The columns that each value of `group_by` groups by."""


@dataclass(frozen=True, slots=True)
class Asked:
    """One request for usage or costs."""

    range: Range
    """The part of the range that remains after the previous pages."""
    limit: int
    """Most buckets per page."""
    group_by: tuple[str, ...]
    question: Question
    """Filters and grouping of the records."""
    identity: bytes
    """Bytes that must be equal in the request for the next page."""

    def page_question(self) -> Question:
        """Return the question for the next page alone."""
        buckets = self.range.buckets(self.limit)
        end = buckets[-1][1] if buckets else self.range.end
        return replace(self.question, begin=self.range.begin, end=max(end, self.range.begin))


def read_times(
    query: QueryString, now: float, widths: Mapping[str, Width]
) -> tuple[Range, int, bytes]:
    """Return the remaining range, buckets per page, and the request's identity.

    Args:
        query: the parameters.
        now: the default end of the range, in seconds since the Unix epoch.
        widths: allowed widths of buckets.

    Raises:
        BatonError: INVALID_FIELD.
    """
    width = widths[query.one_of("bucket_width", tuple(widths))]
    begin = query.whole("start_time", 0, MAX_SECONDS, None)
    if begin is None:
        raise invalid_field(
            "start_time", "is required: the start of the time range, in Unix seconds"
        )
    end = query.whole("end_time", 0, MAX_SECONDS, None)
    if end is not None and end <= begin:
        raise invalid_field("end_time", f"{end} must be later than start_time ({begin})")
    limit = query.whole("limit", 1, width.most, width.default)
    identity = query.identity(("limit", "page"))
    token = query.text("page")
    if token:
        return read_token(token, begin, width.seconds, identity), limit, identity
    last = min(int(now) + 1, MAX_SECONDS) if end is None else end
    return Range(begin, last, width.seconds), limit, identity


def read(
    query: QueryString, who: Principal, now: float, widths: Mapping[str, Width], groups: Groups
) -> Asked:
    """Return the parsed request.

    Args:
        query: the parameters.
        who: the caller.
        now: seconds since the Unix epoch.
        widths: allowed widths of buckets.
        groups: allowed values of `group_by`.

    Raises:
        BatonError: INVALID_FIELD, UNSUPPORTED_PARAMETER.
    """
    times, limit, identity = read_times(query, now, widths)
    if query.many("user_ids"):
        raise unsupported("user_ids", "usage of a user, of whom there are none,")
    group_by = tuple(dict.fromkeys(query.many("group_by")))
    for name in group_by:
        if name in NOT_HERE:
            raise unsupported("group_by", name)
        if name not in groups:
            raise invalid_field("group_by", f"{name!r} is not one of {', '.join(groups)}")
    question = Question(
        width=times.width,
        by=tuple(dict.fromkeys(column for name in group_by for column in groups[name])),
        tenant=who.tenant.id,
        projects=_seen(who, _some(query, "project_ids")),
        keys=_some(query, "api_key_ids"),
        names=_some(query, "models"),
        batch=_flag(query, "batch"),
        line_items=_some(query, "line_items"),
    )
    return Asked(times, limit, group_by, question, identity)


def seen_projects(who: Principal) -> tuple[str, ...] | None:
    """Return the projects whose usage a key may see; None: all of its tenant.

    A key with the scope `admin` sees its tenant's, one with only `usage` its own project's.
    """
    return None if Scope.ADMIN in who.key.scopes else (who.project.id,)


def _seen(who: Principal, asked: tuple[str, ...] | None) -> tuple[str, ...] | None:
    seen = seen_projects(who)
    if seen is None or asked is None:
        return asked if seen is None else seen
    return tuple(one for one in asked if one in seen)


def _some(query: QueryString, name: str) -> tuple[str, ...] | None:
    values = query.many(name)
    check_texts(name, values)
    return tuple(values) or None


def check_texts(name: str, values: Sequence[str]) -> None:
    """Check that values of a parameter are possible names or ids.

    Raises:
        BatonError: INVALID_FIELD.
    """
    for value in values:
        if not value or not value.isprintable():
            raise invalid_field(name, f"{value!r} is not a name or id")


def _flag(query: QueryString, name: str) -> bool | None:
    value = query.text(name)
    if value not in ("", "true", "false"):
        raise invalid_field(name, f"{value!r} is not true or false")
    return None if not value else value == "true"


def known(*more: str) -> Collection[str]:
    """Return the names of parameters: COMMON and some more."""
    return (*COMMON, *more)
