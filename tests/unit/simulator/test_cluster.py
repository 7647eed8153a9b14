"""Small traces whose times to first token can be computed by hand."""

from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise

import pytest

from simulator.cluster import SimulatedCluster
from simulator.config import ClusterConfig
from simulator.model.costs import CostModel, Ordering
from simulator.model.events import EventLoop
from simulator.model.loads import Loads
from simulator.request import Request, WorkerChoice

BLOCK = 100
COSTS = CostModel(prefill_rate=100, transfer_rate=1000, step_seconds=0.1)
"""A block takes 1 s to compute and 0.1 s to bring."""
CONFIG = ClusterConfig(workers=2, cache_tokens=1000, costs=COSTS, report_interval=0.0)


class Scripted:
    """Places each request as it is told, and writes down what it hears."""

    def __init__(self, choices: Sequence[WorkerChoice | None]) -> None:
        self._choices = list(choices)
        self.heard: list[tuple[float, str, int, tuple[int, ...]]] = []
        self.reports: list[tuple[float, int, float]] = []
        self.ended: list[tuple[int, float]] = []
        self.loop = EventLoop()

    @property
    def waiting(self) -> int:
        return 0

    def place(self, request: Request, now: float) -> WorkerChoice | None:
        return self._choices[request.number]

    def add_blocks(self, worker: int, blocks: Sequence[int]) -> None:
        self.heard.append((self.loop.now, "add", worker, tuple(blocks)))

    def remove_blocks(self, worker: int, blocks: Sequence[int]) -> None:
        self.heard.append((self.loop.now, "remove", worker, tuple(blocks)))

    def report(self, loads: Loads, placed: int, now: float) -> None:
        self.reports.append((now, placed, float(loads.wait(now)[0])))

    def end(self, request: Request, now: float) -> None:
        self.ended.append((request.number, now))


def request(number: int, at: float, chain: str, output: int = 10) -> Request:
    blocks = tuple(ord(one) - ord("a") for one in chain)
    return Request(number, at, len(chain) * BLOCK, output, blocks)


def run(
    requests: Sequence[Request],
    choices: Sequence[WorkerChoice | None],
    config: ClusterConfig = CONFIG,
    *,
    shared_cache: bool = False,
) -> Scripted:
    router = Scripted(choices)
    cluster = SimulatedCluster(config, 26, BLOCK, shared_cache=shared_cache, loop=router.loop)
    cluster.serve(router, requests)
    router.loop.run()
    assert not cluster.loads.queued.any()
    assert not cluster.loads.waiting.any()
    assert not cluster.loads.streams.any()
    assert not cluster.loads.blocks.any()
    return router


def ttfts(requests: Sequence[Request]) -> list[float]:
    return [round(one.ttft, 6) for one in requests]


def test_what_a_worker_computed_is_not_computed_again() -> None:
    requests = [request(0, 0, "abc"), request(1, 1, "abcd"), request(2, 10, "abcd")]
    router = run(requests, [WorkerChoice(0)] * 3)
    # The second waits 2 s and computes 1 block; of the third, one token is computed in any case.
    assert ttfts(requests) == [3.0, 3.0, 0.01]
    assert [one.cached_blocks for one in requests] == [0, 3, 4]
    assert router.heard == [(3.0, "add", 0, (0, 1, 2)), (4.0, "add", 0, (3,))]
    assert router.ended == [(0, 4.0), (1, 5.0), (2, pytest.approx(11.01))]


def test_a_prefix_is_brought_while_the_worker_is_busy() -> None:
    requests = [request(0, 0, "abcd"), request(1, 4, "xy"), request(2, 5, "abcdef")]
    run(requests, [WorkerChoice(0), WorkerChoice(1), WorkerChoice(1, brought=4)])
    # 0.4 s of transfer hide behind 1 s that is left of `xy`.
    assert ttfts(requests) == [4.0, 2.0, 3.0]
    assert requests[2].cached_blocks == 4


