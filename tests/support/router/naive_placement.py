"""Reference placement, which the array operations must match: one worker or pair at a time."""

from collections.abc import Iterable, Iterator, Sequence
from heapq import nsmallest
from typing import NamedTuple

from services.router.policy.candidates import TtftEstimate
from services.router.policy.costs import (
    PlacementQuery,
    Policy,
    PrefillEstimate,
    PromptTurn,
    decode_pages,
)
from services.router.prefix_index.holders import DRAM, ENGINE
from services.router.prefix_index.match import Coverage, Match
from services.router.state.worker import Worker

_TIE_SECONDS = 5e-4
_TIE_SHARE = 0.01


class DecodeCandidate(NamedTuple):
    """A decode worker's contribution to any placement that uses it; times in seconds."""

    worker: Worker
    prefill: PrefillEstimate
    """Cost on the worker itself, without a prefill worker."""
    pages: int
    """Pages that the request needs on it."""
    admission_wait: float
    """Time until its batch has space."""
    batch_slowdown: float


class PlacementCandidate(NamedTuple):
    """A possible placement."""

    score: float
    """The value that placements are compared by: seconds to the first token plus the cost to
    others."""
    decode: DecodeCandidate
    prefill_worker: Worker | None
    """None: the decode worker prefills by itself."""
    prefill: PrefillEstimate

    @property
    def computing(self) -> Worker:
        """The worker that computes the prompt."""
        return self.prefill_worker if self.prefill_worker is not None else self.decode.worker


class HandoffTarget(NamedTuple):
    """A decode worker that receives KV from a prefill worker; times in seconds."""

    decode: DecodeCandidate
    local: float
    """Time for the KV from a prefill worker on the same store, with none of it hidden."""
    remote: float
    """The same from another store."""
    resume_prefill: float
    """Time to compute the output so far, which a prefill worker does not see."""
    after: float
    """Cost once the KV is there: `resume_prefill` and what it costs others here."""


class Placed(NamedTuple):
    """The best placement, and the candidates."""

    best: PlacementCandidate
    local: Sequence[PlacementCandidate]
    remote: Sequence[PlacementCandidate]


def place(query: PlacementQuery, workers: Iterable[Worker], policy: Policy) -> Placed | None:
    """Return the best placement; None: there is none."""
    usable = [w for w in workers if not w.draining and w.id not in query.excluded]
    decode_workers = _prefer_fresh([w for w in usable if w.can_decode])
    if not decode_workers:
        return None
    decodes = decode_candidates(query, decode_workers, policy)
    decodes = [decode for decode in decodes if decode.pages <= decode.worker.total_pages]
    if not decodes:
        return None
    local = [local_candidate(decode) for decode in decodes]
    remote = (
        remote_candidates(query, usable, decodes, policy)
        if policy.disaggregation != "never"
        else []
    )
    if policy.disaggregation == "always" and remote:
        local = []
    best = _pick(query.seed, _within_itl([*local, *remote], policy))
    return Placed(best, local, remote)


def cover(match: Match, worker_id: str, store_id: str, exclude_store: str = "") -> Coverage:
    """Return the part of the chain that a worker has or can fetch.

    Its own pages count as far as they are contiguous from the start (an engine reuses only a
    prefix); pages of other engines never count, since only stores serve blocks.

    Args:
        worker_id: the worker.
        store_id: the store through which it fetches; empty: it can't fetch.
        exclude_store: another store from which it does not fetch; empty: none.
    """
    if not match.runs:
        return Coverage()
    holders = match.holders
    own = holders.bits[ENGINE].get(worker_id, 0)
    near = holders.bits[DRAM].get(store_id, 0)
    stores = holders.store_bits if store_id else 0
    if exclude_store:
        stores &= ~holders.holder_bits(exclude_store)
    engine = local = remote = 0
    for mask, blocks in match.runs:
        if mask & own:
            engine += blocks
        elif mask & near:
            own = 0
            local += blocks
        elif mask & stores:
            own = 0
            remote += blocks
        else:
            break
    return Coverage(engine, local, remote)


def estimate_prefill(
    query: PlacementQuery, worker: Worker, tokens: int, policy: Policy, exclude_store: str = ""
) -> PrefillEstimate:
    """Return the cost of the KV of the first `tokens` of prompt and output on a worker.

    At least one token is computed, since its logits are needed.

    Args:
        query: the request.
        worker: the worker.
        tokens: tokens of prompt and output, at least 1.
        policy: constants of the cost model.
        exclude_store: a store from which the worker does not fetch; empty: it fetches from all.
    """
    match = query.matches.get(worker.layout_id)
    coverage = cover(match, worker.id, worker.store_id, exclude_store) if match else Coverage()
    cached = min(coverage.blocks * worker.block_tokens, tokens - 1)
    prefill = (tokens - cached) * worker.prefill_token_seconds
    transfer = coverage.local * _near_seconds(worker) + coverage.remote * _far_seconds(worker)
    turn = query.turns.get(worker.id, PromptTurn())
    queue = max(0.0, worker.queue_seconds(query.now) + turn.seconds)
    return PrefillEstimate(
        coverage,
        cached,
        tokens - cached,
        queue,
        max(0.0, transfer - queue),
        prefill,
        policy.delay_weight * turn.delayed * prefill,
    )


def step_seconds(worker: Worker, uncached_tokens: int) -> float:
    """Return how long a worker's streams would wait for a token next to a prompt's chunk.

    0 if no streams run, or if the prompt tokens per step are not known.

    Args:
        worker: computes the prompt.
        uncached_tokens: uncached tokens of the prompt: a chunk has no more of them.
    """
    if not worker.streams_beside:
        return 0.0
    rates = worker.rates
    chunk = min(worker.decode_chunk_tokens, uncached_tokens)
    return rates.decode_step_seconds + chunk / rates.prefill_tokens_per_second


