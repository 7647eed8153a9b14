"""Where a request should run: the placement with the lowest predicted time to first token.

Whether to prefill remotely at all is the same comparison as where to. Pure: the same workers and
query give the same placement.
"""

from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from baton.errors import BatonError, Reason, invalid_field
from services.router.policy.candidates import Candidates, PlacementCandidate, TtftEstimate
from services.router.policy.costs import PlacementQuery, Policy, PrefillEstimate
from services.router.policy.pick import score_arrays
from services.router.policy.reason import reason
from services.router.policy.scores import Scorer, pages_of
from services.router.policy.usable import Usable, usable_rows, with_room, without_decode
from services.router.state.columns import Booleans, Floats, Integers, WorkerColumns
from services.router.state.worker import Worker

DEFAULT_POLICY = Policy()
RETRY_SECONDS = 1.0

_MAX_RETRY_SECONDS = 60.0


@dataclass(slots=True)
class Decision:
    """The chosen placement, its predicted costs, and why it was chosen."""

    prefill_worker: Worker | None
    """None: the decode worker prefills locally."""
    decode_worker: Worker
    prefill: PrefillEstimate
    """Estimate for the worker that prefills."""
    ttft: TtftEstimate
    decode_pages: int
    """Pages that the decode worker needs."""
    sources: tuple[str, ...]
    """Stores that hold, or may come to hold, the prompt's KV, the most likely first."""
    reason: str

    @property
    def computing(self) -> Worker:
        """The worker that prefills."""
        return self.decode_worker if self.prefill_worker is None else self.prefill_worker


class Chosen(NamedTuple):
    """The best placement, and the candidates that it was chosen from."""

    best: PlacementCandidate
    candidates: Candidates
    local: bool
    """Whether placements without a prefill worker were compared."""
    has_room: bool = True
    """Whether its workers have space for all choices now; if not, no other workers have it."""


def place(
    query: PlacementQuery, columns: WorkerColumns, policy: Policy = DEFAULT_POLICY
) -> Decision:
    """Choose where a request runs.

    Args:
        query: the request.
        columns: all workers of its model, including unusable ones.
        policy: constants of the cost model.

    Raises:
        BatonError: NO_WORKER, NO_CAPACITY (it fits into no worker's memory) or OVERLOADED (every
            queue is too long), each with a time to retry after.
    """
    return decide(query, choose(query, columns, policy), policy)


def choose(
    query: PlacementQuery,
    columns: WorkerColumns,
    policy: Policy = DEFAULT_POLICY,
    fit: Booleans | None = None,
    scorer: Scorer = score_arrays,
) -> Chosen:
    """Choose the best placement with space, or the best one if none has; ignores queue lengths.

    Args:
        query: the request.
        columns: all workers of its model, including unusable ones.
        policy: constants of the cost model.
        fit: by worker, whether it has the query's tokenizer and adapter; None: all have.
        scorer: what computes scores.

    Raises:
        BatonError: NO_WORKER or NO_CAPACITY (it fits into no worker's memory), each with a time to
            retry after.
    """
    usable, pages = possible(query, columns, policy, fit)

    def chosen(rows: Usable, *, has_room: bool) -> Chosen:
        scores, choice = scorer(query, columns, rows, pages, policy)
        candidates = Candidates(query, columns, rows, scores, pages, policy, fit)
        local = policy.disaggregation != "always" or scores.pairs is None
        return Chosen(candidates.chosen(choice), candidates, local, has_room)

    best = chosen(usable, has_room=True)
    if has_room(query, best.best):
        return best
    others = _with_room(query, columns, usable, pages)
    return chosen(others, has_room=True) if others is not None else best._replace(has_room=False)


def has_room(query: PlacementQuery, candidate: PlacementCandidate) -> bool:
    """Return whether a placement's workers have space for all choices besides what is held.

    Args:
        query: the request.
        candidate: where it would go.
    """
    decode, prefill = candidate.decode_worker, candidate.prefill_worker
    room, held = decode.room, query.held.get(decode.id)
    if held is not None:
        room = room.less(*held)
    return room.takes(query.n, candidate.decode_pages) and (
        prefill is None or prefill.room.places >= 1
    )


