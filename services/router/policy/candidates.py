"""Every way to run a request, each with its cost.

An option is a decode worker that reads the prompt itself, or a pair of a prefill and a decode
worker of the same layout. Options are many and short-lived: one per pair.
"""

from collections.abc import Iterator, Sequence
from heapq import nsmallest
from typing import NamedTuple

from services.router.policy.costs import (
    Policy,
    Query,
    Reading,
    Worker,
    crowd_seconds,
    handoff_seconds,
    pages_to_write,
    place_seconds,
    read,
)


class Seat(NamedTuple):
    """What a decode worker adds to any placement that uses it; seconds."""

    writer: Worker
    alone: Reading
    """Were it to read the prompt by itself."""
    pages: int
    """That it needs for the request."""
    wait: float
    """For a place in its batch."""
    crowd: float
    near: float
    """To get the KV from a prefill worker on the same store, nothing hidden."""
    far: float
    """The same from another store."""
    rest: float
    """To compute what a prefill worker doesn't know of: the output so far."""
    after: float
    """With a prefill worker, once the KV is there: `rest`, and what it all costs others here."""


class Option(NamedTuple):
    """One placement."""

    score: float
    """Seconds that placements are compared by: time to first token plus the cost to others."""
    seat: Seat
    reader: Worker | None
    """The prefill worker; None where the decode worker reads the prompt itself."""
    reading: Reading


class Parts(NamedTuple):
    """Predicted time to first token in parts: until decoding can go on after that token."""

    queue: float
    transfer: float
    prefill: float


def seat(query: Query, worker: Worker, policy: Policy) -> Seat:
    """A decode worker as part of placements."""
    alone = read(query, worker, query.prompt_tokens + query.output_tokens)
    pages = pages_to_write(query, worker, policy)
    near, far = handoff_seconds(query, worker, alone.coverage)
    crowd = crowd_seconds(worker, policy)
    rest = query.output_tokens / worker.rates.prefill_tokens_per_second
    return Seat(
        worker,
        alone,
        pages,
        place_seconds(worker, pages, policy),
        crowd,
        near,
        far,
        rest,
        rest + crowd + worker.running * rest,
    )


def local_option(at: Seat) -> Option:
    """The decode worker reads the prompt itself."""
    reading = at.alone
    wait = max(0.0, at.wait - reading.queue)
    return Option(reading.seconds + wait + reading.stall + at.crowd, at, None, reading)


def remote_options(
    query: Query, workers: Sequence[Worker], seats: Sequence[Seat], policy: Policy
) -> list[Option]:
    """Pairs of prefill and decode workers; none where a stream goes on and little is uncached."""
    if query.output_tokens and all(
        at.alone.uncached_tokens - query.output_tokens < policy.continue_remote_tokens
        for at in seats
    ):
        return []
    # Without a store there is no way for KV to get from one worker to the other.
    by_layout: dict[bytes, dict[str, list[Seat]]] = {}
    for at in seats:
        writer = at.writer
        if writer.store_id:
            by_layout.setdefault(writer.layout_id, {}).setdefault(writer.store_id, []).append(at)
    readings = [
        (read(query, worker, query.prompt_tokens), worker)
        for worker in workers
        if worker.reads
        and not worker.silent
        and worker.store_id
        and worker.layout_id in by_layout
        and worker.blocks(query.prompt_tokens) <= worker.total_pages
    ]
    if len(readings) > policy.max_readers:
        readings = nsmallest(policy.max_readers, readings, key=lambda r: r[0].seconds + r[0].stall)
    return [
        option
        for everything, reader in readings
        for store_id, there in by_layout[reader.layout_id].items()
        for option in _pairs(query, reader, everything, store_id, there, policy)
    ]


def _pairs(
    query: Query,
    reader: Worker,
    everything: Reading,
    store_id: str,
    seats: Sequence[Seat],
    policy: Policy,
) -> Iterator[Option]:
    """One prefill worker with each decode worker of one store."""
    near = reader.store_id == store_id
    reading = everything
    if everything.coverage.remote and not near:
        # One list of sources serves both workers, and the writer's own store is not in it.
        reading = read(query, reader, query.prompt_tokens, without=store_id)
    first, stall = reading.seconds, reading.stall
    last_chunk = _last_chunk(query, policy)
    for at in seats:
        # Two workers that both read and write could hold their pages for streams that wait for a
        # prefill on the other one, and neither prefill would get pages.
        if not (reader.writes and at.writer.reads):
            # Blocks travel while the rest is computed, all but the last chunk.
            travel = at.near if near else at.far
            ready = max(first + travel * last_chunk, travel, at.wait)
            yield Option(ready + at.after + stall, at, reader, reading)


def parts(query: Query, option: Option, policy: Policy) -> Parts:
    """The predicted time to first token of an option."""
    _, at, reader, reading = option
    if reader is None:
        return Parts(max(reading.queue, at.wait), reading.transfer, reading.prefill)
    travel = at.near if reader.store_id == at.writer.store_id else at.far
    handoff = max(travel * _last_chunk(query, policy), travel - reading.seconds)
    wait = max(0.0, at.wait - reading.seconds - handoff)
    return Parts(reading.queue + wait, reading.transfer + handoff, reading.prefill + at.rest)


def _last_chunk(query: Query, policy: Policy) -> float:
    """The share of the prompt's KV that nothing hides."""
    return min(1.0, policy.chunk_tokens / query.prompt_tokens)
