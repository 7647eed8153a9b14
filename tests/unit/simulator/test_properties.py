"""Whatever comes in, waits are those of a naive queue, and nothing is left over at the end."""

from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from simulator.cluster import SimulatedCluster
from simulator.config import ClusterConfig
from simulator.model.costs import CostModel, Ordering
from simulator.model.events import EventLoop
from simulator.policies.catalog import POLICIES
from simulator.policies.holdings import block_keys
from simulator.request import Request
from tests.support.examples import examples

BLOCK = 10
ARRIVALS = st.lists(
    st.tuples(st.integers(0, 30), st.integers(1, 40), st.integers(0, 5), st.integers(0, 3)),
    min_size=1,
    max_size=25,
)
"""Of each request: when, blocks of its prompt, tokens of output, and whose prefix it shares."""


def requests(arrivals: Sequence[tuple[int, int, int, int]], *, shared: bool) -> list[Request]:
    made = []
    for number, (at, blocks, output, group) in enumerate(sorted(arrivals)):
        common = min(blocks, 5) if shared else 0
        chain = [group * 5 + one for one in range(common)]
        chain += range(20 + 40 * number, 20 + 40 * number + blocks - common)
        made.append(Request(number, at / 2, blocks * BLOCK, output, tuple(chain)))
    return made


def run(
    policy: str, config: ClusterConfig, served: list[Request], *, shared: bool = False
) -> SimulatedCluster:
    loop = EventLoop()
    cluster = SimulatedCluster(config, 20 + 40 * 25, BLOCK, shared_cache=shared, loop=loop)
    router = POLICIES[policy].make(config, block_keys(20 + 40 * 25), BLOCK, 1, cluster)
    cluster.serve(router, served)
    loop.run()
    return cluster


@given(ARRIVALS)
def test_one_worker_is_a_queue_first_come_first_served(
    arrivals: Sequence[tuple[int, int, int, int]],
) -> None:
    served = requests(arrivals, shared=False)
    run("least-wait", ClusterConfig(workers=1, costs=CostModel(prefill_rate=40)), served)
    free = 0.0
    for one in served:
        free = max(free, one.arrival) + one.prompt_tokens / 40
        assert one.ttft == pytest.approx(free - one.arrival)


@given(ARRIVALS)
def test_the_least_wait_of_two_workers_is_that_of_a_naive_pair(
    arrivals: Sequence[tuple[int, int, int, int]],
) -> None:
    served = requests(arrivals, shared=False)
    config = ClusterConfig(workers=2, costs=CostModel(prefill_rate=40), report_interval=0.0)
    run("least-wait", config, served)
    free = [0.0, 0.0]
    for one in served:
        backlogs = [max(0.0, until - one.arrival) for until in free]
        # Which of equals it takes is by draw.
        assert backlogs[one.worker] <= min(backlogs) + 1e-6
        free[one.worker] = max(free[one.worker], one.arrival) + one.prompt_tokens / 40
        assert one.ttft == pytest.approx(free[one.worker] - one.arrival)


@settings(max_examples=examples(16), deadline=None)
@given(
    ARRIVALS,
    st.sampled_from(sorted(POLICIES)),
    st.sampled_from((0, 1)),
    st.sampled_from((0, 15)),
    st.sampled_from(("fifo", "shortest")),
    st.sampled_from((0.0, 0.3)),
)
def test_every_request_ends_and_nothing_is_left(
    arrivals: Sequence[tuple[int, int, int, int]],
    policy: str,
    decode_workers: int,
    chunk: int,
    order: str,
    delay: float,
) -> None:
    served = requests(arrivals, shared=True)
    config = ClusterConfig(
        workers=3,
        decode_workers=decode_workers,
        # More than the longest prompt and what it grows by.
        cache_tokens=150 * BLOCK,
        costs=CostModel(prefill_rate=40, transfer_rate=400, step_seconds=0.1, chunk_tokens=chunk),
        ordering=Ordering("fifo" if order == "fifo" else "shortest"),
        slow_workers=1,
        event_delay=delay,
        report_delay=delay,
    )
    cluster = run(policy, config, served, shared=POLICIES[policy].shared_cache)
    for one in served:
        uncached = max(1, one.prompt_tokens - one.cached_blocks * BLOCK)
        assert one.ttft >= uncached / 40 - 1e-9
        assert one.cached_blocks <= len(one.chain)
    loads = cluster.loads
    for column in (loads.queued, loads.waiting, loads.streams, loads.blocks):
        assert not column.any()
    caches = {id(worker.cache): worker.cache for worker in cluster.workers}.values()
    assert cluster.copies == [
        sum(block in cache for cache in caches) for block in range(len(cluster.copies))
    ]
