"""Deployments, StatefulSets and DaemonSets: what they do next."""

from dataclasses import replace

import pytest

from tests.k8s.pods.controllers.nodes import Node, nodes_for
from tests.k8s.pods.controllers.rollout import (
    Plan,
    PodView,
    Strategy,
    plan_daemon_set,
    plan_deployment,
    plan_stateful_set,
)


def pods(*texts):
    """Return pods by texts as `a old`, `b new unready`, `c new terminating`."""
    made = []
    for text in texts:
        name, revision, *states = text.split()
        state = states[0] if states else ""
        ready = state in ("", "unavailable")
        made.append(PodView(name, revision, ready, state == "", state == "terminating"))
    return made


ONE_MORE = Strategy(surge=1, unavailable=0)


@pytest.mark.parametrize(
    ("have", "plan"),
    [
        ([], Plan(create=2)),
        (["a new unready", "b new"], Plan()),
        (["a old", "b old"], Plan(create=1)),
        (["a old", "b old", "c new unready"], Plan()),
        (["a old", "b old", "c new unavailable"], Plan()),
        (["a old", "b old", "c new"], Plan(delete=("a",))),
        (["a old terminating", "b old", "c new"], Plan(create=1)),
        (["a old terminating", "b old", "c new", "d new unready"], Plan()),
        (["b old", "c new", "d new"], Plan(delete=("b",))),
        (["a old unready", "b old", "c new unready"], Plan()),
        (["a new unready", "b new", "c new"], Plan(delete=("a",))),
    ],
)
def test_one_more_and_none_less(have, plan):
    assert plan_deployment(2, "new", ONE_MORE, pods(*have)) == plan


@pytest.mark.parametrize("strategy", [ONE_MORE, Strategy(0, 1), Strategy(2, 1), Strategy(1, 2)])
@pytest.mark.parametrize("replicas", [1, 2, 3, 5])
def test_a_rollout_ends_within_its_bounds(strategy, replicas):
    alive = [PodView(f"old-{n}", "old") for n in range(replicas)]
    for step in range(40):
        plan = plan_deployment(replicas, "new", strategy, alive)
        alive = [pod for pod in alive if pod.name not in plan.delete]
        assert sum(pod.available for pod in alive) >= replicas - strategy.unavailable
        alive += [PodView(f"new-{step}-{n}", "new", False, False) for n in range(plan.create)]
        assert len(alive) <= replicas + strategy.surge
        if plan == Plan():  # a new pod becomes ready when nothing else is to be done
            waiting = [n for n, pod in enumerate(alive) if not pod.available]
            if not waiting:
                break
            alive[waiting[0]] = replace(alive[waiting[0]], ready=True, available=True)
    assert [pod.revision for pod in alive] == ["new"] * replicas


def test_broken_pods_of_the_old_revision_go_first():
    have = pods("a old", "b old unready", "c old", "d new")
    assert plan_deployment(3, "new", ONE_MORE, have).delete == ("b",)


def test_recreate_waits_until_all_have_gone():
    strategy = Strategy.of({"strategy": {"type": "Recreate"}})
    assert plan_deployment(2, "new", strategy, pods("a old", "b old")).delete == ("a", "b")
    assert plan_deployment(2, "new", strategy, pods("a old terminating")) == Plan()
    assert plan_deployment(2, "new", strategy, []) == Plan(create=2)


@pytest.mark.parametrize(
    ("rolling", "replicas", "strategy"),
    [
        ({}, 2, Strategy(1, 0)),
        ({}, 8, Strategy(2, 2)),
        ({"maxSurge": 1, "maxUnavailable": 0}, 4, Strategy(1, 0)),
        ({"maxSurge": 0, "maxUnavailable": "10%"}, 4, Strategy(0, 1)),
    ],
)
def test_percentages(rolling, replicas, strategy):
    spec = {"replicas": replicas, "strategy": {"rollingUpdate": rolling}}
    assert Strategy.of(spec) == strategy


def test_a_strategy_that_can_do_nothing():
    with pytest.raises(ValueError, match="both 0"):
        Strategy.of({"strategy": {"rollingUpdate": {"maxSurge": 0, "maxUnavailable": 0}}})


