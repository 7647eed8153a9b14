"""Which prefixes one more store should hold: demand exceeds what their holders serve at once. Pure.

A placement counts as demand for its prefix where a replica elsewhere would have served it better:
it waits for a worker beside a store that holds the prefix, or its worker fetches the prefix from
another store. Demand halves every HALF_LIFE_SECONDS. When a prefix has enough, one more store is to
prefetch it, that of the least busy worker, and the count starts again: where placements still wait,
they count towards the next replica.
"""

from collections import OrderedDict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from baton.kv.keys import KEY_BYTES
from baton.settings import RouterPlacement
from services.router.policy.costs import Policy, admission_wait_seconds
from services.router.policy.placement import DEFAULT_POLICY, Decision
from services.router.prefix_index.match import Match
from services.router.state.worker import Worker

HALF_LIFE_SECONDS = 10.0
MIN_WAIT_SECONDS = 0.02
"""A shorter wait is no reason to replicate anything."""
MAX_BLOCKS = 4096
"""Of one task: what one Prefetch takes."""
MAX_SOURCES = 4
MAX_PREFIXES = 65_536
"""Prefixes whose demand is counted; those requested longest ago are forgotten."""


def _lengths() -> Iterator[int]:
    length = 8
    while length <= MAX_BLOCKS:
        yield length
        length += max(8, length // 8)


LENGTHS = tuple(_lengths())
"""Prefixes of so many blocks are counted: what is shared is found to an eighth of its length, and
the longest chain costs 43 look-ups."""


@dataclass(frozen=True, slots=True)
class PrefetchTask:
    """What a store should prefetch, and from which stores."""

    store_id: str
    sources: tuple[str, ...]
    layout_id: bytes
    keys: bytes
    """Packed."""
    block_bytes: int
    tenant: str

    @property
    def blocks(self) -> int:
        return len(self.keys) // KEY_BYTES

    @property
    def size_bytes(self) -> int:
        return self.blocks * self.block_bytes


class HotPrefixTracker:
    """Demand by prefix. No I/O and no clock; one loop owns it; at most `limit` prefixes are kept.

    Args:
        settings: how many placements, within about HALF_LIFE_SECONDS, make a prefix hot, at least
            1; and how long a store is not asked for the same prefix again.
        policy: constants of the cost model.
        limit: most prefixes, and most cooldowns, that are kept.
    """

    def __init__(
        self,
        settings: RouterPlacement,
        policy: Policy = DEFAULT_POLICY,
        *,
        limit: int = MAX_PREFIXES,
    ) -> None:
        self._threshold = settings.replication_threshold
        self._cooldown_seconds = settings.replication_cooldown_seconds
        self._policy = policy
        self._limit = limit
        self._demand: OrderedDict[bytes, tuple[float, float]] = OrderedDict()
        """By a prefix's last key: how much, and when it was that much."""
        self._cooldowns: OrderedDict[tuple[str, bytes], float] = OrderedDict()
        """Until when, by store and prefix."""

    def __len__(self) -> int:
        """Return the number of prefixes with demand."""
        return len(self._demand)

    def record_placement(
        self,
        keys: bytes,
        match: Match,
        decision: Decision,
        workers: Iterable[Worker],
        tenant: str,
        now: float,
    ) -> PrefetchTask | None:
        """Count a placement; return what a store should prefetch now, if anything.

        Args:
            keys: of the prompt in the layout of the placement's workers, packed.
            match: the held part of them.
            decision: the placement.
            workers: all of the model.
            tenant: on whose share replicas are counted.
            now: a monotonic clock, in seconds.
        """
        local = decision.prefill_worker is None
        wait = decision.ttft.queue_seconds if local else decision.prefill.queue_seconds
        if wait < MIN_WAIT_SECONDS and not decision.prefill.coverage.remote:
            return None
        blocks = self._count(keys, match.in_stores(), now)
        if not blocks:
            return None
        last = keys[(blocks - 1) * KEY_BYTES : blocks * KEY_BYTES]
        limit = max(wait, MIN_WAIT_SECONDS)
        store_id = self._choose_store(last, match, blocks, decision, workers, limit, now)
        if not store_id:
            return None
        self._reset(keys, blocks)
        self._cooldowns[store_id, last] = now + self._cooldown_seconds
        if len(self._cooldowns) > self._limit:
            self._cooldowns.popitem(last=False)
        return PrefetchTask(
            store_id,
            tuple(match.stores(blocks)[:MAX_SOURCES]),
            decision.decode_worker.layout_id,
            keys[: blocks * KEY_BYTES],
            decision.decode_worker.block_bytes,
            tenant,
        )

    def _count(self, keys: bytes, held: int, now: float) -> int:
        """Count every held prefix; return the length in blocks of the longest hot one."""
        demand = self._demand
        hot = 0
        for length in LENGTHS:
            if length > held:
                break
            key = keys[(length - 1) * KEY_BYTES : length * KEY_BYTES]
            count, at = demand.get(key, (0.0, now))
            count = count * 0.5 ** ((now - at) / HALF_LIFE_SECONDS) + 1.0
            demand[key] = (count, now)
            demand.move_to_end(key)
            # Earlier placements have decayed a little: do not wait for one more because of that.
            if count > self._threshold - 0.5:
                hot = length
        while len(demand) > self._limit:
            demand.popitem(last=False)
        return hot

    def _choose_store(
        self,
        last: bytes,
        match: Match,
        blocks: int,
        decision: Decision,
        workers: Iterable[Worker],
        wait: float,
        now: float,
    ) -> str:
        """Return the store of the least busy worker that waits less than `wait`; empty: none."""
        cooldowns = self._cooldowns
        while cooldowns and next(iter(cooldowns.values())) <= now:
            cooldowns.popitem(last=False)
        # What these two lack is on its way to them with this request.
        prefill_worker = decision.prefill_worker or decision.decode_worker
        involved = {decision.decode_worker.store_id, prefill_worker.store_id}
        best = ""
        for worker in workers:
            store_id = worker.store_id
            if (
                worker.layout_id == decision.decode_worker.layout_id
                and not (worker.draining or worker.stale)
                and store_id
                and store_id not in involved
                and (store_id, last) not in cooldowns
                and (busy := self._busy_seconds(worker, decision.decode_pages)) < wait
                and match.lacks(store_id, blocks)
            ):
                best, wait = store_id, busy
        return best

    def _busy_seconds(self, worker: Worker, pages: int) -> float:
        if not worker.can_decode:
            return worker.queue_seconds
        return max(worker.queue_seconds, admission_wait_seconds(worker, pages, self._policy))

    def _reset(self, keys: bytes, blocks: int) -> None:
        for length in LENGTHS:
            if length > blocks:
                break
            self._demand.pop(keys[(length - 1) * KEY_BYTES : length * KEY_BYTES], None)
