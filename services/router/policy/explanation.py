"""What every placement of one request would cost, and why it was not the chosen one."""

from collections.abc import Sequence
from enum import StrEnum
from typing import NamedTuple

from baton.errors import BatonError
from services.router.policy.candidates import Candidates, PlacementCandidate
from services.router.policy.costs import PlacementQuery, Policy, PrefillEstimate
from services.router.policy.estimates import Estimator
from services.router.policy.placement import Chosen, choose
from services.router.policy.scores import pages_of
from services.router.state.columns import Booleans, WorkerColumns
from services.router.state.worker import Worker


class Exclusion(StrEnum):
    """Why a placement is excluded from the comparison."""

    TOKENIZER = "tokenizer"
    """Its worker has another tokenizer."""
    ADAPTER = "adapter"
    """Its worker does not serve the adapter."""
    EXCLUDED = "excluded"
    """The query excludes its worker."""
    DRAINING = "draining"
    STALE = "stale"
    """Its worker stopped reporting, while others report."""
    MEMORY = "memory"
    """Its worker has fewer pages than the request needs."""
    ROOM = "room"
    """Its worker has no space for all choices of the request now, while another one has."""
    ITL = "itl"
    """Streams that run on the worker would exceed their target next to the prompt."""
    UNPAIRED = "unpaired"
    """A prefill worker without a decode worker of its layout to hand KV over to."""
    DISAGGREGATION = "disaggregation"
    """The policy, or that a stream resumes, determines where to prefill."""


class CandidateCosts(NamedTuple):
    """One placement: a decode worker alone, or a prefill worker with its best decode worker.

    Times are in seconds. What was not computed because the worker may not be used is 0.
    """

    decode_worker: str
    """Empty: a prefill worker without a decode worker."""
    prefill_worker: str = ""
    """Empty: the decode worker prefills locally."""
    exclusion: Exclusion | None = None
    """Why it is excluded; None: it is compared."""
    chosen: bool = False
    score: float = 0.0
    """The lowest wins; those within 1 % or 0.5 ms of it are equal, and the seed decides."""
    queue_seconds: float = 0.0
    """Until the prompt's turn comes and, without a prefill worker, the batch has space."""
    transfer_seconds: float = 0.0
    """Transfer of KV held elsewhere and the hand-over, as far as neither is hidden."""
    prefill_seconds: float = 0.0
    delay_seconds: float = 0.0
    """Part of the score: what prompts that go later lose."""
    batch_seconds: float = 0.0
    """Part of the score: what one more stream costs the decode worker's batch."""
    step_seconds: float = 0.0
    """Step time of the streams next to a chunk of the prompt; 0: no streams run where it is
    prefilled, or the chunk is not known."""
    engine_tokens: int = 0
    """Prompt tokens found in the pages of the worker that prefills."""
    local_tokens: int = 0
    """Prompt tokens found in the memory of its store."""
    remote_tokens: int = 0
    """Prompt tokens found in another store, or on a disk."""
    uncached_tokens: int = 0
    needed_pages: int = 0
    """Pages needed on the decode worker."""
    free_pages: int = 0
    total_pages: int = 0
    itl_limit_seconds: float = 0.0
    """Most seconds that a step of these streams may take next to a chunk; 0: there are none."""


def explain(
    query: PlacementQuery,
    columns: WorkerColumns,
    fit: Booleans | None,
    unfit: Sequence[tuple[Worker, Exclusion]],
    policy: Policy,
) -> list[CandidateCosts]:
    """Return every candidate: the chosen one first, then by score, excluded ones last.

    Args:
        query: the request.
        columns: all workers of its model.
        fit: by worker, whether it has the query's tokenizer and adapter; None: all have.
        unfit: the workers without them, and why.
        policy: constants of the cost model.
    """
    rows = [CandidateCosts(worker.id, exclusion=why) for worker, why in unfit]
    try:
        chosen = choose(query, columns, policy, fit)
    except BatonError:
        tokens = query.prompt_tokens + query.output_tokens
        prefill = Estimator(query, columns, policy).prefill(tokens)
        pages = pages_of(columns, query, policy)
        for row, worker in enumerate(columns.workers):
            if fit is None or fit[row]:
                estimate = prefill.row(row)
                needed = pages if isinstance(pages, int) else int(pages[row])
                rows.append(_refused(query, worker, estimate, needed, policy))
        return sorted(rows, key=_order)
    return sorted([*rows, *explain_chosen(query, chosen, policy)], key=_order)