def test_transfers_to_a_worker_follow_each_other_and_let_others_pass() -> None:
    requests = [
        request(0, 0, "abcd"),
        request(1, 5, "abcdx"),
        request(2, 5, "abcdy"),
        request(3, 5, "z"),
    ]
    run(
        requests,
        [WorkerChoice(0), WorkerChoice(1, brought=4), WorkerChoice(1, brought=4), WorkerChoice(1)],
    )
    # z at once until 6; then x, whose KV came at 5.4, and y, whose KV came at 5.8.
    assert ttfts(requests) == [4.0, 2.0, 3.0, 1.0]


def test_what_no_cache_has_is_not_brought() -> None:
    requests = [request(0, 0, "ab"), request(1, 5, "abcd")]
    run(requests, [WorkerChoice(0), WorkerChoice(1, brought=4)])
    assert ttfts(requests) == [2.0, 2.2]
    assert requests[1].cached_blocks == 2


def test_a_full_cache_evicts_what_was_used_longest_ago() -> None:
    requests = [request(0, 0, "abcdef"), request(1, 10, "ghijkl"), request(2, 20, "fab")]
    router = run(requests, [WorkerChoice(0)] * 3)
    assert router.heard[1:3] == [
        (16.0, "add", 0, (6, 7, 8, 9, 10, 11)),
        (16.0, "remove", 0, (0, 1)),
    ]
    assert requests[2].cached_blocks == 1


def test_shortest_first_computes_a_short_prompt_before_a_long_one_that_waits() -> None:
    config = replace(CONFIG, ordering=Ordering("shortest"))
    requests = [request(0, 0, "ab"), request(1, 0.5, "cdefg"), request(2, 1, "h")]
    run(requests, [WorkerChoice(0)] * 3, config)
    assert ttfts(requests) == [2.0, 7.5, 2.0]
    run(
        fifo := [request(0, 0, "ab"), request(1, 0.5, "cdefg"), request(2, 1, "h")],
        [WorkerChoice(0)] * 3,
    )
    assert ttfts(fifo) == [2.0, 6.5, 7.0]


def test_a_slow_worker_takes_longer() -> None:
    config = replace(CONFIG, slow_workers=1, slow_speed=0.5)
    requests = [request(0, 0, "ab"), request(1, 0, "ab")]
    run(requests, [WorkerChoice(0), WorkerChoice(1)], config)
    assert ttfts(requests) == [4.0, 2.0]


def test_a_workers_own_kv_takes_time_where_its_store_is_slow() -> None:
    config = replace(CONFIG, costs=replace(COSTS, local_rate=200))
    requests = [request(0, 0, "ab"), request(1, 5, "abc")]
    run(requests, [WorkerChoice(0)] * 2, config)
    assert ttfts(requests) == [2.0, 2.0]


def test_with_pools_streams_run_where_their_kv_was_brought() -> None:
    config = replace(CONFIG, decode_workers=2)
    requests = [request(0, 0, "ab", output=20), request(1, 0, "cd", output=20)]
    router = run(requests, [WorkerChoice(0), WorkerChoice(1)], config)
    assert ttfts(requests) == [2.0, 2.0]
    # The last block takes 0.1 s more; both streams are of different workers.
    assert router.ended == [(0, pytest.approx(4.1)), (1, pytest.approx(4.1))]


def test_kv_of_two_prompts_comes_to_a_decode_worker_one_after_the_other() -> None:
    config = replace(CONFIG, decode_workers=1, costs=replace(COSTS, transfer_rate=100))
    requests = [request(0, 0, "ab"), request(1, 0, "cd")]
    router = run(requests, [WorkerChoice(0, decode=2), WorkerChoice(1, decode=2)], config)
    # Both are computed at 2. Of the first one the last block comes at 3; the second takes 2 s more.
    assert ttfts(requests) == [2.0, 2.0]
    assert router.ended == [(0, pytest.approx(4.0)), (1, pytest.approx(6.0))]


def test_one_cache_for_all_workers_is_the_first_ones_to_the_router() -> None:
    requests = [request(0, 0, "abc"), request(1, 5, "abcd")]
    router = run(requests, [WorkerChoice(0), WorkerChoice(1)], shared_cache=True)
    assert ttfts(requests) == [3.0, 1.0]
    assert [(worker, blocks) for _, _, worker, blocks in router.heard] == [
        (0, (0, 1, 2)),
        (0, (3,)),
    ]


