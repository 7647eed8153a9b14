"""Every way to run a request, each with its cost.

A candidate is a decode worker that prefills by itself, or a pair of a prefill and a decode worker
of the same layout. Candidates are many and short-lived: one per pair.
"""

from collections.abc import Iterable, Iterator, Sequence
from heapq import nsmallest
from typing import NamedTuple

from services.router.policy.costs import (
    PlacementQuery,
    Policy,
    PrefillEstimate,
    admission_wait_seconds,
    batch_slowdown_seconds,
    decode_pages,
    estimate_prefill,
    handoff_seconds,
)
from services.router.state.worker import Worker


class DecodeCandidate(NamedTuple):
    """What a decode worker adds to any placement that uses it; times in seconds."""

    worker: Worker
    prefill: PrefillEstimate
    """Of the worker itself, without a prefill worker."""
    pages: int
    """That it needs for the request."""
    admission_wait: float
    """Until its batch has room."""
    batch_slowdown: float


class PlacementCandidate(NamedTuple):
    """One placement."""

    score: float
    """What placements are compared by: seconds to the first token plus the cost to others."""
    decode: DecodeCandidate
    prefill_worker: Worker | None
    """None: the decode worker prefills by itself."""
    prefill: PrefillEstimate

    @property
    def computing(self) -> Worker:
        """The worker that computes the prompt."""
        return self.prefill_worker if self.prefill_worker is not None else self.decode.worker


class TtftEstimate(NamedTuple):
    """Predicted time to first token in parts: until decoding can go on after that token."""

    queue_seconds: float
    transfer_seconds: float
    prefill_seconds: float


class HandoffTarget(NamedTuple):
    """A decode worker that takes KV over from a prefill worker; times in seconds."""

    decode: DecodeCandidate
    local: float
    """For the KV from a prefill worker on the same store, none of it hidden."""
    remote: float
    """The same from another store."""
    resume_prefill: float
    """To compute the output so far, which a prefill worker does not see."""
    after: float
    """Cost once the KV is there: `resume_prefill` and what it costs others here."""


def decode_candidates(
    query: PlacementQuery, workers: Iterable[Worker], policy: Policy
) -> list[DecodeCandidate]:
    """Return what each decode worker costs as part of placements."""
    tokens = query.prompt_tokens + query.output_tokens
    pages_by_size: dict[int, int] = {}
    candidates = []
    for worker in workers:
        pages = pages_by_size.get(worker.block_tokens)
        if pages is None:
            pages = decode_pages(query, worker.block_tokens, policy)
            pages_by_size[worker.block_tokens] = pages
        candidates.append(
            DecodeCandidate(
                worker,
                estimate_prefill(query, worker, tokens, policy),
                pages,
                admission_wait_seconds(worker, pages, policy),
                batch_slowdown_seconds(worker, policy),
            )
        )
    return candidates


def local_candidate(decode: DecodeCandidate) -> PlacementCandidate:
    """Return the placement in which a decode worker prefills by itself."""
    prefill = decode.prefill
    wait = max(0.0, decode.admission_wait - prefill.queue_seconds)
    score = prefill.total_seconds + wait + prefill.stall_seconds + decode.batch_slowdown
    return PlacementCandidate(score, decode, None, prefill)


def resumes_locally(
    query: PlacementQuery, decodes: Sequence[DecodeCandidate], policy: Policy
) -> bool:
    """Return whether the query is a stream that resumes with little of its prompt uncached."""
    return query.output_tokens > 0 and all(
        decode.prefill.uncached_tokens - query.output_tokens < policy.resume_remote_min_tokens
        for decode in decodes
    )


