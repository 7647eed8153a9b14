"""A prefix that is wanted more often than its holders can serve is to be held by one store more."""

from dataclasses import replace
from itertools import pairwise

import pytest

from baton.kv.keys import pack
from baton.settings import RouterPlacement
from services.router.policy.costs import PlacementQuery
from services.router.policy.placement import place
from services.router.prefix_index.holders import DISK, DRAM, ENGINE
from services.router.prefix_index.index import PrefixIndex
from services.router.replication.hot_prefixes import (
    HALF_LIFE_SECONDS,
    LENGTHS,
    HotPrefixTracker,
    PrefetchTask,
)
from services.router.state.rates import WorkerRates
from services.router.state.worker import Worker

LAYOUT = b"L" * 16
CHAIN = [i.to_bytes(16, "little") for i in range(64)]
TOKENS = 16

COOLDOWN_SECONDS = RouterPlacement().replication_cooldown_seconds


def combined(id: str, store: str, pending: int = 0) -> Worker:  # noqa: A002  # as in Worker
    return Worker(
        id=id,
        incarnation="1",
        address="127.0.0.1:1",
        can_prefill=True,
        can_decode=True,
        layout_id=LAYOUT,
        store_id=store,
        block_tokens=TOKENS,
        block_bytes=100_000,
        rates=WorkerRates(1_000, 0.01, remote_bytes_per_second=1e8, local_bytes_per_second=1e9),
        running=0,
        waiting=0,
        pending_prompt_tokens=pending,
        free_pages=1000,
        total_pages=1000,
    )


A, B, C = (combined(name, f"store-{name}") for name in "abc")
BUSY = replace(A, pending_prompt_tokens=50)
"""It is waited for 50 ms; bringing the chain to another store takes 64."""


class Cluster:
    """Placements as a router makes them, and the tasks that come of them."""

    def __init__(self, threshold: int = 4, limit: int = 1000) -> None:
        self.index = PrefixIndex()
        self.prefixes = HotPrefixTracker(
            RouterPlacement(replication_threshold=threshold), limit=limit
        )
        self.prefilled_on: list[str] = []

    def ask(self, workers: list[Worker], now: float = 0.0, chain=CHAIN) -> PrefetchTask | None:
        match = self.index.match(chain)
        tokens = len(chain) * TOKENS + 6
        query = PlacementQuery(prompt_tokens=tokens, max_tokens=64, matches={LAYOUT: match})
        decision = place(query, workers)
        self.prefilled_on.append((decision.prefill_worker or decision.decode_worker).id)
        return self.prefixes.record_placement(pack(chain), match, decision, workers, "team", now)

    def asked(self, times: int, workers: list[Worker], now: float = 0.0, chain=CHAIN):
        return [self.ask(workers, now, chain) for _ in range(times)]


@pytest.fixture
def cluster() -> Cluster:
    """The chain lies in the first store."""
    made = Cluster()
    made.index.add_blocks("store-a", DRAM, CHAIN)
    return made


def test_the_store_of_an_idle_worker_is_to_prefetch_what_is_waited_for(cluster: Cluster) -> None:
    *early, task = cluster.asked(4, [BUSY, B])
    assert set(cluster.prefilled_on) == {"a"}
    assert early == [None] * 3
    assert task == PrefetchTask("store-b", ("store-a",), LAYOUT, pack(CHAIN), 100_000, "team")
    assert task.size_bytes == 64 * 100_000


def test_no_store_prefetches_while_the_holder_serves_at_once(cluster: Cluster) -> None:
    assert cluster.asked(50, [A, B]) == [None] * 50


def test_no_store_of_a_worker_that_is_as_busy_prefetches(cluster: Cluster) -> None:
    assert cluster.asked(50, [BUSY, replace(B, pending_prompt_tokens=50)]) == [None] * 50


def test_the_least_busy_workers_store_prefetches(cluster: Cluster) -> None:
    task = cluster.asked(4, [BUSY, replace(B, pending_prompt_tokens=30), C])[-1]
    assert task is not None
    assert task.store_id == "store-c"


@pytest.mark.parametrize("field", ["draining", "stale"])
def test_workers_that_leave_get_nothing(cluster: Cluster, field: str) -> None:
    assert cluster.asked(8, [BUSY, replace(B, **{field: True})]) == [None] * 8


