"""Why a placement was chosen, in a sentence for people: what was decided, and what spoke for it."""

from collections.abc import Sequence

from services.router.policy.candidates import (
    DecodeCandidate,
    PlacementCandidate,
    estimate_ttft,
    resumes_locally,
)
from services.router.policy.costs import PlacementQuery, Policy
from services.router.state.worker import Worker


def reason(
    query: PlacementQuery,
    best: PlacementCandidate,
    others: Sequence[PlacementCandidate],
    decodes: Sequence[DecodeCandidate],
    workers: Sequence[Worker],
    policy: Policy,
) -> str:
    """Return what was decided and why.

    Args:
        query: the request.
        best: what was chosen.
        others: what it was compared with: placements without a prefill worker where `best` has
            one, placements with one where it has none.
        decodes: the decode workers that were considered.
        workers: all workers that may be used.
        policy: constants of the cost model.
    """
    if others:
        why = _comparison(query, best, min(others, key=lambda other: other.score), policy)
    elif best.prefill_worker is not None:
        why = "disaggregation is set to always"
    else:
        why = _alone(query, best.decode.worker, decodes, workers, policy)
    return f"{_decision(best)}; {why}"


def _decision(best: PlacementCandidate) -> str:
    prefill, decode = best.prefill, best.decode.worker.id
    tokens = (
        f"{prefill.uncached_tokens} of {prefill.cached_tokens + prefill.uncached_tokens} tokens"
    )
    if best.prefill_worker is None:
        return f"{decode} computes {tokens} itself"
    return f"{best.prefill_worker.id} computes {tokens} for {decode}"


def _comparison(
    query: PlacementQuery, best: PlacementCandidate, other: PlacementCandidate, policy: Policy
) -> str:
    if other.prefill_worker is not None:
        alternative = f"prefill on {other.prefill_worker.id}"
    else:
        alternative = f"{other.decode.worker.id} alone"
    own = round(sum(estimate_ttft(query, best, policy)) * 1e3)
    would = round(sum(estimate_ttft(query, other, policy)) * 1e3)
    stalls = other.prefill.stall_seconds > best.prefill.stall_seconds
    stall = "delay what waits there" if policy.ranking == "finish" else "stall its streams"
    if would > own:
        return f"{alternative} would take {would} ms, not {own}" + stalls * f", and {stall}"
    if stalls:
        return f"{alternative} would take {would} ms, but {stall}"
    if would < own:
        return f"{alternative} would take {would} ms, not {own}, but slow other streams more"
    kept_free = best.prefill_worker is not None
    return f"{alternative} would take {would} ms, too" + kept_free * ", and is kept free to decode"


def _alone(
    query: PlacementQuery,
    decode: Worker,
    decodes: Sequence[DecodeCandidate],
    workers: Sequence[Worker],
    policy: Policy,
) -> str:
    if policy.disaggregation == "never":
        return "disaggregation is set to never"
    prefill_workers = [w for w in workers if w.can_prefill and w.id != decode.id]
    if not prefill_workers:
        return "there is no other worker to prefill on"
    if resumes_locally(query, decodes, policy):
        return "it resumes, and too little is left to compute for a hand-over"
    if all(worker.stale for worker in prefill_workers):
        return "no prefill worker reports its load"
    return "no prefill worker can hand KV over to it"
