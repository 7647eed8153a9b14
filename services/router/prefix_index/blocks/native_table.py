"""Numbers of sets of holders by key, in the table of `table.c`."""

import weakref
from collections.abc import Collection, Iterable
from ctypes import (
    CDLL,
    POINTER,
    byref,
    c_char_p,
    c_int,
    c_int64,
    c_uint8,
    c_uint32,
    c_uint64,
    c_void_p,
)
from functools import cache
from pathlib import Path
from typing import Any

from baton.kv.keys import KEY_BYTES
from services.router.prefix_index.holder_sets import SetTransitions

_MIN_RUNS = 256


class NativeTable:
    """Blocks with at least one holder. Owned by one event loop. A block takes 18 to 36 bytes.

    Keys are distinguished by 8 bytes that are mixed from their 16.

    Args:
        library: the compiled library, made by `build`.

    Raises:
        OSError: it cannot be loaded.
    """

    def __init__(self, library: Path) -> None:
        self._path = library
        self._library = _load(library)
        self._table = self._library.table_new()
        if not self._table:
            raise MemoryError("out of memory for the block table")
        weakref.finalize(self, self._library.table_free, self._table)
        self._asked = c_uint32()
        self._runs = (c_uint32 * (2 * _MIN_RUNS))()
        self._sets = 0
        """More than any set number that a block has had."""

    def __len__(self) -> int:
        """Return the number of blocks."""
        return int(self._library.table_count(self._table))

    def empty(self) -> "NativeTable":
        """Return another table, without blocks."""
        return NativeTable(self._path)

    def match(self, keys: Iterable[bytes]) -> list[tuple[int, int]]:
        """Fold the leading known keys into runs: the number of a set, and how many have it."""
        return self.match_packed(b"".join(keys))

    def match_packed(self, keys: bytes, *, gaps: bool = False) -> list[tuple[int, int]]:
        """Do what `match` does with packed keys; with `gaps`, fold all keys: unknown ones too."""
        count = len(keys) // KEY_BYTES
        if 2 * count > len(self._runs):
            self._runs = (c_uint32 * (2 * count))()
        runs = self._library.table_match(self._table, keys, count, gaps, self._runs)
        numbers = self._runs[: 2 * runs]
        return list(zip(numbers[::2], numbers[1::2], strict=True))

    def add(self, keys: Collection[bytes], after: SetTransitions) -> None:
        """Replace each key's set by its successor, which is never empty."""
        self.replace(keys, after)

    def replace(self, keys: Iterable[bytes], after: SetTransitions) -> None:
        """Replace each known key's set by its successor; remove the key if that is empty.

        Raises:
            MemoryError: the table cannot grow.
        """
        packed = b"".join(keys)
        count = len(packed) // KEY_BYTES
        at = 0
        while True:
            address, known = after.column.buffer_info()
            at = self._library.table_replace(
                self._table, packed, at, count, address, known, byref(self._asked)
            )
            if at == count:
                return
            if at < 0:
                raise MemoryError(f"out of memory for more than {len(self)} blocks")
            self._learn(after)

    def begin_sweep(self) -> None:
        """Begin to `sweep` the current blocks."""
        self._library.table_begin_sweep(self._table)

    def sweep(self, limit: int, after: SetTransitions) -> bool:
        """Replace as `replace` does, for at most `limit` blocks; return whether some are left."""
        while True:
            address, known = after.column.buffer_info()
            left = self._library.table_sweep(self._table, limit, address, known, byref(self._asked))
            if left != _ASKS:
                return bool(left)
            self._learn(after)

    def used(self) -> set[int]:
        """Return the numbers of the sets in use."""
        used = (c_uint8 * (self._sets + 1))()
        self._library.table_used(self._table, used)
        return {number for number, is_used in enumerate(used) if number and is_used}

    def _learn(self, after: SetTransitions) -> None:
        self._sets = max(self._sets, after.learn(self._asked.value))


_ASKS = 2
"""Result of `table_sweep` when the successor of a set is not known."""


@cache
def _load(path: Path) -> CDLL:
    library = CDLL(str(path))
    table, keys, size, after = c_void_p, c_char_p, c_uint64, c_void_p
    numbers, asked, used = POINTER(c_uint32), POINTER(c_uint32), POINTER(c_uint8)
    results: dict[str, Any] = {
        "table_new": c_void_p,
        "table_free": None,
        "table_count": size,
        "table_match": size,
        "table_replace": c_int64,
        "table_begin_sweep": None,
        "table_sweep": c_int,
        "table_used": None,
    }
    arguments: dict[str, list[Any]] = {
        "table_new": [],
        "table_free": [table],
        "table_count": [table],
        "table_match": [table, keys, size, c_int, numbers],
        "table_replace": [table, keys, size, size, after, size, asked],
        "table_begin_sweep": [table],
        "table_sweep": [table, size, after, size, asked],
        "table_used": [table, used],
    }
    for name, result in results.items():
        function = library[name]
        function.restype = result
        function.argtypes = arguments[name]
        setattr(library, name, function)
    return library
