"""Requests that wait in the router go the shortest first, and tenants by their shares."""

from dataclasses import replace

import pytest

from services.router.admission.waiting import DEFAULT_SETTINGS, QueueSettings
from simulator.cluster import SimulatedCluster
from simulator.config import ClusterConfig
from simulator.model.costs import CostModel
from simulator.model.events import EventLoop
from simulator.policies.baton_queue import BatonQueueRouter
from simulator.policies.holdings import block_keys
from simulator.request import Request

BLOCK = 100
COSTS = CostModel(prefill_rate=100, transfer_rate=1000, step_seconds=0.1)
"""A block takes 1 s to compute."""
POOLS = ClusterConfig(workers=1, decode_workers=1, costs=COSTS, disaggregation="always")


def run(
    requests: list[Request],
    config: ClusterConfig = POOLS,
    settings: QueueSettings = DEFAULT_SETTINGS,
) -> SimulatedCluster:
    loop = EventLoop()
    cluster = SimulatedCluster(config, 2_000, BLOCK, shared_cache=False, loop=loop)
    router = BatonQueueRouter(config, block_keys(2_000), BLOCK, 0, cluster, settings)
    cluster.serve(router, requests)
    loop.run()
    assert router.waiting == router.open_tickets == 0
    return cluster


def request(number: int, at: float, blocks: range, tenant: str = "") -> Request:
    return Request(number, at, len(blocks) * BLOCK, 10, tuple(blocks), tenant)


@pytest.mark.parametrize("config", [POOLS, ClusterConfig(workers=1, costs=COSTS)])
def test_a_short_prompt_that_comes_later_goes_first(config: ClusterConfig) -> None:
    requests = [
        request(0, 0, range(10)),
        request(1, 1, range(10, 30)),
        request(2, 2, range(30, 32)),
    ]
    run(requests, config)
    # 10 s, then 2, then 20, and the worker is never idle in between.
    assert [one.ttft for one in requests] == pytest.approx([10, 31, 10])


def test_workers_are_not_idle_until_they_report() -> None:
    requests = [request(n, 0, range(10 * n, 10 * n + 1)) for n in range(6)]
    run(requests, replace(POOLS, report_interval=1.7))
    # Each goes 0.1 s before its turn, so that the worker goes on at once.
    assert [one.ttft for one in requests] == pytest.approx([1, 2, 3, 4, 5, 6])


def test_what_waits_is_estimated_again_when_its_prefix_was_computed() -> None:
    requests = [
        request(0, 0, range(10)),
        request(1, 1, range(100, 104)),
        request(2, 1.5, range(200, 205)),
        # The longest one when it comes. 10 of its 11 blocks are there at 10 s, when the second one
        # has begun.
        request(3, 2, range(11)),
    ]
    run(requests)
    assert [one.ttft for one in requests] == pytest.approx([10, 13, 18.5, 13])
    assert requests[3].cached_blocks == 10


def test_a_worker_is_given_no_more_than_it_needs() -> None:
    requests = [request(number, 0, range(9 * number, 9 * number + 9)) for number in range(9)]
    requests += [request(9, 1, range(900, 901)), request(10, 1, range(901, 902))]
    run(requests, replace(POOLS, workers=3))
    assert max(one.ttft for one in requests[9:]) < 10
    assert sorted(one.worker for one in requests[:9]) == [0, 0, 0, 1, 1, 1, 2, 2, 2]


def test_a_tenant_that_sends_much_does_not_hold_up_another() -> None:
    requests = [request(n, 0, range(10 * n, 10 * n + 10), "x") for n in range(10)]
    requests.append(request(10, 0.5, range(200, 211), "y"))
    run(requests)
    # After the one that was begun, though all of x's prompts are shorter.
    assert requests[10].ttft == pytest.approx(10 + 11 - 0.5)


def test_what_waits_too_long_is_given_up() -> None:
    requests = [
        request(0, 0, range(10)),
        request(1, 1, range(10, 30)),
        request(2, 2, range(30, 31)),
    ]
    run(requests, settings=QueueSettings(max_wait=8.5))
    assert [one.worker for one in requests] == [0, -1, 0]


def test_a_queue_that_is_full_refuses() -> None:
    requests = [request(n, n / 100, range(10 * n, 10 * n + 10)) for n in range(4)]
    run(requests, settings=QueueSettings(max_total=2))
    assert [one.worker for one in requests] == [0, 0, 0, -1]


def test_what_no_worker_has_memory_for_is_refused_in_the_queue() -> None:
    requests = [request(0, 0, range(60)), request(1, 0, range(60, 63))]
    run(requests, ClusterConfig(workers=1, cache_tokens=50 * BLOCK, costs=COSTS))
    assert [one.worker for one in requests] == [-1, 0]
