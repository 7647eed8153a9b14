"""The workers of one model as columns: a number per worker and quantity, for array operations.

Changes by reports and tickets are written into the columns row by row; registrations do not change
rows: new columns are made when they do.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from itertools import chain
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from services.router.prefix_index.match import Match
from services.router.state.holdings import HoldingsTable, RunHoldings
from services.router.state.worker import Worker

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]
Booleans = NDArray[np.bool_]
Hashes = NDArray[np.uint64]
N = TypeVar("N", str, bytes)

_MAX_FITS = 1024
_FEW = 8
"""Up to this many rows are written one by one, more as one array."""


class WorkerColumns:
    """One row per worker: those that only prefill, that do both, that only decode.

    Rows of one role are therefore contiguous, and are read as slices, without copies.

    Args:
        workers: of one model.
    """

    def __init__(self, workers: Iterable[Worker]) -> None:
        self.workers: Sequence[Worker] = sorted(workers, key=_role)
        """Replaced, never mutated, when a worker changes: readers keep their snapshot."""
        rows = self.workers
        self.ids = [one.id for one in rows]
        self.rows = {name: row for row, name in enumerate(self.ids)}
        self.id_hashes: Hashes = np.array([one.registered.id_hash for one in rows], np.uint64)
        self.can_prefill: Booleans = np.array([one.can_prefill for one in rows], bool)
        self.can_decode: Booleans = np.array([one.can_decode for one in rows], bool)
        self.all_combined = bool((self.can_prefill & self.can_decode).all())
        self.any_combined = bool((self.can_prefill & self.can_decode).any())
        self.layout_ids, self.layouts = _numbered([one.layout_id for one in rows])
        """Layouts, and which of them each worker has."""
        self.store_ids, self.stores = _numbered([one.store_id for one in rows])
        """Stores, and the local store of each worker."""
        self.has_store: Booleans = np.array([bool(one.store_id) for one in rows], bool)
        self.block_tokens: Floats = np.array([one.block_tokens for one in rows], float)
        self.block_sizes = sorted({one.block_tokens for one in rows})
        self._fits: dict[bytes | tuple[str, bytes], Booleans | None] = {}
        """Masks by tokenizer or adapter; None: all workers."""
        self._holdings = HoldingsTable([(one.id, one.store_id) for one in rows], self.store_ids)
        self.values: Floats = np.empty((19, len(rows)))
        """[quantity, worker]."""
        (
            self.dry_at,
            self.computes_until,
            self.token_seconds,
            self.near_block_seconds,
            self.far_block_seconds,
            self.step_seconds,
            self.stream_seconds,
            self.batch_seconds,
            self.waiting,
            self.free_pages,
            self.total_pages,
            self.chunk_tokens,
            self.chunk_token_seconds,
            self._itl_targets,
            self._itl_targets_of_rest,
            self._at_once,
            self._places,
            self._large,
            self._room_pages,
        ) = self.values
        self.addresses = b""
        """Addresses of these arrays, as passed to compiled code."""
        self._write(range(len(rows)), rows)
        self.beside: Booleans = np.empty(len(rows), bool)
        self._set_usable()
        self._set_flags()

    def __len__(self) -> int:
        """Return the number of workers."""
        return len(self.workers)

    def update(self, workers: Sequence[Worker]) -> bool:
        """Rewrite the rows of workers whose registrations are unchanged.

        Returns:
            Whether all of them have rows; otherwise nothing is written.
        """
        known = self.rows
        rows = [known.get(one.registered.id, -1) for one in workers]
        if -1 in rows:
            return False
        kept = list(self.workers)
        flags = usable = False
        for row, one in zip(rows, workers, strict=True):
            old = kept[row]
            if old.stale != one.stale or old.draining != one.draining:
                usable = True
            elif (
                old.streams_beside != one.streams_beside
                or old.total_pages != one.total_pages
                or old.max_sequences != one.max_sequences
            ):
                flags = True
            kept[row] = one
        self.workers = kept
        self._write(rows, workers)
        if usable:
            self._set_usable()
        if usable or flags:
            self._set_flags()
        return True

    def queue_seconds(self, now: float) -> Floats:
        """Return the seconds until the queued prompts of each worker are computed."""
        left: Floats = self.dry_at - np.minimum(self.computes_until, now)
        return np.maximum(left, 0.0, out=left)

    def itl_limits(self, default: float) -> Floats:
        """Return the seconds between tokens that each worker's streams are to keep.

        Args:
            default: for streams whose class sets no target, or is not known.
        """
        limits: Floats = np.minimum(self._itl_targets, self._itl_targets_of_rest + default)
        return limits

    def have_room(
        self,
        rows: Integers,
        choices: int,
        pages: int | Floats,
        held: Mapping[str, tuple[int, int]],
    ) -> Booleans:
        """Return which workers have space for all choices of a request that decodes there.

        Args:
            rows: of the workers.
            choices: number of choices.
            pages: pages that they need together, at any worker or at each worker.
            held: choices and pages, by worker, that are held for others.
        """
        at_once, places = self._at_once[rows], self._places[rows]
        room_pages = self._room_pages[rows]
        if held:
            for at, row in enumerate(rows.tolist()):
                if self.ids[row] in held:
                    kept, kept_pages = held[self.ids[row]]
                    at_once[at] -= kept
                    places[at] -= kept
                    room_pages[at] -= kept_pages
        needed = pages if isinstance(pages, int) else pages[rows]
        fits: Booleans = at_once >= np.minimum(choices, self._large[rows])
        fits &= (places >= choices) & (room_pages >= needed)
        return fits

    @property
    def have_place(self) -> Booleans:
        """Which workers accept one more sequence, to run or to wait."""
        places: Booleans = self._places >= 1
        return places

    def holdings(self, match: Match) -> RunHoldings:
        """Return the holders of a match's runs; ignores the layouts of rows."""
        return self._holdings.of(match)

    def with_tokenizer(self, digest: bytes) -> Booleans | None:
        """Return the workers that have a tokenizer; None: all. Cached, as few are requested."""
        if digest not in self._fits:
            self._keep_fit(digest, [one.tokenizer_digest == digest for one in self.workers])
        return self._fits[digest]

    def with_adapter(self, adapter: tuple[str, bytes]) -> Booleans | None:
        """Return the workers that serve an adapter, by its name and digest; None: all."""
        if adapter not in self._fits:
            self._keep_fit(adapter, [adapter in one.adapters for one in self.workers])
        return self._fits[adapter]

    def _keep_fit(self, key: bytes | tuple[str, bytes], fit: list[bool]) -> None:
        if len(self._fits) >= _MAX_FITS:
            self._fits.clear()
        self._fits[key] = None if all(fit) else np.array(fit, bool)

    def _write(self, rows: Sequence[int], workers: Sequence[Worker]) -> None:
        values = self.values
        if len(rows) > _FEW:
            flat = chain.from_iterable(map(_values, workers))
            values[:, rows] = np.fromiter(flat, float).reshape(len(rows), -1).T
            return
        for row, one in zip(rows, workers, strict=True):
            values[:, row] = _values(one)

    def _set_usable(self) -> None:
        rows = self.workers
        self.active: Booleans = np.array([not one.draining for one in rows], bool)
        self.stale: Booleans = np.array([one.stale for one in rows], bool)
        self.kept_rows: Any = None
        """Cached rows of these columns, for the next query."""

    def _set_flags(self) -> None:
        rows = self.workers
        self.beside[:] = [one.streams_beside for one in rows]  # in place: its address is known
        self.any_beside = bool(self.beside.any())
        self.least_pages = min((one.total_pages for one in rows), default=0)
        """Fewest pages of all workers; the next one likewise."""
        self.least_sequences = min((one.max_sequences for one in rows), default=math.inf)


