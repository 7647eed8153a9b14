"""Which batches get free places: tenants share them by weight. Pure."""

from collections import Counter
from collections.abc import Mapping, Sequence
from heapq import heapify, heapreplace

from baton.batches.records import ActiveBatch


def allocate(
    free: int,
    batches: Sequence[ActiveBatch],
    running: Mapping[str, int],
    weights: Mapping[str, int] = {},
) -> Counter[ActiveBatch]:
    """Return how many lines of which batch to claim.

    A place goes to the tenant that would have the fewest lines for its weight with it, and there to
    the first batch.

    Args:
        free: places.
        batches: with lines to claim; of a tenant, the one that expires first comes first.
        running: lines that run here, by tenant.
        weights: of tenants; 1 if it is not given.
    """
    first: dict[str, ActiveBatch] = {}
    for batch in batches:
        first.setdefault(batch.tenant, batch)
    waiting = []
    for at, (tenant, batch) in enumerate(first.items()):
        one = 1 / weights.get(tenant, 1)
        waiting.append(((running.get(tenant, 0) + 1) * one, at, one, batch))
    heapify(waiting)
    found: Counter[ActiveBatch] = Counter()
    for _ in range(free if waiting else 0):
        share, at, one, batch = waiting[0]
        found[batch] += 1
        heapreplace(waiting, (share + one, at, one, batch))
    return found
