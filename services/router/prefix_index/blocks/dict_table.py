"""Numbers of sets of holders by key, in a dict."""

from collections.abc import Collection, Iterable
from itertools import groupby, repeat

from baton.kv.keys import unpack
from services.router.prefix_index.holder_sets import EMPTY, SetTransitions


class DictTable:
    """Blocks with at least one holder. Owned by one event loop. A block takes about 110 bytes."""

    def __init__(self) -> None:
        self._set_of: dict[bytes, int] = {}
        """The number of each block's set, never the empty one."""
        self._unswept: list[bytes] = []

    def __len__(self) -> int:
        """Return the number of blocks."""
        return len(self._set_of)

    def empty(self) -> "DictTable":
        """Return another table, without blocks."""
        return DictTable()

    def match(self, keys: Iterable[bytes]) -> list[tuple[int, int]]:
        """Fold the leading known keys into runs: the number of a set, and how many have it."""
        set_of = self._set_of.get
        runs: list[tuple[int, int]] = []
        previous = -1
        count = 0
        for key in keys:
            number = set_of(key, EMPTY)
            if number == previous:
                count += 1
                continue
            if count:
                runs.append((previous, count))
            count = 0
            if number == EMPTY:
                break
            previous = number
            count = 1
        if count:
            runs.append((previous, count))
        return runs

    def match_packed(self, keys: bytes, *, gaps: bool = False) -> list[tuple[int, int]]:
        """Do what `match` does with packed keys; with `gaps`, fold all keys: unknown ones too."""
        if not gaps:
            return self.match(unpack(keys))
        numbers = map(self._set_of.get, unpack(keys), repeat(EMPTY))
        return [(number, sum(1 for _ in run)) for number, run in groupby(numbers)]

    def add(self, keys: Collection[bytes], after: SetTransitions) -> None:
        """Replace each key's set by its successor, which is never empty."""
        set_of = self._set_of
        # Without a Python step per block: each is looked up just before it is written.
        before = map(set_of.get, keys, repeat(EMPTY))
        set_of.update(zip(keys, map(after.__getitem__, before), strict=True))

    def replace(self, keys: Iterable[bytes], after: SetTransitions) -> None:
        """Replace each known key's set by its successor; remove the key if that is empty."""
        set_of = self._set_of
        for key in keys:
            before = set_of.get(key)
            if before is None:
                continue
            number = after[before]
            if number:
                set_of[key] = number
            else:
                del set_of[key]

    def begin_sweep(self) -> None:
        """Begin to `sweep` the current blocks: 10 ms with a million of them."""
        self._unswept = list(self._set_of)

    def sweep(self, limit: int, after: SetTransitions) -> bool:
        """Replace as `replace` does, for at most `limit` blocks; return whether some are left."""
        keys = self._unswept[-limit:] if limit > 0 else []
        del self._unswept[len(self._unswept) - len(keys) :]
        self.replace(keys, after)
        return bool(self._unswept)

    def used(self) -> set[int]:
        """Return the numbers of the sets in use."""
        return set(self._set_of.values())