@pytest.mark.parametrize(
    ("spec", "have", "plan"),
    [
        ({}, [], Plan(create=1, ordinals=(0,))),
        ({}, ["e-0 new unready"], Plan()),
        ({}, ["e-0 new"], Plan(create=1, ordinals=(1,))),
        (
            {"podManagementPolicy": "Parallel"},
            ["e-1 new"],
            Plan(create=2, ordinals=(0, 2)),
        ),
        ({}, ["e-0 old", "e-1 old", "e-2 old"], Plan(delete=("e-2",))),
        ({}, ["e-0 old", "e-1 old", "e-2 old terminating"], Plan()),
        ({}, ["e-0 old", "e-1 old", "e-2 new unready"], Plan()),
        ({}, ["e-0 old", "e-1 old", "e-2 new unavailable"], Plan()),
        ({}, ["e-0 old", "e-1 old", "e-2 new"], Plan(delete=("e-1",))),
        ({}, ["e-0 old", "e-1 old", "e-2 old unready"], Plan(delete=("e-2",))),
        ({}, ["e-0 old unready", "e-1 old", "e-2 old"], Plan()),
        ({}, ["e-0 new", "e-1 new", "e-2 new", "e-3 new"], Plan(delete=("e-3",))),
        (
            {"updateStrategy": {"rollingUpdate": {"partition": 2}}},
            ["e-0 old", "e-1 old", "e-2 new"],
            Plan(),
        ),
        ({"updateStrategy": {"type": "OnDelete"}}, ["e-0 old", "e-1 old", "e-2 old"], Plan()),
    ],
)
def test_stateful_sets(spec, have, plan):
    assert plan_stateful_set({"replicas": 3, **spec}, "e", "new", pods(*have)) == plan


@pytest.mark.parametrize(
    ("spec", "have", "plan"),
    [
        ({}, ["b new"], Plan(nodes=("a", "c"))),
        ({}, ["a old", "b old", "c old"], Plan(delete=("a",))),
        ({}, ["a old terminating", "b old", "c old"], Plan()),
        ({}, ["b old", "c old"], Plan(nodes=("a",))),
        ({}, ["a new unavailable", "b old", "c old"], Plan()),
        ({}, ["a new", "b old", "c old unready"], Plan(delete=("c",))),
        (
            {"rollingUpdate": {"maxUnavailable": "60%"}},
            ["a old", "b old", "c old"],
            Plan(0, ("a", "b")),
        ),
        ({"type": "OnDelete"}, ["a old", "b old"], Plan(nodes=("c",))),
    ],
)
def test_daemon_sets(spec, have, plan):
    there = [replace(pod, node=pod.name) for pod in pods(*have)]
    assert plan_daemon_set({"updateStrategy": spec}, "new", ["a", "b", "c"], there) == plan


def test_a_daemon_set_that_surges_is_not_done():
    with pytest.raises(ValueError, match="maxSurge"):
        plan_daemon_set({"updateStrategy": {"rollingUpdate": {"maxSurge": 1}}}, "new", ["a"], [])


@pytest.mark.parametrize(("strategy", "ends"), [(ONE_MORE, False), (Strategy(0, 1), True)])
def test_a_rollout_where_every_device_is_taken(strategy, ends):
    spec = {"containers": [{"resources": {"limits": {"nvidia.com/gpu": "1"}}}]}
    nodes = [Node(name, {}, {"nvidia.com/gpu": 1}) for name in "abcd"]
    alive = [PodView(f"old-{node.name}", "old", node=node.name) for node in nodes]
    for step in range(20):
        plan = plan_deployment(4, "new", strategy, alive)
        alive = [replace(pod, available=True) for pod in alive if pod.name not in plan.delete]
        assert len(alive) >= 3
        free = nodes_for(spec, nodes, [(pod.node, {"nvidia.com/gpu": 1}) for pod in alive])
        for node in free[: plan.create]:
            alive.append(PodView(f"new-{step}", "new", available=False, node=node))
    assert all(pod.revision == "new" for pod in alive) is ends