def explain_chosen(query: PlacementQuery, chosen: Chosen, policy: Policy) -> list[CandidateCosts]:
    """Return the candidates that a past placement was chosen from, in the order of `explain`.

    Workers with another tokenizer or adapter are not listed.
    """
    best, candidates = chosen.best, chosen.candidates
    rows = [_row(one, policy, best) for one in _shown(candidates, best, local=chosen.local)]
    listed = {row.prefill_worker or row.decode_worker for row in rows}
    for row in candidates.fit_rows():
        worker = candidates.workers[row]
        if worker.id not in listed:
            prefill, pages = candidates.scores.prefill.row(row), candidates.pages(row)
            rows.append(_refused(query, worker, prefill, pages, policy))
    return sorted(rows, key=_order)


def _shown(
    candidates: Candidates, best: PlacementCandidate, *, local: bool
) -> list[PlacementCandidate]:
    """Return decode workers alone, and each prefill worker with its best decode worker."""
    shown = []
    if local:
        shown += [candidates.local(at) for at in range(len(candidates.scores.decode_rows))]
    pairs = candidates.scores.pairs
    if pairs is not None:
        for at, scores in enumerate(pairs.scores):
            one = candidates.pair(pairs, at, int(scores.argmin()))
            if best.prefill_worker is not None and one.computing is best.computing:
                one = best
            if one.score < float("inf"):
                shown.append(one)
    return shown


def _order(row: CandidateCosts) -> tuple[bool, bool, float, str, str]:
    return (
        not row.chosen,
        row.exclusion is not None,
        row.score,
        row.decode_worker,
        row.prefill_worker,
    )


def _row(candidate: PlacementCandidate, policy: Policy, best: PlacementCandidate) -> CandidateCosts:
    worker, prefill, decode = candidate.computing, candidate.prefill, candidate.decode_worker
    chosen = decode is best.decode_worker and candidate.prefill_worker is best.prefill_worker
    step, coverage = candidate.step_seconds, prefill.coverage
    return CandidateCosts(
        decode.id,
        candidate.prefill_worker.id if candidate.prefill_worker is not None else "",
        Exclusion.ITL if candidate.exceeds_itl(policy) and not chosen else None,
        chosen,
        candidate.score,
        *candidate.ttft,
        prefill.delay_seconds,
        candidate.batch_slowdown,
        step,
        coverage.engine * worker.block_tokens,
        coverage.local * worker.block_tokens,
        coverage.remote * worker.block_tokens,
        prefill.uncached_tokens,
        candidate.decode_pages,
        decode.free_pages,
        decode.total_pages,
        worker.itl_limit(policy.itl_target) if step else 0.0,
    )


def _refused(
    query: PlacementQuery, worker: Worker, prefill: PrefillEstimate, pages: int, policy: Policy
) -> CandidateCosts:
    if worker.id in query.excluded:
        why = Exclusion.EXCLUDED
    elif worker.draining:
        why = Exclusion.DRAINING
    elif worker.stale:
        why = Exclusion.STALE
    elif worker.can_decode and pages > worker.total_pages:
        why = Exclusion.MEMORY
    elif worker.can_decode and not worker.room.takes(query.n, pages):
        why = Exclusion.ROOM
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
        needed_pages=pages,
        free_pages=worker.free_pages,
        total_pages=worker.total_pages,
    )
