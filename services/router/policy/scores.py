"""Every way to run a request, each with its score: array operations on columns of workers.

A candidate is a decode worker that prefills locally, or a pair of a prefill and a decode worker of
the same layout. The prefill workers that are best by themselves are paired with all decode
workers.
"""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from services.router.policy.costs import PlacementQuery, Policy, decode_pages
from services.router.policy.estimates import (
    DELAY,
    ENGINE,
    LOCAL,
    QUEUE,
    TOTAL,
    UNCACHED,
    Estimator,
    PrefillColumns,
)
from services.router.policy.usable import HandoverRows, Usable
from services.router.state.columns import Booleans, Floats, Integers, WorkerColumns


class Adapted(NamedTuple):
    """Prefill costs of prefill workers that do not fetch from the decode worker's store."""

    changed: Booleans | Floats
    """By prefill worker of the shortlist: whether it would fetch from it."""
    prefill: PrefillColumns
    """Estimates, in the same order."""


class PairScores(NamedTuple):
    """Prefill workers of the shortlist × decode workers that can receive KV."""

    prefill_rows: Integers
    decode_rows: Integers
    decode_at: Integers
    """Indexes of the decode workers among all that are compared."""
    scores: Floats
    """[prefill, decode]; infinite where they may not be paired."""
    steps: Floats | None
    """[prefill, decode]: seconds of a step next to a chunk; 0 without streams. None: there are no
    streams where prompts are prefilled."""
    travel: Floats
    """[prefill, decode]: seconds of KV transfer, none of it hidden."""
    resume: Floats
    """By decode worker: seconds to recompute the output so far."""
    adapted: dict[int, Adapted]
    """By the number of the decode worker's store."""


class Scores(NamedTuple):
    """The candidates of one query, by rows of the columns."""

    decode_rows: Integers
    """Rows of the decode workers that are compared."""
    local: Floats
    """Scores of the decode workers alone."""
    steps: Floats | None
    """By the same: seconds of a step next to a chunk; 0 without streams. None: no worker prefills
    next to streams."""
    admission_wait: Floats
    slowdown: Floats
    prefill: PrefillColumns
    """Estimates of all workers, for prompt and output."""
    remote_prefill: PrefillColumns
    """Estimates of all workers, for the prompt alone: a prefill worker does not see the output."""
    resumes_locally: bool
    """Whether the query is a stream that resumes with little of its prompt uncached."""
    pairs: PairScores | None = None


def pages_of(columns: WorkerColumns, query: PlacementQuery, policy: Policy) -> int | Floats:
    """Return the pages that decoding needs: one number, or one per worker if block sizes differ."""
    sizes = columns.block_sizes
    if len(sizes) == 1:
        return decode_pages(query, sizes[0], policy)
    by_size = {size: decode_pages(query, size, policy) for size in sizes}
    return np.array([by_size[int(size)] for size in columns.block_tokens], float)


class Picked(NamedTuple):
    """The placement that is chosen."""

    decode_at: int
    """Index of the decode worker among those compared; in a pair, among those of the pairs."""
    prefill_at: int = -1
    """Index of the prefill worker in the shortlist; -1: the decode worker prefills locally."""


Scorer = Callable[
    [PlacementQuery, WorkerColumns, Usable, int | Floats, Policy], tuple[Scores, Picked]
]
"""Computes the cost of every placement and chooses one, of usable workers: at least one, and decode
workers have memory for the pages that decoding needs, as returned by `pages_of`."""


def score(
    query: PlacementQuery,
    columns: WorkerColumns,
    usable: Usable,
    pages: int | Floats,
    policy: Policy,
) -> Scores:
    """Return what every placement would cost.

    Args:
        query: the request.
        columns: all workers of its model.
        usable: workers that may be used; the decode workers have memory for it.
        pages: that decoding needs, as `pages_of` returns them.
        policy: constants of the cost model.
    """
    rows = usable.decode
    taken = usable.decode_span
    estimator = Estimator(query, columns, policy)
    tokens = query.prompt_tokens + query.output_tokens
    prefill = estimator.prefill(tokens)
    slowdown = policy.batch_slowdown_weight * columns.batch_seconds[taken]
    local = prefill.values[TOTAL, taken] + slowdown
    needed = float(pages) if isinstance(pages, int) else pages[taken]
    ahead = columns.waiting[taken] + (columns.free_pages[taken] < needed)
    wait = estimator.none[taken]
    waits = bool(np.count_nonzero(ahead))
    if waits:
        wait = ahead * columns.stream_seconds[taken]
        wait *= policy.typical_output_tokens
        local += np.maximum(wait - prefill.values[QUEUE, taken], 0.0)
    if estimator.delays:
        local += prefill.values[DELAY, taken]
    uncached = prefill.values[UNCACHED, taken]
    resumes = query.output_tokens > 0 and bool(
        (uncached - query.output_tokens < policy.resume_remote_min_tokens).all()
    )
    remote = prefill
    if query.output_tokens:
        remote = estimator.prefill(query.prompt_tokens)
    steps = _steps(columns, taken, uncached) if columns.any_beside else None
    scores = Scores(rows, local, steps, wait, slowdown, prefill, remote, resumes)
    if policy.disaggregation == "never" or resumes or columns.all_combined:
        return scores
    pairs = _pairs(query, columns, usable.handover, scores, estimator, policy, waits=waits)
    return Scores(rows, local, steps, wait, slowdown, prefill, remote, resumes, pairs)