def test_a_refused_request_never_has_a_first_token() -> None:
    requests = [request(0, 0, "a"), request(1, 0, "b")]
    router = run(requests, [None, WorkerChoice(0)])
    assert ttfts(requests) == [float("inf"), 1.0]
    assert requests[0].worker == -1
    assert [number for number, _ in router.ended] == [1]


def test_events_and_reports_come_late() -> None:
    config = replace(CONFIG, event_delay=2.0, report_interval=1.0, report_delay=0.25)
    requests = [request(0, 0.5, "abc"), request(1, 2.5, "x"), request(2, 2.6, "y")]
    router = run(requests, [WorkerChoice(0)] * 3, config)
    assert [at for at, *_ in router.heard] == pytest.approx([5.5, 6.5, 7.5])
    # All begins with a report. At 2 the first request was placed; of its 3 s 1.25 s are left.
    assert router.reports == [(0.0, 0, 0.0), (2.25, 1, pytest.approx(1.25))]


def test_without_an_interval_each_placement_knows_all() -> None:
    requests = [request(0, 0, "ab"), request(1, 0, "c"), request(2, 0, "d")]
    router = run(requests, [WorkerChoice(0)] * 3)
    assert router.reports[1:] == [(0.0, 0, 0.0), (0.0, 1, 2.0), (0.0, 2, 3.0)]


class OneAtATime(Scripted):
    """Holds requests, and places one at the first worker whenever that has nothing to do."""

    def __init__(self) -> None:
        super().__init__([])
        self.held: list[Request] = []
        self.actions: SimulatedCluster | None = None
        self.placed_at: list[float] = []

    @property
    def waiting(self) -> int:
        return len(self.held)

    def place(self, request: Request, now: float) -> WorkerChoice | None:
        self.held.append(request)
        return None

    def report(self, loads: Loads, placed: int, now: float) -> None:
        super().report(loads, placed, now)
        if self.held and not loads.waiting[0] and self.actions is not None:
            self.placed_at.append(now)
            self.actions.place(self.held.pop(0), WorkerChoice(0))


@pytest.mark.parametrize(
    ("interval", "placed_at"), [(0.0, [1.0, 2.0, 4.0]), (0.75, [0.75, 2.25, 4.5])]
)
def test_a_router_may_hold_requests_and_hears_of_loads_while_it_does(
    interval: float, placed_at: list[float]
) -> None:
    requests = [request(0, 0.5, "a"), request(1, 1.0, "bc"), request(2, 1.0, "d")]
    router = OneAtATime()
    config = replace(CONFIG, report_interval=interval)
    router.actions = SimulatedCluster(config, 26, BLOCK, shared_cache=False, loop=router.loop)
    router.actions.serve(router, requests)
    router.loop.run()
    assert router.placed_at == pytest.approx(placed_at)
    assert not router.held


@pytest.mark.parametrize("delay", [0.0, 0.2])
def test_a_router_that_never_places_ends_the_run(delay: float) -> None:
    router = OneAtATime()
    config = replace(CONFIG, report_interval=0.5, report_delay=delay)
    cluster = SimulatedCluster(config, 26, BLOCK, shared_cache=False, loop=router.loop)
    cluster.serve(router, held := [request(0, 0.1, "a")])
    router.loop.run()
    assert router.waiting == 1
    assert ttfts(held) == [float("inf")]
    assert 100 < len(router.reports) < 130


def test_reports_go_on_however_their_times_are_rounded() -> None:
    router = OneAtATime()
    config = replace(CONFIG, report_interval=0.05)
    cluster = SimulatedCluster(config, 26, BLOCK, shared_cache=False, loop=router.loop)
    cluster.serve(router, [request(0, 0.1, "a")])
    router.loop.run()
    times = [now for now, _, _ in router.reports]
    gaps = [later - sooner for sooner, later in pairwise(times)]
    assert gaps[1:] == pytest.approx([0.05] * len(gaps[1:]))
    # For a minute in which nothing happens.
    assert times[-1] == pytest.approx(60.1, abs=0.06)
