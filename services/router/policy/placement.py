"""Where a request should run: the placement with the lowest predicted time to first token.

Whether to prefill remotely at all is the same comparison as where to. Pure: the same workers and
query give the same placement.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from baton.errors import BatonError, Reason
from services.router.policy.candidates import (
    DecodeCandidate,
    PlacementCandidate,
    TtftEstimate,
    decode_candidates,
    estimate_ttft,
    local_candidate,
    remote_candidates,
)
from services.router.policy.costs import PlacementQuery, Policy, PrefillEstimate, keeps_itl
from services.router.policy.reason import reason
from services.router.state.worker import Worker

DEFAULT_POLICY = Policy()
RETRY_SECONDS = 1.0

_MAX_RETRY_SECONDS = 60.0
_TIE_SECONDS = 5e-4
_TIE_SHARE = 0.01


@dataclass(frozen=True, slots=True)
class Decision:
    """The chosen placement, what is expected of it, and why."""

    prefill_worker: Worker | None
    """None: the decode worker prefills by itself."""
    decode_worker: Worker
    prefill: PrefillEstimate
    """Of the worker that prefills."""
    ttft: TtftEstimate
    decode_pages: int
    """Pages that the decode worker needs."""
    sources: tuple[str, ...]
    """Stores that hold, or may come to hold, the prompt's KV, the likeliest first."""
    reason: str


class Chosen(NamedTuple):
    """The best placement, and what it was chosen from."""

    best: PlacementCandidate
    local: Sequence[PlacementCandidate]
    remote: Sequence[PlacementCandidate]
    decodes: Sequence[DecodeCandidate]
    usable: Sequence[Worker]


def place(
    query: PlacementQuery, workers: Iterable[Worker], policy: Policy = DEFAULT_POLICY
) -> Decision:
    """Choose where a request runs.

    Args:
        query: the request.
        workers: all workers of its model, including those that cannot be used.
        policy: constants of the cost model.

    Raises:
        BatonError: NO_WORKER, NO_CAPACITY (it fits into no worker's memory) or OVERLOADED (every
            queue is too long), each with a time to retry after.
    """
    return decide(query, choose(query, workers, policy), policy)


def choose(
    query: PlacementQuery, workers: Iterable[Worker], policy: Policy = DEFAULT_POLICY
) -> Chosen:
    """Choose the best placement, however long its queue is.

    Args:
        query: the request.
        workers: all workers of its model, including those that cannot be used.
        policy: constants of the cost model.

    Raises:
        BatonError: NO_WORKER or NO_CAPACITY (it fits into no worker's memory), each with a time to
            retry after.
    """
    usable = [w for w in workers if not w.draining and w.id not in query.excluded]
    decode_workers = _prefer_fresh([w for w in usable if w.can_decode])
    if not decode_workers:
        raise BatonError(
            Reason.NO_WORKER, "no decode worker can take this request", retry_after=RETRY_SECONDS
        )
    decodes = decode_candidates(query, decode_workers, policy)
    decodes = [decode for decode in decodes if decode.pages <= decode.worker.total_pages]
    if not decodes:
        most = max(w.total_pages * w.block_tokens for w in decode_workers)
        raise BatonError(
            Reason.NO_CAPACITY,
            f"the request needs KV for more tokens than any worker has memory for ({most})",
            retry_after=RETRY_SECONDS,
        )
    local = [local_candidate(decode) for decode in decodes]
    remote = (
        remote_candidates(query, usable, decodes, policy)
        if policy.disaggregation != "never"
        else []
    )
    if policy.disaggregation == "always" and remote:
        local = []
    best = _pick(query.seed, _within_itl([*local, *remote], policy))
    return Chosen(best, local, remote, decodes, usable)


def decide(query: PlacementQuery, chosen: Chosen, policy: Policy = DEFAULT_POLICY) -> Decision:
    """Return a chosen placement with what is expected of it, and why it was chosen.

    Raises:
        BatonError: OVERLOADED: its queue is too long, and it is the best.
    """
    best, local, remote, decodes, usable = chosen
    ttft = estimate_ttft(query, best, policy)
    if ttft.queue_seconds > policy.max_queue_seconds:
        too_long = ttft.queue_seconds - policy.max_queue_seconds
        raise BatonError(
            Reason.OVERLOADED,
            f"the shortest queue is {ttft.queue_seconds:.0f} s long",
            retry_after=min(_MAX_RETRY_SECONDS, max(RETRY_SECONDS, too_long)),
        )
    return Decision(
        best.prefill_worker,
        best.decode.worker,
        best.prefill,
        ttft,
        best.decode.pages,
        _sources(query, best),
        reason(
            query, best, remote if best.prefill_worker is None else local, decodes, usable, policy
        ),
    )


def _prefer_fresh(workers: list[Worker]) -> list[Worker]:
    """Return the workers that still report, or all of them if none does."""
    return [w for w in workers if not w.stale] or workers


def _within_itl(candidates: list[PlacementCandidate], policy: Policy) -> list[PlacementCandidate]:
    """Return those whose prompt stalls no stream beyond its target, or all if none does so."""
    if policy.ranking != "finish" or not policy.engine_chunk_tokens:
        return candidates
    return [one for one in candidates if keeps_itl(one.computing, policy)] or candidates


def _pick(seed: int, candidates: Sequence[PlacementCandidate]) -> PlacementCandidate:
    """Return the lowest score; among those as good as it, one that the seed picks evenly.

    Where it makes no difference to this request a prefill worker is used, so that the decode worker
    stays free for streams that are yet to come.
    """
    best = min(candidate.score for candidate in candidates)
    limit = best + max(_TIE_SECONDS, best * _TIE_SHARE)
    ties = [candidate for candidate in candidates if candidate.score <= limit]
    return ties[0] if len(ties) == 1 else min(ties, key=lambda tie: _tie_break(seed, tie))


def _tie_break(seed: int, candidate: PlacementCandidate) -> tuple[bool, int, str, str]:
    prefill, decode = candidate.prefill_worker, candidate.decode.worker
    mixed = (decode.id_hash ^ seed) * 0x9E3779B1
    if prefill is not None:
        mixed ^= (prefill.id_hash ^ seed) * 0x85EBCA77
    mixed = (mixed ^ (mixed >> 15)) * 0xC2B2AE3D & 0xFFFFFFFF
    return prefill is None, mixed, decode.id, prefill.id if prefill is not None else ""


def _sources(query: PlacementQuery, candidate: PlacementCandidate) -> tuple[str, ...]:
    """Return the stores to ask, that of the prefill worker first; empty: their own is enough.

    The decode worker's own store is named only where the prefill worker puts to it too: to a store,
    its own name among sources means that local workers may still put the objects.
    """
    prefill, decode = candidate.prefill_worker, candidate.decode.worker
    match = query.matches.get(decode.layout_id)
    holders = match.stores() if match is not None and candidate.prefill.coverage.remote else []
    others = [store for store in holders if store != decode.store_id]
    if prefill is None:
        return tuple(others)
    if prefill.store_id == decode.store_id and not others:
        return ()
    return tuple(dict.fromkeys((prefill.store_id, *others)))