def _steps(columns: WorkerColumns, rows: Integers | slice, uncached: Floats) -> Floats:
    """Return the step time of streams next to a chunk, which is at most the uncached part."""
    chunk = np.minimum(columns.chunk_tokens[rows], uncached) * columns.chunk_token_seconds[rows]
    return np.where(columns.beside[rows], columns.step_seconds[rows] + chunk, 0.0)


def _pairs(
    query: PlacementQuery,
    columns: WorkerColumns,
    handover: HandoverRows,
    scores: Scores,
    estimator: Estimator,
    policy: Policy,
    *,
    waits: bool,
) -> PairScores | None:
    at, decodes, stores = handover.at_span, handover.decode_span, handover.decode_stores
    prefills = _shortlist(query, columns, handover, scores, policy, delays=estimator.delays)
    if not len(prefills):
        return None
    prefill, count = scores.remote_prefill, query.prompt_tokens
    of_prefills = columns.stores[prefills]
    first, delay = prefill.values[TOTAL, prefills][:, None], None
    if estimator.delays:
        delay = prefill.values[DELAY, prefills][:, None]
    combined = columns.can_decode[prefills]
    any_combined = columns.any_combined and bool(np.count_nonzero(combined))
    steps = None
    if any_combined and columns.any_beside:
        steps = _steps(columns, prefills, prefill.values[UNCACHED, prefills])[:, None]
        steps = np.broadcast_to(steps, (len(prefills), len(stores)))
    adapted: dict[int, Adapted] = {}
    for store in {one for _, held, _ in estimator.held_runs for one in held.sole_stores.tolist()}:
        if store not in handover.store_numbers:
            continue
        # One list of sources serves both workers, and does not contain the decode worker's store.
        found = estimator.prefill_without(store, count, prefills)
        if found is None:
            continue
        changed = found[0] & (of_prefills != store)
        one = adapted[store] = Adapted(changed, found[1])
        where = changed[:, None] & (stores == store)
        first = np.where(where, one.prefill.values[TOTAL, :, None], first)
        if delay is not None:
            delay = np.where(where, one.prefill.values[DELAY, :, None], delay)
        if steps is not None:
            slower = _steps(columns, prefills, one.prefill.values[UNCACHED])
            steps = np.where(where, slower[:, None], steps)
    travel = _travel(query, columns, scores, decodes, of_prefills[:, None] == stores)
    # Blocks travel while the rest is computed, except for the last chunk.
    found_at = first + travel * min(1.0, policy.chunk_tokens / count)
    np.maximum(found_at, travel, out=found_at)
    if waits:
        np.maximum(found_at, scores.admission_wait[at], out=found_at)
    found_at += scores.slowdown[at]
    resume = estimator.none[decodes]
    if query.output_tokens:
        resume = query.output_tokens * columns.token_seconds[decodes]
        found_at += resume
    if delay is not None:
        found_at += delay
    several = len(columns.layout_ids) > 1
    if any_combined:
        found_at[combined[:, None] & columns.can_prefill[decodes]] = np.inf
    if several:
        found_at[columns.layouts[prefills][:, None] != columns.layouts[decodes]] = np.inf
    if (any_combined or several) and found_at.item(found_at.argmin()) == np.inf:
        return None
    return PairScores(
        prefills, handover.decode, handover.decode_at, found_at, steps, travel, resume, adapted
    )


def _shortlist(
    query: PlacementQuery,
    columns: WorkerColumns,
    handover: HandoverRows,
    scores: Scores,
    policy: Policy,
    *,
    delays: bool,
) -> Integers:
    """Return the prefill workers that are best by themselves, with memory for the prompt."""
    rows, taken = handover.prefill, handover.prefill_span
    needed = -(-query.prompt_tokens // columns.block_sizes[0])
    if needed > columns.least_pages:
        pages = -(-query.prompt_tokens // columns.block_tokens[rows])
        rows = taken = rows[pages <= columns.total_pages[rows]]
    most = policy.max_prefill_workers
    if len(rows) <= most:
        return rows
    prefill = scores.remote_prefill.values
    costs = prefill[TOTAL, taken]
    if delays:
        costs = costs + prefill[DELAY, taken]
    last = costs.copy()
    last.partition(most - 1)
    best = (costs <= last.item(most - 1)).nonzero()[0]
    if len(best) > most:  # of equal last ones, the first rows
        best = np.sort(best[np.argsort(costs[best], kind="stable")[:most]])
    return rows[best]


def _travel(
    query: PlacementQuery,
    columns: WorkerColumns,
    scores: Scores,
    decodes: slice | Integers,
    same: Booleans,
) -> Floats:
    """Return the seconds of a prompt's KV transfer to decode workers if none of it is hidden."""
    held = scores.prefill.values
    pages: float | Floats = float(-(-query.prompt_tokens // columns.block_sizes[0]))
    if len(columns.block_sizes) > 1:
        pages = -(-query.prompt_tokens // columns.block_tokens[decodes])
    missing = np.maximum(pages - held[ENGINE, decodes], 0.0)
    local = np.minimum(held[LOCAL, decodes], missing)
    near_seconds, far_seconds = (
        columns.near_block_seconds[decodes],
        columns.far_block_seconds[decodes],
    )
    near = missing * near_seconds
    far = local * near_seconds + (missing - local) * far_seconds
    travel: Floats = np.where(same, near, far)
    return travel
