"""A page of buckets, as OpenAI has it. Pure."""

from collections.abc import Callable, Iterable, Sequence

from baton.errors import invalid_field
from baton.usage.report.question import Labels, Sums, UsageGroup
from baton.usage.report.table import yielding
from services.frontend.admin.objects import Object
from services.frontend.admin.usage.asked import Asked
from services.frontend.admin.usage.buckets import Bucket, page_token
from services.frontend.admin.usage.reader import MAX_GROUPS

Named = Callable[[Labels], Object]
"""Returns the fields of a result that name its labels."""
Result = Callable[[Sums], Object]
"""Returns all the other fields."""


def page(asked: Asked, groups: Sequence[UsageGroup], named: Named, result: Result) -> Object:
    """Return a page: its buckets, including empty ones, and the token of the next page.

    Args:
        asked: the request.
        groups: of its range's first `asked.limit` buckets, by time. If there are more than
            MAX_GROUPS of them, the page ends before the first incomplete bucket.
        named: names the labels of groups; groups with equal names are merged.
        result: returns the sums of a result.

    Raises:
        BatonError: INVALID_FIELD: a single bucket has more groups.
    """
    buckets = asked.range.buckets(asked.limit)
    if len(groups) > MAX_GROUPS:
        cut = groups[MAX_GROUPS].begin
        buckets = [bucket for bucket in buckets if bucket[0] < cut]
        if not buckets:
            raise invalid_field(
                "group_by",
                f"a bucket has more than {MAX_GROUPS} results: select fewer projects, keys or "
                "models",
            )
    return envelope(asked, buckets, _results(groups, named, result))


def empty_page(asked: Asked) -> Object:
    """Return a page whose buckets have no results."""
    return envelope(asked, asked.range.buckets(asked.limit), {})


def envelope(asked: Asked, buckets: Sequence[Bucket], results: dict[int, list[Object]]) -> Object:
    """Return the page of buckets, with the results of each by its first second."""
    end = asked.range.end
    reached = buckets[-1][1] if buckets else end
    more = reached < end
    data = [
        {
            "object": "bucket",
            "start_time": begin,
            "end_time": until,
            "results": results.get(begin, []),
        }
        for begin, until in buckets
    ]
    return {
        "object": "page",
        "data": data,
        "has_more": more,
        "next_page": page_token(reached, end, asked.identity) if more else None,
    }


def _results(groups: Iterable[UsageGroup], named: Named, result: Result) -> dict[int, list[Object]]:
    found: dict[int, dict[tuple[str, ...], tuple[Object, Sums]]] = {}
    for group in yielding(groups):
        names = named(group.labels)
        order = tuple(str(value) for value in names.values())
        _, sums = found.setdefault(group.begin, {}).setdefault(order, (names, Sums()))
        sums.merge(group.sums)
    return {
        begin: [names | result(sums) for _, (names, sums) in sorted(of_bucket.items())]
        for begin, of_bucket in found.items()
    }
