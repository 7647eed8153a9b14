"""Local workers follow what routers need."""

import io

import pytest
from rich.console import Console

from baton.cli.cluster.local.output.report import Reporter
from baton.cli.cluster.local.plan import plan
from baton.cli.cluster.local.scaling.autoscaler import Autoscaler
from baton.cli.cluster.local.scaling.bounds import (
    PoolBounds,
    parse_bounds,
    router_settings,
    worker_settings,
)
from baton.cli.cluster.local.spec import LocalPool, pools_of
from baton.cli.shared.errors import CommandError
from baton.cli.shared.options import ClusterOptions
from baton.settings.models import MAX_WORKERS
from tests.unit.cli.cluster.test_plan import models_of


class Pool:
    """Workers that start at once, and stop when `stopped` is called."""

    def __init__(self, *names: str) -> None:
        self.running = list(names)
        self.stopping: set[str] = set()

    def is_wanted(self, name: str) -> bool:
        return name in self.running

    def add(self, name: str) -> bool:
        if name in self.stopping:
            return False
        self.running.append(name)
        return True

    def remove(self, name: str) -> None:
        self.running.remove(name)
        self.stopping.add(name)


class World:
    """An autoscaler of four decode workers, and its clock."""

    def __init__(self, bounds: PoolBounds, *running: str, others: tuple[str, ...] = ()) -> None:
        self.now = 0.0
        self.pool = Pool(*running)
        self.said = io.StringIO()
        reporter = Reporter(Console(file=self.said, width=200))
        pools = [LocalPool("m", "decode", tuple(f"decode-{number}" for number in range(4)))]
        if others:
            pools.append(LocalPool("n", "decode", others))
        self.scaler = Autoscaler(self.pool, pools, bounds, list, reporter, lambda: self.now)

    def need(self, replicas: int, router: str = "r0", model: str = "m") -> None:
        text = f'baton_needed_replicas{{role="decode",model="{model}"}} {replicas}\n'
        self.scaler.take(router, text)
        self.scaler.scale()


def test_workers_start_and_the_youngest_stop() -> None:
    world = World(PoolBounds(1, 4), "decode-0")
    world.need(3)
    assert world.pool.running == ["decode-0", "decode-1", "decode-2"]
    world.need(9)
    assert len(world.pool.running) == 4
    world.need(2)
    assert world.pool.running == ["decode-0", "decode-1"]
    assert world.pool.stopping == {"decode-2", "decode-3"}
    assert "Scaling decode from 1 to 3: routers need 3." in world.said.getvalue()


def test_places_of_workers_that_drain_are_not_free() -> None:
    world = World(PoolBounds(1, 4), "decode-0", "decode-1", "decode-2", "decode-3")
    world.need(1)
    world.need(4)
    assert world.pool.running == ["decode-0"]
    world.pool.stopping.clear()
    world.need(4)
    assert len(world.pool.running) == 4


def test_without_a_number_nothing_changes() -> None:
    world = World(PoolBounds(0, 4), "decode-0", "decode-1")
    world.scaler.scale()
    world.need(0)
    assert world.pool.running == []
    world.need(2)
    world.pool.stopping.clear()
    world.need(2)
    world.now = 60.0
    world.scaler.scale()
    assert len(world.pool.running) == 2


def test_the_fewest_are_kept() -> None:
    world = World(PoolBounds(2, 4), "decode-0", "decode-1", "decode-2")
    world.need(0)
    assert world.pool.running == ["decode-0", "decode-1"]


@pytest.mark.parametrize("text", ["4", "1:", ":4", "4:1", "0:0", "-1:3", "1:65", "1:4:5", "a:b"])
def test_bounds_that_are_none(text: str) -> None:
    with pytest.raises(CommandError, match=r"--autoscale is .*: use MIN:MAX, such as 1:4"):
        parse_bounds(text, MAX_WORKERS)


def test_settings_of_a_pool_that_may_be_empty() -> None:
    bounds = parse_bounds("0:3", MAX_WORKERS)
    assert bounds == (0, 3)
    assert parse_bounds("", MAX_WORKERS) is None
    assert router_settings(bounds, ()) == {
        "BATON_SCALING_MIN_REPLICAS": "1",
        "BATON_SCALING_MAX_REPLICAS": "3",
        "BATON_SCALING_IDLE_SECONDS": "60",
    }
    assert "BATON_SCALING_IDLE_SECONDS" not in router_settings(
        bounds, {"BATON_SCALING_IDLE_SECONDS"}
    )
    assert worker_settings(bounds, ()) == {"BATON_CLUSTER_MODEL_KEEP_SECONDS": "86400"}
    assert worker_settings(PoolBounds(1, 3), ()) == {}
    assert router_settings(None, ()) == {}


def test_a_pool_has_as_many_places_as_it_may_have_workers() -> None:
    options = ClusterOptions(prefill=2, decode=1, autoscale="1:3")
    bounds = PoolBounds(1, 3)
    specs = plan(options, models_of(options), (), range(2), bounds, router={"A": "b"})
    assert pools_of(specs) == [
        LocalPool("tiny", role, tuple(f"{role}-{number}" for number in range(3)))
        for role in ("prefill", "decode")
    ]
    (router,) = (spec for spec in specs if spec.service == "router")
    assert router.settings["A"] == "b"


def test_each_model_has_as_many_workers_as_it_needs() -> None:
    world = World(PoolBounds(1, 4), "decode-0", "decode-4", others=("decode-4", "decode-5"))
    world.need(2, model="n")
    assert world.pool.running == ["decode-0", "decode-4", "decode-5"]
    world.need(2, router="r1", model="m")
    assert world.pool.running == ["decode-0", "decode-4", "decode-5", "decode-1"]
    assert "Scaling decode of n from 1 to 2: routers need 2." in world.said.getvalue()
