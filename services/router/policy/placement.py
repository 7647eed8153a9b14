"""Where a request should run: the placement with the lowest predicted time to first token.

Whether to prefill remotely at all is the same comparison as where to. Pure: the same workers and
query give the same placement.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from baton.errors import BatonError, Reason
from services.router.policy.candidates import (
    Option,
    Parts,
    local_option,
    parts,
    remote_options,
    seat,
)
from services.router.policy.costs import Policy, Query, Reading, Worker

POLICY = Policy()
RETRY_SECONDS = 1.0

_MAX_RETRY_SECONDS = 60.0
_TIE_SECONDS = 5e-4
_TIE_SHARE = 0.01


@dataclass(frozen=True, slots=True)
class Decision:
    """The chosen placement, what is expected of it, and why."""

    reader: Worker | None
    """The prefill worker; None where the decode worker reads the prompt itself."""
    writer: Worker
    reading: Reading
    parts: Parts
    pages: int
    """That the writer needs."""
    sources: tuple[str, ...]
    """Stores that hold, or may come to hold, the prompt's KV, the likeliest first."""
    reason: str


def place(query: Query, workers: Iterable[Worker], policy: Policy = POLICY) -> Decision:
    """Choose where a request runs.

    Args:
        query: the request.
        workers: all workers of its model; those that can't be used are left out here.
        policy: constants of the cost model.

    Raises:
        BatonError: NO_WORKER, NO_CAPACITY (it fits into no worker's memory) or OVERLOADED (every
            queue is too long), each with a time to retry after.
    """
    usable = [w for w in workers if not w.draining and w.id not in query.excluded]
    writers = _heard([w for w in usable if w.writes])
    if not writers:
        raise BatonError(
            Reason.NO_WORKER, "no decode worker can take this request", retry_after=RETRY_SECONDS
        )
    seats = [seat(query, w, policy) for w in writers]
    seats = [at for at in seats if at.pages <= at.writer.total_pages]
    if not seats:
        most = max(w.total_pages * w.block_tokens for w in writers)
        raise BatonError(
            Reason.NO_CAPACITY,
            f"the request needs KV for more tokens than any worker has memory for ({most})",
            retry_after=RETRY_SECONDS,
        )
    local = [local_option(at) for at in seats]
    remote = (
        remote_options(query, usable, seats, policy) if policy.disaggregation != "never" else []
    )
    if policy.disaggregation == "always" and remote:
        local = []
    best = _pick(query.seed, [*local, *remote])
    expected = parts(query, best, policy)
    if expected.queue > policy.max_queue_seconds:
        too_long = expected.queue - policy.max_queue_seconds
        raise BatonError(
            Reason.OVERLOADED,
            f"the shortest queue is {expected.queue:.0f} s long",
            retry_after=min(_MAX_RETRY_SECONDS, max(RETRY_SECONDS, too_long)),
        )
    return Decision(
        best.reader,
        best.seat.writer,
        best.reading,
        expected,
        best.seat.pages,
        _sources(query, best),
        _reason(query, best, remote if best.reader is None else local, policy),
    )


def _heard(workers: list[Worker]) -> list[Worker]:
    """Workers that still report; the others only where there is nobody else."""
    return [w for w in workers if not w.silent] or workers


def _pick(seed: int, options: Sequence[Option]) -> Option:
    """The lowest score; among those as good as it, one that the seed picks evenly.

    Where it makes no difference to this request a prefill worker reads, so that the decode worker
    stays free for streams that are yet to come.
    """
    best = min(option.score for option in options)
    limit = best + max(_TIE_SECONDS, best * _TIE_SHARE)
    ties = [option for option in options if option.score <= limit]
    return ties[0] if len(ties) == 1 else min(ties, key=lambda option: _lot(seed, option))


def _lot(seed: int, option: Option) -> tuple[bool, int, str, str]:
    reader, writer = option.reader, option.seat.writer
    mixed = (writer.spread ^ seed) * 0x9E3779B1
    if reader is not None:
        mixed ^= (reader.spread ^ seed) * 0x85EBCA77
    mixed = (mixed ^ (mixed >> 15)) * 0xC2B2AE3D & 0xFFFFFFFF
    return reader is None, mixed, writer.id, reader.id if reader is not None else ""


def _sources(query: Query, option: Option) -> tuple[str, ...]:
    """Stores to ask, that of the prefill worker first; empty where both workers' own is enough.

    The writer's own store is named only where the prefill worker writes to it too: to a store, its
    own name among sources means that local writers may still come.
    """
    reader, writer = option.reader, option.seat.writer
    match = query.matches.get(writer.layout_id)
    holders = match.stores() if match is not None and option.reading.coverage.remote else []
    others = [store for store in holders if store != writer.store_id]
    if reader is None:
        return tuple(others)
    if reader.store_id == writer.store_id and not others:
        return ()
    return tuple(dict.fromkeys((reader.store_id, *others)))


def _reason(query: Query, best: Option, others: Sequence[Option], policy: Policy) -> str:
    reading = best.reading
    who = best.reader or best.seat.writer
    tokens = reading.cached_tokens + reading.uncached_tokens
    said = f"{who.id} computes {reading.uncached_tokens} of {tokens} tokens"
    if not others:
        return f"{said}; nobody to prefill for it"
    other = min(others, key=lambda option: option.score)
    where = f"through {other.reader.id}" if other.reader else f"{other.seat.writer.id} alone"
    milliseconds = sum(parts(query, other, policy)) * 1e3
    stalls = " and stall its streams" if other.reading.stall > reading.stall else ""
    return f"{said}; {where} would take {milliseconds:.0f} ms{stalls}"
