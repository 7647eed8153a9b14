"""Why a placement was chosen, as a sentence for people: the decision and its main reason."""

import numpy as np

from services.router.policy.candidates import Candidates, PlacementCandidate
from services.router.policy.costs import Policy


def reason(
    best: PlacementCandidate,
    candidates: Candidates,
    policy: Policy,
    *,
    local: bool,
) -> str:
    """Return what was decided and why.

    Args:
        best: the chosen placement.
        candidates: the candidates that it was chosen from.
        policy: constants of the cost model.
        local: whether placements without a prefill worker were compared.
    """
    if best.prefill_worker is None:
        other = candidates.best_pair()
        why = _alone(best, candidates, policy) if other is None else ""
    else:
        other = candidates.best_local() if local else None
        why = "disaggregation is set to always"
    if other is not None:
        why = _comparison(best, other, policy)
    return f"{_decision(best)}; {why}"


def _decision(best: PlacementCandidate) -> str:
    prefill, decode = best.prefill, best.decode_worker.id
    tokens = (
        f"{prefill.uncached_tokens} of {prefill.cached_tokens + prefill.uncached_tokens} tokens"
    )
    if best.prefill_worker is None:
        return f"{decode} computes {tokens} itself"
    return f"{best.prefill_worker.id} computes {tokens} for {decode}"


def _comparison(best: PlacementCandidate, other: PlacementCandidate, policy: Policy) -> str:
    if other.prefill_worker is not None:
        alternative = f"prefill on {other.prefill_worker.id}"
    else:
        alternative = f"{other.decode_worker.id} alone"
    own = round(sum(best.ttft) * 1e3)
    would = round(sum(other.ttft) * 1e3)
    harm = _harm(best, other, policy)
    if would > own:
        return f"{alternative} would take {would} ms, not {own} ms" + (
            f", and {harm}" if harm else ""
        )
    if harm:
        return f"{alternative} would take {would} ms, but {harm}"
    if would < own:
        return f"{alternative} would take {would} ms, not {own} ms, but slow down other streams"
    kept_free = best.prefill_worker is not None
    return f"{alternative} would take {would} ms, too" + kept_free * ", and stays free for decode"


def _harm(best: PlacementCandidate, other: PlacementCandidate, policy: Policy) -> str:
    """Return the harm to other requests that the other placement does and the best does not."""
    held_up, own = other.exceeds_itl(policy), best.exceeds_itl(policy)
    if held_up and not own:
        return (
            f"raise the inter-token latency of its streams to {round(other.step_seconds * 1e3)} ms"
        )
    if other.prefill.delay_seconds > best.prefill.delay_seconds:
        return "delay the requests that wait there"
    return ""


def _alone(best: PlacementCandidate, candidates: Candidates, policy: Policy) -> str:
    if policy.disaggregation == "never":
        return "disaggregation is set to never"
    usable, worker = candidates.usable, best.decode_worker
    if np.count_nonzero(usable.prefill_at_all) == worker.can_prefill:
        return "no other worker can prefill"
    if candidates.scores.resumes_locally:
        return "the stream resumes with too few tokens left for a handover"
    if np.count_nonzero(usable.prefill) == (worker.can_prefill and not worker.stale):
        return "no prefill worker reports its load"
    return "no prefill worker can transfer KV to it"