def handoff_seconds(
    query: PlacementQuery, worker: Worker, coverage: Coverage
) -> tuple[float, float]:
    """Return the transfer time of a prompt's KV to a decode worker if computing hides none of it.

    Args:
        query: the request.
        worker: the decode worker.
        coverage: the part of the prompt that it has or can fetch already.

    Returns:
        (with a prefill worker on the same store, with one on another store).
    """
    missing = max(0, worker.pages(query.prompt_tokens) - coverage.engine)
    local = min(coverage.local, missing)
    return (
        missing * _near_seconds(worker),
        local * _near_seconds(worker) + (missing - local) * _far_seconds(worker),
    )


def admission_wait_seconds(worker: Worker, pages: int, policy: Policy) -> float:
    """Return the time until a decode worker's batch has space and pages for one more stream."""
    ahead = worker.waiting + (1 if pages > worker.free_pages else 0)
    if not ahead:
        return 0.0
    stream_seconds = policy.typical_output_tokens * worker.rates.decode_step_seconds
    return ahead * stream_seconds / max(1, worker.running)


def batch_slowdown_seconds(worker: Worker, policy: Policy) -> float:
    """Return the delay of the other streams by one more stream in a worker's batch."""
    streams = worker.running + worker.waiting
    return policy.batch_slowdown_weight * worker.rates.decode_step_seconds * streams


def decode_candidates(
    query: PlacementQuery, workers: Iterable[Worker], policy: Policy
) -> list[DecodeCandidate]:
    """Return the cost of each decode worker as part of placements."""
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
    score = prefill.total_seconds + wait + prefill.delay_seconds + decode.batch_slowdown
    return PlacementCandidate(score, decode, None, prefill)


def resumes_locally(
    query: PlacementQuery, decodes: Sequence[DecodeCandidate], policy: Policy
) -> bool:
    """Return whether the query is a resumed stream with little of its prompt uncached."""
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
    """Return pairs of workers; none for a resumed stream with little uncached."""
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
            key=lambda pair: pair[0].total_seconds + pair[0].delay_seconds,
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
    ttft, delay = prefill.total_seconds, prefill.delay_seconds
    last_chunk = _last_chunk(query, policy)
    for target in targets:
        decode = target.decode
        if not (worker.can_decode and decode.worker.can_prefill):
            # Blocks travel while the rest is computed, all but the last chunk.
            handoff = target.local if same_store else target.remote
            ready = max(ttft + handoff * last_chunk, handoff, decode.admission_wait)
            yield PlacementCandidate(ready + target.after + delay, decode, worker, prefill)


def _handoff_target(query: PlacementQuery, decode: DecodeCandidate) -> HandoffTarget:
    worker = decode.worker
    local, remote = handoff_seconds(query, worker, decode.prefill.coverage)
    resume = query.output_tokens * worker.prefill_token_seconds
    return HandoffTarget(decode, local, remote, resume, resume + decode.batch_slowdown)


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
    """Return the share of the prompt's KV whose transfer is not hidden by computing."""
    return min(1.0, policy.chunk_tokens / query.prompt_tokens)


def _prefer_fresh(workers: list[Worker]) -> list[Worker]:
    """Return the workers that still report, or all of them if none does."""
    return [w for w in workers if not w.stale] or workers


def _within_itl(candidates: list[PlacementCandidate], policy: Policy) -> list[PlacementCandidate]:
    """Return the workers whose prompt delays no stream beyond its target, or all if none."""
    return [
        one
        for one in candidates
        if step_seconds(one.computing, one.prefill.uncached_tokens)
        <= itl_limit(one.computing, policy)
    ] or candidates


def itl_limit(worker: Worker, policy: Policy) -> float:
    """Return the strictest target of the streams on a worker."""
    targets = [worker.itl_target]
    if not worker.itl_target_of_all:
        targets.append(policy.itl_target)
    return min(targets)


def _pick(seed: int, candidates: Sequence[PlacementCandidate]) -> PlacementCandidate:
    """Return the lowest score; among equally good ones, one that the seed picks evenly.

    If it makes no difference to this request, a prefill worker is used, so that the decode worker
    stays free for later streams.
    """
    best = min(candidate.score for candidate in candidates)
    limit = best + max(_TIE_SECONDS, best * _TIE_SHARE)
    ties = [candidate for candidate in candidates if candidate.score <= limit]
    return ties[0] if len(ties) == 1 else min(ties, key=lambda tie: _tie_break(seed, tie))


def _tie_break(seed: int, candidate: PlacementCandidate) -> tuple[bool, int, str, str]:
    prefill, decode = candidate.prefill_worker, candidate.decode.worker
    mixed = (decode.registered.id_hash ^ seed) * 0x9E3779B1
    if prefill is not None:
        mixed ^= (prefill.registered.id_hash ^ seed) * 0x85EBCA77
    mixed = (mixed ^ (mixed >> 15)) * 0xC2B2AE3D & 0xFFFFFFFF
    return prefill is None, mixed, decode.id, prefill.id if prefill is not None else ""


def _near_seconds(worker: Worker) -> float:
    """Return the time to fetch a block from the store next to a worker."""
    return worker.registered.block_bytes / worker.rates.local_bytes_per_second


def _far_seconds(worker: Worker) -> float:
    """Return the time to fetch a block from any other store."""
    return worker.registered.block_bytes / worker.rates.remote_bytes_per_second
