"""A query as SQL over the table `usage_records`. Pure."""

from datetime import UTC, datetime
from typing import Any

from baton.usage.record import LOST
from baton.usage.report.question import BATCH_ITEM, Column, Labels, Question, Sums, UsageGroup

_NAME = "case adapter when '' then model else adapter end"
_LINE_ITEM = f"({_NAME}) || case when batch then '{BATCH_ITEM}' else '' end"
_MAX_BUCKETS = 2000
"""Buckets that are queried one by one."""
_EXPRESSIONS: dict[Column, str] = {"priced": "(cost_nanodollars is not null)"}
_CHARGED = f"first_token_seconds is not null and outcome <> '{LOST}'"
# In the order of the fields of `Sums`.
_SUMS = (
    "count(*)",
    f"count(*) filter (where outcome = '{LOST}')",
    "sum(prompt_tokens)",
    "sum(cached_tokens)",
    "sum(output_tokens)",
    "sum(cost_nanodollars)",
    f"count(*) filter (where cost_nanodollars is null and outcome <> '{LOST}')",
    f"sum(prompt_tokens) filter (where {_CHARGED})",
    f"sum(cached_tokens) filter (where {_CHARGED})",
    f"sum(output_tokens) filter (where {_CHARGED})",
)


def select(question: Question, most: int | None = None) -> tuple[str, list[Any]]:
    """Return the statement of a query, and its arguments.

    Args:
        question: the query.
        most: groups to return, the earliest; None: all.
    """
    wheres, args = _where(question)
    columns = [_EXPRESSIONS.get(name, name) for name in question.by]
    if question.width and question.tenant is not None and _count(question) <= _MAX_BUCKETS:
        return _by_bucket(question, columns, wheres, args, most)
    if question.width:
        args.append(question.width)
        width = f"make_interval(secs => ${len(args)}::bigint)"
        columns.insert(0, f"date_bin({width}, began, to_timestamp(0))")
    grouped = ", ".join(str(n + 1) for n in range(len(columns)))
    statement = f"select {', '.join((*columns, *_SUMS))} from usage_records where {wheres}"
    if columns:
        statement += f" group by {grouped} order by {grouped}"
    else:
        statement += " having count(*) > 0"
    if most is not None:
        args.append(most)
        statement += f" limit ${len(args)}::bigint"
    return statement, args


def _count(question: Question) -> int:
    return -(-(question.end - question.begin) // question.width) + 1


def _by_bucket(
    question: Question, columns: list[str], wheres: str, args: list[Any], most: int | None
) -> tuple[str, list[Any]]:
    """Return the statement that sums one bucket after another, each of them from an index.

    Postgres holds the groups of one bucket at a time, sorts nothing on disk, and stops at the
    bucket that has the last requested group.
    """
    args += [_time(question.begin // question.width * question.width), question.width]
    first, width = f"${len(args) - 1}", f"make_interval(secs => ${len(args)}::bigint)"
    wheres = wheres.replace("began >= $1", "began >= greatest(bucket, $1)")
    wheres = wheres.replace("began < $2", f"began < least(bucket + {width}, $2)")
    grouped = f"group by {', '.join(columns)}" if columns else "having count(*) > 0"
    statement = (
        # Sorted inside, so that no outer sort is needed before the first row is returned.
        f"select bucket, sums.* from (select bucket from generate_series({first}::timestamptz, "
        f"$2::timestamptz - interval '1 microsecond', {width}) as bucket order by bucket) "
        f"as buckets cross join lateral (select {', '.join((*columns, *_SUMS))} from usage_records "
        f"where {wheres} {grouped}) as sums order by bucket"
    )
    if most is not None:
        args.append(most)
        statement += f" limit ${len(args)}::bigint"
    return statement, args


def select_latest(question: Question) -> tuple[str, list[Any]]:
    """Return the statement for the current time and that of the latest record that could match."""
    wheres, args = _where(question)
    return f"select now(), (select max(began) from usage_records where {wheres})", args


def group_of(question: Question, row: Any) -> UsageGroup:
    """Return the group of a row that `select` returned."""
    values = list(row)
    begin = question.begin
    if question.width:
        begin = question.bucket_of(int(values.pop(0).timestamp()))
    by = question.by
    labels = Labels(**dict(zip(by, values, strict=False)))
    return UsageGroup(begin, labels, Sums(*(int(value or 0) for value in values[len(by) :])))


def _where(question: Question) -> tuple[str, list[Any]]:
    args: list[Any] = [_time(question.begin), _time(question.end)]
    wheres = ["began >= $1", "began < $2"]
    asked: tuple[tuple[str, Any], ...] = (
        ("tenant = ${}", question.tenant),
        ("project = any(${}::text[])", question.projects),
        ("key = any(${}::text[])", question.keys),
        (_NAME + " = any(${}::text[])", question.names),
        ("batch = ${}", question.batch),
        (_LINE_ITEM + " = any(${}::text[])", question.line_items),
    )
    for where, value in asked:
        if value is not None:
            args.append(list(value) if isinstance(value, tuple) else value)
            wheres.append(where.format(len(args)))
    return " and ".join(wheres), args


def _time(seconds: int) -> datetime:
    return datetime.fromtimestamp(seconds, UTC)
