"""Which workers a query may use, as rows of the columns."""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from services.router.policy.costs import PlacementQuery
from services.router.state.columns import Booleans, Integers, WorkerColumns, span


class HandoverRows(NamedTuple):
    """Rows between which KV may be handed over."""

    decode_at: Integers
    """Indexes of the decode workers among all that are compared."""
    decode: Integers
    at_span: slice | Integers
    """`decode_at`, as a slice if contiguous; likewise the next ones."""
    decode_span: slice | Integers
    prefill_span: slice | Integers
    decode_stores: Integers
    store_numbers: frozenset[int]
    """The store numbers in `decode_stores`."""
    prefill: Integers


@dataclass(slots=True, eq=False)
class Usable:
    """Rows that may be used. Immutable."""

    decode: Integers
    decode_span: slice | Integers
    """`decode_rows`, as a slice if contiguous."""
    prefill: Booleans
    """Prefill workers that also report their load, as a mask over all workers."""
    prefill_at_all: Booleans
    handover: HandoverRows
    addresses: bytes = b""
    """Addresses of the rows, as passed to compiled code."""


def usable_rows(query: PlacementQuery, columns: WorkerColumns, fit: Booleans | None) -> Usable:
    """Return the workers that match the query, and are neither excluded nor draining.

    Stale workers are left out if others report; as prefill workers they always are.

    Args:
        query: the request.
        columns: all workers of its model.
        fit: those that have its tokenizer and adapter; None: all.
    """
    if fit is None and not query.excluded:
        return _default_rows(columns)
    usable = columns.active if fit is None else columns.active & fit
    excluded = [columns.rows[one] for one in query.excluded if one in columns.rows]
    if excluded:
        usable = usable.copy()
        usable[excluded] = False
    return _rows(columns, usable)


def _default_rows(columns: WorkerColumns) -> Usable:
    """Return the rows of queries without requirements; kept until a worker's state changes."""
    kept: Usable | None = columns.kept_rows
    if kept is None:
        kept = columns.kept_rows = _rows(columns, columns.active)
    return kept


def _rows(columns: WorkerColumns, usable: Booleans) -> Usable:
    decode = usable & columns.can_decode
    fresh = decode & ~columns.stale
    rows = fresh.nonzero()[0]
    if not len(rows):
        rows = decode.nonzero()[0]
    prefill = usable & columns.can_prefill
    reports = prefill & ~columns.stale
    return Usable(rows, span(rows), reports, prefill, _handover_rows(columns, rows, reports))


def without_decode(columns: WorkerColumns, usable: Usable, fits: Booleans) -> Usable:
    """Return the same rows, without the decode workers that a request does not fit into."""
    rows = usable.decode[fits]
    handover = _handover_rows(columns, rows, usable.prefill)
    return Usable(rows, span(rows), usable.prefill, usable.prefill_at_all, handover)


def with_room(columns: WorkerColumns, usable: Usable, fits: Booleans, prefill: Booleans) -> Usable:
    """Return the same rows, without the workers that lack space.

    Args:
        columns: all workers.
        usable: the usable rows.
        fits: by usable decode worker, whether the request fits.
        prefill: by worker, whether it has space for one more prompt.
    """
    rows = usable.decode[fits]
    reports = usable.prefill & prefill
    handover = _handover_rows(columns, rows, reports)
    return Usable(rows, span(rows), reports, usable.prefill_at_all, handover)


def _handover_rows(columns: WorkerColumns, rows: Integers, prefill: Booleans) -> HandoverRows:
    # Without a store KV cannot get from one worker to the other.
    at = columns.has_store[rows].nonzero()[0]
    decode, layouts = rows[at], columns.layouts
    # Two workers that both prefill and decode could hold their pages for streams that wait for a
    # prefill on the other one, and neither prefill would get pages.
    of_apart = np.isin(layouts, layouts[rows[~columns.can_prefill[rows]]])
    allowed = prefill & columns.has_store & (of_apart | ~columns.can_decode)
    allowed &= np.isin(layouts, layouts[decode])
    prefills = allowed.nonzero()[0]
    spans = span(at), span(decode), span(prefills)
    stores = columns.stores[decode]
    return HandoverRows(at, decode, *spans, stores, frozenset(stores.tolist()), prefills)
