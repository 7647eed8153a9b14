"""Chooses among all placements by the scores of the array operations."""

import numpy as np

from services.router.policy.costs import PlacementQuery, Policy
from services.router.policy.scores import Picked, Scores, score
from services.router.policy.usable import Usable
from services.router.state.columns import Floats, Hashes, Integers, WorkerColumns

TIE_SECONDS = 5e-4
TIE_SHARE = 0.01

# Constants that mix the names of workers with a seed, modulo 2 ** 32.
_DECODE = np.uint64(0x9E3779B1)
_PREFILL = np.uint64(0x85EBCA77)
_SHIFT = np.uint64(15)
_LAST = np.uint64(0xC2B2AE3D << 32)  # leaves the low 32 bits, as the high ones


def score_arrays(
    query: PlacementQuery,
    columns: WorkerColumns,
    usable: Usable,
    pages: int | Floats,
    policy: Policy,
) -> tuple[Scores, Picked]:
    """Score all placements by array operations, and choose one: a `Scorer`."""
    scores = score(query, columns, usable, pages, policy)
    return scores, pick(query.seed, columns, scores, policy)


def pick(seed: int, columns: WorkerColumns, scores: Scores, policy: Policy) -> Picked:
    """Return the lowest score; among equally good ones, one that the seed picks uniformly.

    Placements whose prompt would hold up streams beyond their target are left out, unless all are.
    If it makes no difference to this request a prefill worker is used, so that the decode worker
    stays free for later streams.

    Args:
        seed: of the query.
        columns: the workers.
        columns: the workers.
        scores: scores of the workers.
    """
    pairs = scores.pairs
    local = policy.disaggregation != "always" or pairs is None
    alone, paired = _within_itl(scores, columns, policy, local=local)
    best = np.inf
    if alone is not None:
        best = alone.item(alone.argmin())
    if paired is not None:
        best = min(best, paired.item(paired.argmin()))
    limit = best + max(TIE_SECONDS, best * TIE_SHARE)
    hashes = columns.id_hashes
    if paired is not None and pairs is not None:
        ties = (paired <= limit).ravel().nonzero()[0]
        if len(ties):
            at, width = 0, len(pairs.decode_rows)
            if len(ties) > 1:
                prefills, decodes = np.divmod(ties, width)
                decode_rows = pairs.decode_rows.take(decodes)
                at = _tied(hashes, seed, decode_rows, pairs.prefill_rows.take(prefills))
            prefill_at, decode_at = divmod(ties.item(at), width)
            return Picked(decode_at, prefill_at)
    assert alone is not None
    ties = (alone <= limit).nonzero()[0]
    at = _tied(hashes, seed, scores.decode_rows[ties], None) if len(ties) > 1 else 0
    return Picked(int(ties[at]))


def _within_itl(
    scores: Scores, columns: WorkerColumns, policy: Policy, *, local: bool
) -> tuple[Floats | None, Floats | None]:
    """Return scores, infinite where streams would exceed their target, unless all would.

    Returns:
        (of decode workers alone, of pairs; None: they are not compared).
    """
    alone, pairs = scores.local if local else None, scores.pairs
    paired = pairs.scores if pairs is not None else None
    if scores.steps is None:
        return alone, paired
    limits = columns.itl_limits(policy.itl_target)
    kept_alone, kept_paired = alone, paired
    if alone is not None:
        kept_alone = np.where(scores.steps > limits[scores.decode_rows], np.inf, alone)
    if paired is not None and pairs is not None and pairs.steps is not None:
        of_prefills = limits[pairs.prefill_rows][:, None]
        kept_paired = np.where(pairs.steps > of_prefills, np.inf, paired)
    for kept in (kept_alone, kept_paired):
        if kept is not None and kept.item(kept.argmin()) < np.inf:
            return kept_alone, kept_paired
    return alone, paired


def _tied(
    id_hashes: Hashes, seed: int, decode_rows: Integers, prefill_rows: Integers | None
) -> int:
    """Return the placement that a seed picks uniformly among equally good ones.

    Args:
        id_hashes: by worker.
        seed: of the query.
        decode_rows: of the placements.
        prefill_rows: of the same; None: they have none.
    """
    hashes = id_hashes ^ np.uint64(seed & 0xFFFFFFFF)
    mixed = (hashes * _DECODE).take(decode_rows)
    if prefill_rows is not None:
        mixed ^= (hashes * _PREFILL).take(prefill_rows)
    mixed ^= mixed >> _SHIFT
    mixed *= _LAST
    return int(mixed.argmin())
