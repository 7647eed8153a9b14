"""Pools whose workers come and go, in small runs."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from services.router.sizing.settings import SizingSettings
from simulator.command import main
from simulator.config import ClusterConfig
from simulator.model.costs import CostModel
from simulator.model.events import EventLoop
from simulator.policies.baton_queue import BatonQueueRouter
from simulator.policies.catalog import POLICIES
from simulator.policies.holdings import block_keys
from simulator.run import requests_of
from simulator.scaling.cluster import ElasticCluster
from simulator.scaling.config import ScalingConfig
from simulator.scaling.deployment import Deployment
from simulator.scaling.run import ScalingOutcome, simulate_scaling
from simulator.traces.curve import LoadCurve, TimeSpan, follow_curve
from simulator.traces.trace import Trace
from tests.support.examples import examples

MOST = 6
CLUSTER = ClusterConfig(workers=MOST, started_workers=1, costs=CostModel(prefill_rate=1_000))
SIZING = SizingSettings(max_replicas=MOST, ttft_target=4.0, hold_seconds=120.0)
SCALING = ScalingConfig(sizing=SIZING, start_seconds=20.0)


def trace(requests: int, seconds: float, tokens: int = 1_000, *, even: bool = False) -> Trace:
    """Requests that share nothing, at random times or evenly."""
    made = Trace(
        np.linspace(0.0, seconds, requests),
        [tokens] * requests,
        [20] * requests,
        [()] * requests,
        [""] * requests,
        1,
    )
    return made if even else follow_curve(made, LoadCurve(seconds), 0)


def run(
    workload: Trace, scaling: ScalingConfig = SCALING, cluster: ClusterConfig = CLUSTER
) -> ScalingOutcome:
    return simulate_scaling(workload, cluster, POLICIES["baton-queue"], scaling)


@pytest.fixture(scope="module")
def day() -> tuple[Trace, ScalingOutcome]:
    """A day of 20 minutes, from half a worker's load to three and a half, and what came of it."""
    workload = follow_curve(trace(1_900, 1_200.0), LoadCurve(1_200.0, peak=7.0), 0)
    return workload, run(workload)


SHARED = pytest.mark.xdist_group("scaling-day")
"""Of tests that share a run."""


@SHARED
def test_a_load_that_rises_gets_workers_and_one_that_falls_gives_them_back(
    day: tuple[Trace, ScalingOutcome],
) -> None:
    workload, outcome = day
    assert outcome.finished == outcome.requests
    assert 4 <= outcome.peak <= MOST
    assert outcome.sizes[-1][1] < outcome.peak
    assert outcome.reversals == 0
    fixed = run(workload, replace(SCALING, scaler="fixed"), replace(CLUSTER, started_workers=MOST))
    assert outcome.worker_hours < 0.75 * fixed.worker_hours
    assert outcome.in_time > 0.9


def test_a_constant_load_does_not_swing_between_two_and_one() -> None:
    # 1 request of 1 s every 1.3 s: 77 % of a worker, which is more than 70.
    outcome = run(trace(1_400, 1_820.0, even=True), replace(SCALING, start_seconds=5.0))
    assert [size for _, size in outcome.sizes] == [1, 2]
    # 60 % of one.
    outcome = run(trace(1_080, 1_800.0, even=True), replace(SCALING, start_seconds=5.0))
    assert [size for _, size in outcome.sizes] == [1]


def test_without_metrics_nothing_is_stopped() -> None:
    workload = follow_curve(
        trace(900, 1_200.0), LoadCurve(1_200.0, peak=4.0, quiet=(TimeSpan(600, 1_100),)), 0
    )
    seeing = run(workload)
    blind = run(workload, replace(SCALING, blind=(600.0, 1_300.0)))
    assert seeing.stops > 0
    assert blind.stops == 0


def test_an_idle_pool_empties_and_the_first_request_waits_for_one_start() -> None:
    sizing = replace(SIZING, idle_seconds=60.0)
    workload = trace(4, 1.0)
    late = replace(workload, times=np.array([0.0, 1.0, 400.0, 401.0]))
    outcome = run(late, replace(SCALING, sizing=sizing))
    assert outcome.finished == 4
    sizes = [size for _, size in outcome.sizes]
    assert sizes == [1, 0, 1]
    # Noticed within 15 s, started within 20, and computed within 1.
    assert 20.0 <= outcome.p99 <= 38.0