def remote_candidates(
    query: PlacementQuery,
    workers: Sequence[Worker],
    decodes: Sequence[DecodeCandidate],
    policy: Policy,
) -> list[PlacementCandidate]:
    """Return pairs of workers; none for a stream that resumes with little left uncached."""
    # Two workers that both prefill and decode could hold their pages for streams that wait for a
    # prefill on the other one, and neither prefill would get pages.
    layouts = {d.worker.layout_id for d in decodes if not d.worker.can_prefill}
    prefill_workers = [
        worker
        for worker in workers
        if worker.can_prefill
        and not worker.stale
        and worker.store_id
        and (not worker.can_decode or worker.layout_id in layouts)
    ]
    if not prefill_workers or resumes_locally(query, decodes, policy):
        return []
    # Without a store there is no way for KV to get from one worker to the other.
    by_layout: dict[bytes, dict[str, list[HandoffTarget]]] = {}
    for decode in decodes:
        worker = decode.worker
        if worker.store_id:
            by_store = by_layout.setdefault(worker.layout_id, {})
            by_store.setdefault(worker.store_id, []).append(_handoff_target(query, decode))
    estimates = [
        (estimate_prefill(query, worker, query.prompt_tokens, policy), worker)
        for worker in prefill_workers
        if worker.layout_id in by_layout and worker.pages(query.prompt_tokens) <= worker.total_pages
    ]
    if len(estimates) > policy.max_prefill_workers:
        estimates = nsmallest(
            policy.max_prefill_workers,
            estimates,
            key=lambda pair: pair[0].total_seconds + pair[0].stall_seconds,
        )
    return [
        candidate
        for estimate, worker in estimates
        for store_id, on_store in by_layout[worker.layout_id].items()
        for candidate in _pairs(query, worker, estimate, store_id, on_store, policy)
    ]


def _pairs(
    query: PlacementQuery,
    worker: Worker,
    estimate: PrefillEstimate,
    store_id: str,
    targets: Sequence[HandoffTarget],
    policy: Policy,
) -> Iterator[PlacementCandidate]:
    """Yield one prefill worker with each decode worker of one store."""
    same_store = worker.store_id == store_id
    prefill = estimate
    if estimate.coverage.remote and not same_store:
        # One list of sources serves both workers, and the decode worker's store is not in it.
        prefill = estimate_prefill(query, worker, query.prompt_tokens, policy, store_id)
    ttft, stall = prefill.total_seconds, prefill.stall_seconds
    last_chunk = _last_chunk(query, policy)
    for target in targets:
        decode = target.decode
        if not (worker.can_decode and decode.worker.can_prefill):
            # Blocks travel while the rest is computed, all but the last chunk.
            handoff = target.local if same_store else target.remote
            ready = max(ttft + handoff * last_chunk, handoff, decode.admission_wait)
            yield PlacementCandidate(ready + target.after + stall, decode, worker, prefill)


def _handoff_target(query: PlacementQuery, decode: DecodeCandidate) -> HandoffTarget:
    worker = decode.worker
    local, remote = handoff_seconds(query, worker, decode.prefill.coverage)
    resume = query.output_tokens / worker.rates.prefill_tokens_per_second
    after = resume + decode.batch_slowdown + worker.running * resume
    return HandoffTarget(decode, local, remote, resume, after)


def estimate_ttft(
    query: PlacementQuery, candidate: PlacementCandidate, policy: Policy
) -> TtftEstimate:
    """Return the predicted time to first token of a candidate."""
    _, decode, worker, prefill = candidate
    if worker is None:
        queue = max(prefill.queue_seconds, decode.admission_wait)
        return TtftEstimate(queue, prefill.transfer_seconds, prefill.prefill_seconds)
    same_store = worker.store_id == decode.worker.store_id
    target = _handoff_target(query, decode)
    travel = target.local if same_store else target.remote
    handoff = max(travel * _last_chunk(query, policy), travel - prefill.total_seconds)
    wait = max(0.0, decode.admission_wait - prefill.total_seconds - handoff)
    return TtftEstimate(
        prefill.queue_seconds + wait,
        prefill.transfer_seconds + handoff,
        prefill.prefill_seconds + target.resume_prefill,
    )


def _last_chunk(query: PlacementQuery, policy: Policy) -> float:
    """Return the share of the prompt's KV whose transfer nothing hides."""
    return min(1.0, policy.chunk_tokens / query.prompt_tokens)
