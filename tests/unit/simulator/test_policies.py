"""Each baseline chooses what its formula says."""

from dataclasses import replace

import numpy as np
import pytest

from simulator.cluster import SimulatedCluster
from simulator.config import ClusterConfig
from simulator.model.costs import CostModel
from simulator.model.events import EventLoop
from simulator.model.loads import Loads
from simulator.policies.base import Baseline, View
from simulator.policies.baseline import BaselineRouter
from simulator.policies.catalog import POLICIES
from simulator.policies.holdings import block_keys
from simulator.policies.least_wait import LeastWait
from simulator.policies.longest_prefix import LongestPrefix
from simulator.policies.peers.dynamo import Dynamo
from simulator.policies.peers.llmd import LlmD
from simulator.policies.peers.mooncake import Mooncake
from simulator.policies.peers.preble import Preble
from simulator.policies.round_robin import RoundRobin
from simulator.request import Request, WorkerChoice

BLOCK = 100
COSTS = CostModel(prefill_rate=100, transfer_rate=1000)
"""A block takes 1 s to compute and 0.1 s to bring."""
CONFIG = ClusterConfig(workers=3, cache_tokens=100 * BLOCK, costs=COSTS)
REQUEST = Request(0, 0.0, 10 * BLOCK, 10, tuple(range(10)))


def view(
    depths: tuple[int, int, int] = (0, 0, 0),
    wait: tuple[float, float, float] = (0, 0, 0),
    *,
    waiting: tuple[int, int, int] = (0, 0, 0),
    blocks: tuple[int, int, int] = (0, 0, 0),
    transfer_wait: tuple[float, float, float] = (0, 0, 0),
    full: tuple[bool, bool, bool] = (False, False, False),
) -> View:
    return View(
        CONFIG,
        BLOCK,
        np.full(3, 100.0),
        np.array(wait, float),
        np.array(transfer_wait, float),
        np.array(waiting),
        np.array(blocks),
        np.array(full),
        lambda: np.array(depths),
        lambda: np.zeros(3),
    )


def test_round_robin_takes_turns() -> None:
    policy = RoundRobin()
    assert [policy.choose(REQUEST, view()).worker for _ in range(4)] == [0, 1, 2, 0]


@pytest.mark.parametrize(
    ("policy", "seen", "choice"),
    [
        (LeastWait(), view((9, 0, 0), (3, 2, 1)), WorkerChoice(2)),
        (LongestPrefix(), view((3, 4, 0), (0, 99, 0)), WorkerChoice(1)),
        (LongestPrefix(), view((4, 4, 0), (2, 1, 0)), WorkerChoice(1)),
        # 6 + 10 - 8 against 10 - 0 blocks; then 50 more blocks of streams weigh as much.
        (Dynamo(full=False), view((8, 0, 0), (6, 0, 1), blocks=(50, 0, 0)), WorkerChoice(0)),
        (Dynamo(full=True), view((8, 0, 0), (6, 0, 1), blocks=(50, 0, 0)), WorkerChoice(1)),
        # 9 is more than 1.5 × 5: brought where that is sooner.
        (Mooncake(), view((9, 5, 0), (5, 0, 9)), WorkerChoice(1, 9)),
        # 9 is not more than 1.5 × 6: computed from there.
        (Mooncake(), view((9, 6, 0), (9, 0, 9)), WorkerChoice(1, 6)),
        (Mooncake(), view((9, 0, 0), (1, 0, 9), transfer_wait=(0, 5, 0)), WorkerChoice(0, 9)),
        # 3 × 0.5 + 2 × 0 + 2 against 2 × 1 + 2, and against that with KV full.
        (LlmD(), view((5, 0, 0), waiting=(4, 0, 4)), WorkerChoice(1)),
        (LlmD(), view((5, 0, 0), waiting=(4, 0, 4), blocks=(0, 80, 0)), WorkerChoice(0)),
        # Most is cached: the holder, unless it is much busier than the least busy.
        (Preble(), view((6, 0, 0), (1.9, 0, 0)), WorkerChoice(0)),
        (Preble(), view((6, 0, 0), (11, 0, 1)), WorkerChoice(1)),
        # Half is not most: the least time, where what a full cache evicts counts.
        (Preble(), view((5, 0, 0), (4.9, 0, 0)), WorkerChoice(0)),
        (Preble(), view((0, 0, 0), (0.1, 0, 0.1), full=(False, True, False)), WorkerChoice(0)),
    ],
)
def test_a_baseline_chooses_by_its_formula(
    policy: Baseline, seen: View, choice: WorkerChoice
) -> None:
    assert policy.choose(REQUEST, seen) == choice


class Recorded(LeastWait):
    """Remembers what it saw."""

    seen: View

    def choose(self, request: Request, view: View) -> WorkerChoice:
        # The router goes on counting in the same arrays.
        self.seen = replace(view, waiting=view.waiting.copy(), blocks=view.blocks.copy())
        return WorkerChoice(1, brought=6)


def test_between_reports_a_baseline_counts_what_it_placed() -> None:
    policy = Recorded()
    router = BaselineRouter(policy, CONFIG, block_keys(10), BLOCK, 0, shared_cache=False)
    router.add_blocks(1, [0, 1])
    router.place(REQUEST, 0.0)
    router.place(REQUEST, 1.0)
    # 2 blocks were there and 4 are brought: 4 to compute.
    assert policy.seen.depths().tolist() == [0, 2, 0]
    assert policy.seen.wait.tolist() == [0, 4, 0]
    assert policy.seen.transfer_wait.tolist() == [0, 0, 0]
    assert (policy.seen.waiting[1], policy.seen.blocks[1]) == (1, 10)
    reported = Loads(3)
    reported.queued[1] = 7.0
    router.report(reported, placed=1, now=2.0)
    router.place(REQUEST, 2.0)
    # The report contains the first placement; the second is still counted beside it.
    assert policy.seen.wait.tolist() == [0, 11, 0]
    router.remove_blocks(1, [0])
    router.place(REQUEST, 2.0)
    assert policy.seen.depths().tolist() == [0, 0, 0]


@pytest.mark.parametrize("name", POLICIES)
def test_every_policy_works_with_pools_and_many_workers(name: str) -> None:
    config = ClusterConfig(workers=20, decode_workers=3, costs=COSTS)
    cluster = SimulatedCluster(config, 10, BLOCK, shared_cache=False, loop=EventLoop())
    router = POLICIES[name].make(config, block_keys(10), BLOCK, 1, cluster)
    router.report(Loads(23), 0, 0.0)
    choice = router.place(REQUEST, 0.0)
    assert choice is not None
    assert 0 <= choice.worker < 23
    assert choice.decode is None or 20 <= choice.decode < 23
