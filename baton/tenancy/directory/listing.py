"""Ids by owner, in their order: what lists are read from, a page at a time."""

from bisect import bisect_left, bisect_right, insort
from collections.abc import Callable, Iterator, Sequence
from itertools import islice


class Listing:
    """Ids by owner. Pure; owned by one loop. Eight bytes per id."""

    __slots__ = ("_ids",)

    def __init__(self) -> None:
        self._ids: dict[str, list[str]] = {}

    def add(self, owner: str, ident: str) -> None:
        """Add an id to an owner's; nothing happens if it is there."""
        ids = self._ids.setdefault(owner, [])
        if not ids or ids[-1] < ident:  # as records are listed
            ids.append(ident)
        elif ids[bisect_left(ids, ident)] != ident:
            insort(ids, ident)

    def remove(self, owner: str, ident: str) -> None:
        """Remove an id of an owner's; nothing happens if it is not there."""
        ids = self._ids.get(owner, [])
        at = bisect_left(ids, ident)
        if at < len(ids) and ids[at] == ident:
            del ids[at]
            if not ids:
                del self._ids[owner]

    def of(self, owner: str) -> Sequence[str]:
        """Return an owner's ids, in their order; a live view."""
        return self._ids.get(owner, ())


def page(
    ids: Sequence[str],
    limit: int,
    keep: Callable[[str], bool],
    *,
    after: str = "",
    descending: bool = False,
) -> tuple[list[str], bool]:
    """Return some of sorted ids, and whether there are more behind them.

    Args:
        ids: in ascending order.
        limit: the most that are returned.
        keep: tells which ids count.
        after: begin behind this one, which need not be there; empty: with the first.
        descending: the last one first.
    """
    found = list(islice(filter(keep, _walk(ids, after, descending)), limit + 1))
    return found[:limit], len(found) > limit


def _walk(ids: Sequence[str], after: str, descending: bool) -> Iterator[str]:
    if descending:
        begin = bisect_left(ids, after) if after else len(ids)
        return (ids[at] for at in range(begin - 1, -1, -1))
    begin = bisect_right(ids, after) if after else 0
    return (ids[at] for at in range(begin, len(ids)))
