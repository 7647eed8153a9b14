"""Which prefixes another store should hold, too: they are hot where they are. No I/O, no clock.

A placement casts a vote for its prefix where a copy elsewhere would have served it better: it waits
for a worker beside a store that holds the prefix, or its worker brings the prefix from another
store. Votes count half after HALF_LIFE_SECONDS. When a prefix has enough, one more store is told to
pull it, that of the worker that is least busy, and the votes are spent: where placements still
wait, they vote for the next copy.
"""

from collections import OrderedDict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from baton.kv.keys import KEY_BYTES
from services.router.policy.costs import Policy, Worker, place_seconds
from services.router.policy.placement import POLICY, Decision
from services.router.prefix_index.match import Match

HALF_LIFE_SECONDS = 10.0
FELT_SECONDS = 0.02
"""A shorter wait than this is no reason to copy anything."""
PAUSE_SECONDS = 30.0
"""A store is not told of a prefix again for so long, whatever came of it."""
MAX_BLOCKS = 4096
"""Of one hint: what one Prefetch takes."""
MAX_SOURCES = 4
MAX_COUNTED = 65_536
"""Prefixes whose votes are kept; the ones voted for longest ago are forgotten."""


def _lengths() -> Iterator[int]:
    length = 8
    while length <= MAX_BLOCKS:
        yield length
        length += max(8, length // 8)


LENGTHS = tuple(_lengths())
"""Prefixes of so many blocks are counted: what is shared is found to an eighth of its length, and
the longest chain costs 43 look-ups."""


@dataclass(frozen=True, slots=True)
class Hint:
    """What a store should pull, and from whom."""

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


class HotPrefixes:
    """See the module's text.

    Args:
        after: votes, within about HALF_LIFE_SECONDS, that make a prefix hot; at least 1.
        policy: constants of the cost model.
        limit: see MAX_COUNTED.
    """

    def __init__(self, after: int, policy: Policy = POLICY, *, limit: int = MAX_COUNTED) -> None:
        self._after = after
        self._policy = policy
        self._limit = limit
        self._votes: OrderedDict[bytes, tuple[float, float]] = OrderedDict()
        """By a prefix's last key: how many, and when that was so."""
        self._pauses: OrderedDict[tuple[str, bytes], float] = OrderedDict()
        """Until when, by store and prefix."""

    def __len__(self) -> int:
        """Prefixes that have votes."""
        return len(self._votes)

    def placed(
        self,
        keys: bytes,
        match: Match,
        decision: Decision,
        workers: Iterable[Worker],
        tenant: str,
        now: float,
    ) -> Hint | None:
        """Take in a placement; answers what to tell a store, if anything.

        Args:
            keys: of the prompt in the layout of the placement's workers, packed.
            match: who holds them.
            decision: the placement.
            workers: all of the model.
            tenant: on whose share copies are counted.
            now: a monotonic clock, in seconds.
        """
        wait = decision.parts.queue if decision.reader is None else decision.reading.queue
        if wait < FELT_SECONDS and not decision.reading.coverage.remote:
            return None
        blocks = self._hot(keys, match.in_stores(), now)
        if not blocks:
            return None
        last = keys[(blocks - 1) * KEY_BYTES : blocks * KEY_BYTES]
        store_id = self._target(
            last, match, blocks, decision, workers, max(wait, FELT_SECONDS), now
        )
        if not store_id:
            return None
        self._spend(keys, blocks)
        self._pauses[store_id, last] = now + PAUSE_SECONDS
        if len(self._pauses) > self._limit:
            self._pauses.popitem(last=False)
        return Hint(
            store_id,
            tuple(match.stores(blocks)[:MAX_SOURCES]),
            decision.writer.layout_id,
            keys[: blocks * KEY_BYTES],
            decision.writer.block_bytes,
            tenant,
        )

    def _hot(self, keys: bytes, held: int, now: float) -> int:
        """Cast a vote for every counted prefix of what is held; blocks of the longest hot one."""
        votes = self._votes
        hot = 0
        for length in LENGTHS:
            if length > held:
                break
            key = keys[(length - 1) * KEY_BYTES : length * KEY_BYTES]
            count, at = votes.get(key, (0.0, now))
            count = count * 0.5 ** ((now - at) / HALF_LIFE_SECONDS) + 1.0
            votes[key] = (count, now)
            votes.move_to_end(key)
            # A vote is worth a little less a moment later: the last one is not waited for again.
            if count > self._after - 0.5:
                hot = length
        while len(votes) > self._limit:
            votes.popitem(last=False)
        return hot

    def _target(
        self,
        last: bytes,
        match: Match,
        blocks: int,
        decision: Decision,
        workers: Iterable[Worker],
        wait: float,
        now: float,
    ) -> str:
        """The store of the least busy worker that would be asked sooner; empty: none."""
        pauses = self._pauses
        while pauses and next(iter(pauses.values())) <= now:
            pauses.popitem(last=False)
        # What these two lack is on its way to them with this request.
        involved = {decision.writer.store_id, (decision.reader or decision.writer).store_id}
        best = ""
        for worker in workers:
            store_id = worker.store_id
            if (
                worker.layout_id == decision.writer.layout_id
                and not (worker.draining or worker.silent)
                and store_id
                and store_id not in involved
                and (store_id, last) not in pauses
                and (busy := self._busy_seconds(worker, decision.pages)) < wait
                and match.lacks(store_id, blocks)
            ):
                best, wait = store_id, busy
        return best

    def _busy_seconds(self, worker: Worker, pages: int) -> float:
        if not worker.writes:
            return worker.queue_seconds
        return max(worker.queue_seconds, place_seconds(worker, pages, self._policy))

    def _spend(self, keys: bytes, blocks: int) -> None:
        for length in LENGTHS:
            if length > blocks:
                break
            self._votes.pop(keys[(length - 1) * KEY_BYTES : length * KEY_BYTES], None)
