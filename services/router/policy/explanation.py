"""What every placement of one request would cost, and why it was not the one that was chosen."""

from collections.abc import Sequence
from enum import StrEnum
from typing import NamedTuple

from baton.errors import BatonError
from services.router.policy.candidates import (
    DecodeCandidate,
    PlacementCandidate,
    decode_candidates,
    estimate_ttft,
)
from services.router.policy.costs import PlacementQuery, Policy, PrefillEstimate
from services.router.policy.placement import Chosen, choose
from services.router.state.worker import Worker


class Exclusion(StrEnum):
    """Why a placement is not among those that are compared."""

    TOKENIZER = "tokenizer"
    """Its worker has another tokenizer."""
    ADAPTER = "adapter"
    """Its worker does not serve the adapter."""
    EXCLUDED = "excluded"
    """The query excludes its worker."""
    DRAINING = "draining"
    STALE = "stale"
    """Its worker's reports stopped, and others report."""
    MEMORY = "memory"
    """Its worker has fewer pages than the request needs."""
    ITL = "itl"
    """Streams that run on the worker would exceed their target beside the prompt."""
    UNPAIRED = "unpaired"
    """A prefill worker without a decode worker of its layout that it could hand KV over to."""
    SHORTLIST = "shortlist"
    """A prefill worker that was not among the few best ones that are paired."""
    DISAGGREGATION = "disaggregation"
    """The policy, or that a stream resumes, leaves no choice of where to prefill."""


class CandidateCosts(NamedTuple):
    """One placement: a decode worker by itself, or a prefill worker with its best decode worker.

    Times are in seconds. What was not computed for a worker that may not be used is 0.
    """

    decode_worker: str
    """Empty: a prefill worker that has no decode worker."""
    prefill_worker: str = ""
    """Empty: the decode worker prefills by itself."""
    exclusion: Exclusion | None = None
    """Why it is not compared; None: it is."""
    chosen: bool = False
    score: float = 0.0
    """The lowest wins; those within 1 % or 0.5 ms of it are equal, and the seed chooses."""
    queue_seconds: float = 0.0
    """Until the prompt's turn comes and, without a prefill worker, the batch has room."""
    transfer_seconds: float = 0.0
    """Of KV that is held elsewhere and of the hand-over, as far as neither is hidden."""
    prefill_seconds: float = 0.0
    delay_seconds: float = 0.0
    """In the score: what prompts that go later lose."""
    batch_seconds: float = 0.0
    """In the score: what streams of the decode worker's batch lose by one more."""
    step_seconds: float = 0.0
    """Of the streams beside a chunk of the prompt; 0: no streams run where it is computed."""
    engine_tokens: int = 0
    """Of the prompt, found in the pages of the worker that computes it."""
    local_tokens: int = 0
    """Found in the memory of its store."""
    remote_tokens: int = 0
    """Found in another store, or on a disk."""
    uncached_tokens: int = 0
    needed_pages: int = 0
    """Of the decode worker."""
    free_pages: int = 0
    total_pages: int = 0


def explain(
    query: PlacementQuery,
    workers: Sequence[Worker],
    unfit: Sequence[tuple[Worker, Exclusion]],
    policy: Policy,
    chosen: Chosen | None = None,
) -> list[CandidateCosts]:
    """Return every candidate, the chosen one first, then by score; those that are out come last.

    Args:
        query: the request.
        workers: all workers of its model with its tokenizer and adapter.
        unfit: the others, and why.
        policy: constants of the cost model.
        chosen: what was chosen already; None: what would be chosen now.
    """
    rows = [CandidateCosts(worker.id, exclusion=why) for worker, why in unfit]
    try:
        chosen = chosen or choose(query, workers, policy)
    except BatonError:
        return sorted([*rows, *(_refused(query, one, policy) for one in workers)], key=_order)
    best_by_prefill: dict[str, PlacementCandidate] = {}
    for pair in chosen.remote:
        assert pair.prefill_worker is not None
        known = best_by_prefill.setdefault(pair.prefill_worker.id, pair)
        if pair.score < known.score or pair is chosen.best:
            best_by_prefill[pair.prefill_worker.id] = pair
    shown = [*chosen.local, *best_by_prefill.values()]
    listed = {one.computing.id for one in shown}
    rows += [_row(query, one, policy, chosen=one is chosen.best) for one in shown]
    rows += [_refused(query, one, policy) for one in workers if one.id not in listed]
    return sorted(rows, key=_order)


def _order(row: CandidateCosts) -> tuple[bool, bool, float, str, str]:
    return (
        not row.chosen,
        row.exclusion is not None,
        row.score,
        row.decode_worker,
        row.prefill_worker,
    )


def _row(
    query: PlacementQuery, candidate: PlacementCandidate, policy: Policy, *, chosen: bool
) -> CandidateCosts:
    worker, prefill, decode = candidate.computing, candidate.prefill, candidate.decode
    ttft = estimate_ttft(query, candidate, policy)
    step = _step_seconds(worker, policy)
    coverage = prefill.coverage
    return CandidateCosts(
        decode.worker.id,
        candidate.prefill_worker.id if candidate.prefill_worker is not None else "",
        Exclusion.ITL if step > policy.itl_target and not chosen else None,
        chosen,
        candidate.score,
        *ttft,
        prefill.stall_seconds,
        decode.batch_slowdown,
        step,
        coverage.engine * worker.block_tokens,
        coverage.local * worker.block_tokens,
        coverage.remote * worker.block_tokens,
        prefill.uncached_tokens,
        decode.pages,
        decode.worker.free_pages,
        decode.worker.total_pages,
    )


def _refused(query: PlacementQuery, worker: Worker, policy: Policy) -> CandidateCosts:
    decode: DecodeCandidate = decode_candidates(query, [worker], policy)[0]
    prefill: PrefillEstimate = decode.prefill
    if worker.id in query.excluded:
        why = Exclusion.EXCLUDED
    elif worker.draining:
        why = Exclusion.DRAINING
    elif worker.stale:
        why = Exclusion.STALE
    elif worker.can_decode and decode.pages > worker.total_pages:
        why = Exclusion.MEMORY
    elif worker.can_decode or policy.disaggregation == "never":
        why = Exclusion.DISAGGREGATION
    else:
        why = Exclusion.UNPAIRED
    return CandidateCosts(
        worker.id if worker.can_decode else "",
        "" if worker.can_decode else worker.id,
        why,
        queue_seconds=prefill.queue_seconds,
        transfer_seconds=prefill.transfer_seconds,
        prefill_seconds=prefill.prefill_seconds,
        uncached_tokens=prefill.uncached_tokens,
        needed_pages=decode.pages,
        free_pages=worker.free_pages,
        total_pages=worker.total_pages,
    )


def _step_seconds(worker: Worker, policy: Policy) -> float:
    if not worker.running or not policy.engine_chunk_tokens or policy.ranking != "finish":
        return 0.0
    rates = worker.rates
    return rates.decode_step_seconds + policy.engine_chunk_tokens / rates.prefill_tokens_per_second