def span(rows: Integers) -> slice | Integers:
    """Return ordered rows as a slice if they are contiguous, which avoids copies."""
    if not len(rows):
        return rows
    begin, end = int(rows[0]), int(rows[-1]) + 1
    return slice(begin, end) if end - begin == len(rows) else rows


def _role(worker: Worker) -> int:
    return worker.can_decode - worker.can_prefill


def _numbered(names: Sequence[N]) -> tuple[dict[N, int], Integers]:
    known: dict[N, int] = {}
    numbers = [known.setdefault(name, len(known)) for name in names]
    return known, np.array(numbers, np.int64)


def _values(worker: Worker) -> tuple[float, ...]:
    rates, running, block_bytes = worker.rates, worker.running, worker.registered.block_bytes
    prefill, step, remote, local = rates
    return (
        worker.dry_at,
        worker.computes_until,
        worker.prefill_token_seconds,
        block_bytes / local,
        block_bytes / remote,
        step,
        step / (running if running > 1 else 1),
        step * (running + worker.waiting),
        worker.waiting,
        worker.free_pages,
        worker.total_pages,
        worker.decode_chunk_tokens,
        1.0 / prefill,
        worker.itl_target,
        math.inf if worker.itl_target_of_all else 0.0,
        *worker.room,
    )
