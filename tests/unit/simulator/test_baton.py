"""The simulator tells Baton's objects what a cluster would, and does what they decide."""

from dataclasses import replace

import pytest

from simulator.cluster import SimulatedCluster
from simulator.config import ClusterConfig
from simulator.model.costs import CostModel
from simulator.model.events import EventLoop
from simulator.model.loads import Loads
from simulator.policies.baton import BatonRouter
from simulator.policies.holdings import block_keys
from simulator.request import Request

BLOCK = 100
COSTS = CostModel(prefill_rate=100, transfer_rate=1000, step_seconds=0.1)
CONFIG = ClusterConfig(workers=2, decode_workers=1, costs=COSTS, disaggregation="always")


class Run:
    """A cluster under Baton, whose requests can be looked at when all has ended."""

    def __init__(self, requests: list[Request], config: ClusterConfig = CONFIG) -> None:
        self.loop = EventLoop()
        self.cluster = SimulatedCluster(config, 200, BLOCK, shared_cache=False, loop=self.loop)
        self.router = BatonRouter(config, block_keys(200), BLOCK, 0, self.cluster)
        self.cluster.serve(self.router, requests)
        self.loop.run()


def request(number: int, at: float, blocks: range, output: int = 10) -> Request:
    return Request(number, at, len(blocks) * BLOCK, output, tuple(blocks))


def test_a_prefix_is_used_where_it_is_and_brought_where_nobody_waits() -> None:
    requests = [
        request(0, 0, range(10)),
        # Alone again: where the prefix is.
        request(1, 20, range(11)),
        # Its holder computes for 10 s: the other one brings 10 blocks within 1 s.
        request(2, 40, range(11, 21)),
        request(3, 40.1, range(12)),
    ]
    run = Run(requests)
    assert requests[1].worker == requests[0].worker
    assert requests[1].ttft == pytest.approx(1.0)
    assert {one.worker for one in requests[2:]} == {0, 1}
    assert requests[3].cached_blocks in (10, 11)
    assert requests[3].ttft < 4
    assert run.router.open_tickets == 0


def test_a_burst_between_two_reports_is_spread_by_tickets() -> None:
    requests = [request(number, 0.01, range(10 * number, 10 * number + 10)) for number in range(8)]
    run = Run(requests, replace(CONFIG, workers=4))
    assert sorted(one.worker for one in requests) == [0, 0, 1, 1, 2, 2, 3, 3]
    assert run.router.open_tickets == 0


def router_alone() -> BatonRouter:
    cluster = SimulatedCluster(CONFIG, 200, BLOCK, shared_cache=False, loop=EventLoop())
    router = BatonRouter(CONFIG, block_keys(200), BLOCK, 0, cluster)
    router.report(Loads(3), 0, 0.0)
    return router


def test_a_report_ends_the_load_of_tickets_that_it_contains() -> None:
    router = router_alone()
    first = router.place(request(0, 0, range(10)), 0.0)
    assert first is not None
    router.add_blocks(first.worker, range(10))
    # All is done, says the report: nothing is counted beside it.
    router.report(Loads(3), 1, 1.0)
    again = router.place(request(1, 1, range(15)), 1.0)
    assert again is not None
    assert (again.worker, again.brought) == (first.worker, 0)


def test_evicted_blocks_are_brought_from_nowhere() -> None:
    router = router_alone()
    router.add_blocks(0, range(10))
    busy = Loads(3)
    busy.queued[0] = 100.0
    router.report(busy, 0, 0.0)
    choice = router.place(request(0, 0, range(10)), 0.0)
    assert choice is not None
    assert (choice.worker, choice.brought) == (1, 10)
    router.remove_blocks(0, range(10))
    choice = router.place(request(1, 0, range(10)), 0.0)
    assert choice is not None
    assert (choice.worker, choice.brought) == (1, 0)


def test_what_no_worker_has_memory_for_is_refused() -> None:
    requests = [request(0, 0, range(60)), request(1, 0, range(3))]
    Run(requests, ClusterConfig(workers=1, cache_tokens=50 * BLOCK, costs=COSTS))
    assert [one.worker for one in requests] == [-1, 0]