def _with_room(
    query: PlacementQuery, columns: WorkerColumns, usable: Usable, pages: int | Floats
) -> Usable | None:
    """Return the workers that have space for a request; None: there are not enough of them."""
    fits = columns.have_room(usable.decode, query.n, pages, query.held)
    prefill = columns.have_place
    if not fits.any() or (usable.prefill.any() and not (usable.prefill & prefill).any()):
        return None
    return with_room(columns, usable, fits, prefill)


def possible(
    query: PlacementQuery, columns: WorkerColumns, policy: Policy, fit: Booleans | None
) -> tuple[Usable, int | Floats]:
    """Return the workers that a request may run on, and the pages that decoding needs.

    Args:
        query: the request; its cached part makes no difference.
        columns: as for `choose`.
        policy: constants of the cost model.
        fit: by worker, whether it has the query's tokenizer and adapter; None: all have.

    Raises:
        BatonError: as for `choose`.
    """
    usable = usable_rows(query, columns, fit)
    rows = usable.decode
    if not len(rows):
        raise BatonError(
            Reason.NO_WORKER,
            "no decode worker is available",
            retry_after=RETRY_SECONDS,
        )
    pages = pages_of(columns, query, policy)
    if not isinstance(pages, int) or pages > columns.least_pages:
        needed = pages if isinstance(pages, int) else pages[rows]
        fits = needed <= columns.total_pages[rows]
        if not fits.any():
            most = (columns.total_pages[rows] * columns.block_tokens[rows]).max()
            if query.n > 1 and _fits(replace(query, n=1), columns, rows, policy):
                raise invalid_field(
                    "n",
                    f"{query.n} choices exceed the KV memory of every worker ({most:.0f} tokens): "
                    "request "
                    "fewer choices, or lower max_tokens",
                )
            raise BatonError(
                Reason.NO_CAPACITY,
                f"the request exceeds the KV memory of every worker ({most:.0f} tokens)",
                retry_after=RETRY_SECONDS,
            )
        usable = without_decode(columns, usable, fits)
    if query.n > columns.least_sequences:
        most = np.array([columns.workers[row].max_sequences for row in usable.decode.tolist()])
        if query.n > most.max():
            raise invalid_field(
                "n",
                f"{query.n} choices exceed the limit of every worker ({most.max():.0f}, "
                "engine.max_running plus engine.max_waiting): request fewer choices",
            )
        usable = without_decode(columns, usable, most >= query.n)
    return usable, pages


def _fits(query: PlacementQuery, columns: WorkerColumns, rows: Integers, policy: Policy) -> bool:
    pages = pages_of(columns, query, policy)
    needed = pages if isinstance(pages, int) else pages[rows]
    return bool((needed <= columns.total_pages[rows]).any())


def decide(query: PlacementQuery, chosen: Chosen, policy: Policy = DEFAULT_POLICY) -> Decision:
    """Return a chosen placement with its predicted costs, and why it was chosen.

    Raises:
        BatonError: OVERLOADED: it is the best one, and its queue is too long.
    """
    best = chosen.best
    ttft = best.ttft
    if ttft.queue_seconds > policy.max_queue_seconds:
        too_long = ttft.queue_seconds - policy.max_queue_seconds
        raise BatonError(
            Reason.OVERLOADED,
            f"the shortest queue is {ttft.queue_seconds:.0f} s long; retry later",
            retry_after=min(_MAX_RETRY_SECONDS, max(RETRY_SECONDS, too_long)),
        )
    return Decision(
        best.prefill_worker,
        best.decode_worker,
        best.prefill,
        ttft,
        best.decode_pages,
        _sources(query, best),
        reason(best, chosen.candidates, policy, local=chosen.local),
    )


def _sources(query: PlacementQuery, candidate: PlacementCandidate) -> tuple[str, ...]:
    """Return the stores to fetch from, the prefill worker's first; empty: its own is enough.

    The decode worker's own store is listed only if the prefill worker also puts to it: to a store,
    its own name among sources means that local workers may still put the objects.
    """
    prefill, decode = candidate.prefill_worker, candidate.decode_worker
    match = query.matches.get(decode.layout_id)
    holders = match.stores() if match is not None and candidate.prefill.coverage.remote else []
    others = [store for store in holders if store != decode.store_id]
    if prefill is None:
        return tuple(others)
    if prefill.store_id == decode.store_id and not others:
        return ()
    return tuple(dict.fromkeys((prefill.store_id, *others)))
