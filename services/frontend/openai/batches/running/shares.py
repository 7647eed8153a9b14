"""Which batches get free places: tenants share them equally. Pure."""

from collections import Counter
from collections.abc import Mapping, Sequence
from heapq import heapify, heapreplace

from baton.batches.records import ActiveBatch


def allocate(
    free: int, batches: Sequence[ActiveBatch], running: Mapping[str, int]
) -> Counter[ActiveBatch]:
    """Return how many lines of which batch to claim.

    A place goes to the tenant with the fewest lines, and there to the first batch.

    Args:
        free: places.
        batches: with lines to claim; of a tenant, the one that expires first comes first.
        running: lines that run here, by tenant.
    """
    first: dict[str, ActiveBatch] = {}
    for batch in batches:
        first.setdefault(batch.tenant, batch)
    waiting = [
        (running.get(tenant, 0), at, batch) for at, (tenant, batch) in enumerate(first.items())
    ]
    heapify(waiting)
    found: Counter[ActiveBatch] = Counter()
    for _ in range(free if waiting else 0):
        count, at, batch = waiting[0]
        found[batch] += 1
        heapreplace(waiting, (count + 1, at, batch))
    return found