def test_lost_workers_lose_no_request_and_are_replaced() -> None:
    workload = trace(600, 600.0)
    outcome = run(workload, replace(SCALING, failures=(100.0, 200.0, 300.0)))
    assert outcome.failed == 3
    assert outcome.finished == outcome.requests


def test_the_last_worker_is_lost_and_what_waits_is_served_by_the_next() -> None:
    outcome = run(trace(20, 20.0), replace(SCALING, scaler="fixed", failures=(5.5,)))
    assert outcome.failed == 1
    assert outcome.finished == outcome.requests
    assert outcome.p99 >= 20.0


@SHARED
def test_queue_length_alone_starts_too_late_and_reverses(
    day: tuple[Trace, ScalingOutcome],
) -> None:
    workload, needed = day
    queue = run(workload, replace(SCALING, scaler="queue"))
    assert queue.in_time < needed.in_time


@settings(max_examples=examples(6), deadline=None)
@given(
    st.lists(st.floats(0, 60), min_size=1, max_size=40),
    st.lists(st.tuples(st.floats(0, 60), st.integers(0, 4)), max_size=8),
    st.lists(st.floats(0, 60), max_size=3),
)
def test_whatever_comes_and_goes_every_request_ends(
    arrivals: list[float], sizes: list[tuple[float, int]], failures: list[float]
) -> None:
    """Workers start, drain and are lost at any time; at last there is one."""
    config = ClusterConfig(workers=5, started_workers=1, costs=CostModel(prefill_rate=500))
    loop = EventLoop()
    cluster = ElasticCluster(config, 40, 100, loop=loop)
    router = BatonQueueRouter(config, block_keys(40), 100, 0, cluster)
    chains = [(number % 10, 10 + number % 30) for number in range(len(arrivals))]
    workload = Trace(
        np.sort(arrivals),
        [200] * len(arrivals),
        [5] * len(arrivals),
        chains,
        [""] * len(arrivals),
        40,
        100,
    )
    served = requests_of(workload, 1.0)
    deployment = Deployment(cluster, loop, 1, 3.0)
    cluster.serve(router, served)
    for at, size in [*sizes, (61.0, 0)]:
        loop.at(at, deployment.scale, size)
    for at in failures:
        loop.at(at, deployment.fail)

    def tick() -> None:
        deployment.count()
        if loop.now >= 62.0:
            deployment.scale(1)
        cluster.report()
        if loop.now < 63.0 or cluster.unplaced or cluster.prompts:
            loop.at(loop.now + 1.0, tick)

    tick()
    loop.run()
    assert all(one.ttft < float("inf") for one in served)
    assert router.open_tickets == 0
    loads = cluster.loads
    for column in (loads.queued, loads.waiting, loads.streams, loads.blocks):
        assert not column.any()
    assert cluster.copies == [
        sum(block in worker.cache for worker in cluster.workers) for block in range(40)
    ]


def test_policies_whose_workers_stay_are_refused() -> None:
    with pytest.raises(TypeError, match="round-robin"):
        simulate_scaling(trace(3, 3.0), CLUSTER, POLICIES["round-robin"], SCALING)


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (["--autoscale", "4:2"], "out of range"),
        (["--autoscale", "two"], "not MIN:MAX"),
        (["--autoscale", "1:4", "--policy", "mooncake"], "cannot come and go"),
        (["--autoscale", "1:4", "--find"], "--find"),
        (["--autoscale", "1:4", "--quiet", "9:3"], "BEGIN before END"),
        (["--autoscale", "1:4", "--burst", "1:2"], "not BEGIN:END:FACTOR"),
    ],
)
def test_options_that_cannot_be_are_named(tmp_path, capsys, options, says) -> None:
    with pytest.raises(SystemExit):
        main([str(tmp_path / "trace"), *options])
    assert says in capsys.readouterr().err


def test_the_command_prints_a_row_per_scaler(tmp_path, capsys) -> None:
    path = tmp_path / "trace.jsonl"
    path.write_text(
        "".join(
            f'{{"timestamp": {number * 1_000}, "input_length": 1000, "output_length": 5}}\n'
            for number in range(60)
        )
    )
    written = tmp_path / "out.json"
    options = ["--autoscale", "1:3", "--scaler", "needed", "fixed", "--prefill-rate", "800"]
    assert main([str(path), *options, "--day", "3", "--json", str(written)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[1] for line in lines[1:]] == ["needed", "fixed"]
    assert '"scaler": "fixed"' in written.read_text()