def test_a_worker_without_a_store_or_of_another_layout_gets_nothing(cluster: Cluster) -> None:
    others = [replace(B, store_id=""), replace(C, layout_id=b"M" * 16, can_decode=False)]
    assert cluster.asked(8, [BUSY, *others]) == [None] * 8


def test_a_store_that_holds_it_already_does_not_prefetch(cluster: Cluster) -> None:
    cluster.index.add_blocks("store-b", DRAM, CHAIN)
    busy = [BUSY, replace(B, pending_prompt_tokens=45), C]
    tasks = [task for task in cluster.asked(8, busy) if task]
    assert [task.store_id for task in tasks] == ["store-c"]
    assert tasks[0].sources == ("store-a", "store-b")


def test_what_a_store_has_on_its_disk_only_may_be_prefetched(cluster: Cluster) -> None:
    cluster.index.add_blocks("store-b", DISK, CHAIN)
    task = cluster.asked(4, [BUSY, B])[-1]
    assert task is not None
    assert task.store_id == "store-b"


def test_one_copy_more_for_as_much_demand_again(cluster: Cluster) -> None:
    tasks = cluster.asked(8, [BUSY, B, C])
    assert [task.store_id for task in tasks if task] == ["store-b", "store-c"]
    assert tasks[3] is not None


def test_a_store_is_not_asked_twice_until_a_while_later(cluster: Cluster) -> None:
    assert sum(task is not None for task in cluster.asked(40, [BUSY, B])) == 1
    assert cluster.asked(4, [BUSY, B], COOLDOWN_SECONDS - 1)[-1] is None
    assert any(cluster.asked(4, [BUSY, B], COOLDOWN_SECONDS + 1))


def test_demand_decays(cluster: Cluster) -> None:
    slow = [cluster.ask([BUSY, B], now) for now in range(0, 400, int(4 * HALF_LIFE_SECONDS))]
    assert slow == [None] * 10
    quick = [cluster.ask([BUSY, B], 1000.0 + 0.5 * turn) for turn in range(4)]
    assert quick[-1] is not None


def test_what_requests_share_is_hot_and_what_they_do_not_share_is_not() -> None:
    cluster = Cluster()
    tasks = []
    for turn in range(4):
        own = [bytes([turn + 1]) * 15 + bytes([i]) for i in range(24)]
        cluster.index.add_blocks("store-a", DRAM, [*CHAIN[:40], *own])
        tasks.append(cluster.ask([BUSY, B], chain=[*CHAIN[:40], *own]))
    assert tasks[-1] is not None
    assert tasks[-1].keys == pack(CHAIN[:40])


def test_only_what_stores_hold_is_prefetched() -> None:
    cluster = Cluster()
    cluster.index.add_blocks("a", ENGINE, CHAIN)
    cluster.index.add_blocks("store-a", DRAM, CHAIN[:30])
    task = cluster.asked(4, [BUSY, B])[-1]
    assert task is not None
    assert task.keys == pack(CHAIN[:24])


def test_a_placement_that_fetches_the_prefix_itself_counts_for_another_store() -> None:
    """The worker beside the holder takes no more; each of the others fetches for itself."""
    cluster = Cluster(threshold=2)
    cluster.index.add_blocks("store-a", DRAM, CHAIN)
    full = replace(A, pending_prompt_tokens=5000)
    first, second = cluster.asked(2, [full, B, C])
    assert first is None
    assert second is not None
    assert second.store_id in {"store-b", "store-c"}
    assert second.store_id != f"store-{cluster.prefilled_on[-1]}"


def test_a_prefix_of_a_few_blocks_is_not_worth_it() -> None:
    cluster = Cluster()
    cluster.index.add_blocks("store-a", DRAM, CHAIN[:7])
    assert cluster.asked(20, [BUSY, B], chain=CHAIN[:7]) == [None] * 20


def test_what_is_kept_is_bounded() -> None:
    cluster = Cluster(limit=16)
    for turn in range(100):
        own = [turn.to_bytes(8, "little") * 2] + [bytes([turn + 1, i]) * 8 for i in range(63)]
        cluster.index.add_blocks("store-a", DRAM, own)
        cluster.ask([BUSY, B], chain=own)
    assert len(cluster.prefixes) == 16


def test_prefixes_of_every_length_are_counted_to_an_eighth() -> None:
    assert LENGTHS[0] == 8
    assert all(after - before <= max(8, before / 8) for before, after in pairwise(LENGTHS))
    assert len(LENGTHS) < 50
