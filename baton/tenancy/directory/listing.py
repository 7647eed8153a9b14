"""Sorted IDs by owner, from which lists are read a page at a time."""

from bisect import bisect_left, bisect_right, insort
from collections.abc import Callable, Iterator, Sequence
from itertools import islice


class Listing:
    """Sorted IDs by owner. Pure; owned by one loop. Eight bytes per ID."""

    __slots__ = ("_ids",)

    def __init__(self) -> None:
        self._ids: dict[str, list[str]] = {}

    def add(self, owner: str, ident: str) -> None:
        """Add an ID to an owner; do nothing if it exists."""
        ids = self._ids.setdefault(owner, [])
        if not ids or ids[-1] < ident:  # records are listed in this order
            ids.append(ident)
        elif ids[bisect_left(ids, ident)] != ident:
            insort(ids, ident)

    def remove(self, owner: str, ident: str) -> None:
        """Remove an ID from an owner; do nothing if it does not exist."""
        ids = self._ids.get(owner, [])
        at = bisect_left(ids, ident)
        if at < len(ids) and ids[at] == ident:
            del ids[at]
            if not ids:
                del self._ids[owner]

    def of(self, owner: str) -> Sequence[str]:
        """Return an owner's IDs in ascending order; a live view."""
        return self._ids.get(owner, ())


def page(
    ids: Sequence[str],
    limit: int,
    keep: Callable[[str], bool],
    *,
    after: str = "",
    descending: bool = False,
) -> tuple[list[str], bool]:
    """Return a page of sorted IDs, and whether more follow.

    Args:
        ids: in ascending order.
        limit: the most to return.
        keep: returns whether to include an ID.
        after: start after this ID, which need not exist; empty: start with the first.
        descending: return the last one first.
    """
    found = list(islice(filter(keep, _walk(ids, after, descending)), limit + 1))
    return found[:limit], len(found) > limit


def _walk(ids: Sequence[str], after: str, descending: bool) -> Iterator[str]:
    if descending:
        begin = bisect_left(ids, after) if after else len(ids)
        return (ids[at] for at in range(begin - 1, -1, -1))
    begin = bisect_right(ids, after) if after else 0
    return (ids[at] for at in range(begin, len(ids)))
