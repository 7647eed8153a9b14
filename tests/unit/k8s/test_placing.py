"""Nodes and disruption budgets."""

import pytest

from tests.k8s.manifests.selectors import matches
from tests.k8s.pods.controllers.disruption import Candidate, may_evict
from tests.k8s.pods.controllers.nodes import HOST, Node, choose_node, devices_of, nodes_for

ETCD, ROUTER = {"app": "etcd"}, {"app": "router"}
SELECT_ETCD = {"matchLabels": ETCD}
APART = {
    "affinity": {
        "podAntiAffinity": {
            "requiredDuringSchedulingIgnoredDuringExecution": [
                {"topologyKey": HOST, "labelSelector": SELECT_ETCD}
            ]
        }
    }
}


def spread(when):
    one = {"topologyKey": HOST, "maxSkew": 1, "whenUnsatisfiable": when}
    return {"topologySpreadConstraints": [{**one, "labelSelector": SELECT_ETCD}]}


def test_pods_of_a_kind_are_spread():
    placed = []
    for _ in range(3):
        placed.append((choose_node({}, ETCD, ["a", "b", "c"], placed), ETCD))
    assert [node for node, _ in placed] == ["a", "b", "c"]
    assert choose_node({}, ROUTER, ["a", "b", "c"], [*placed, ("a", ROUTER)]) == "b"


def test_who_may_not_share_a_node_waits():
    placed = [("a", ETCD), ("b", ETCD)]
    assert choose_node(APART, ETCD, ["a", "b", "c"], placed) == "c"
    assert choose_node(APART, ETCD, ["a", "b"], placed) is None
    assert choose_node({}, ETCD, [], placed) is None


def test_a_spread_that_must_hold():
    placed = [("a", ETCD), ("a", ROUTER), ("b", ROUTER), ("b", ROUTER)]
    assert choose_node(spread("DoNotSchedule"), ETCD, ["a", "b"], placed) == "b"
    assert choose_node(spread("ScheduleAnyway"), ETCD, ["a"], placed) == "a"


def test_a_spread_counts_each_revision_apart():
    spec = spread("DoNotSchedule")
    spec["topologySpreadConstraints"][0]["matchLabelKeys"] = ["pod-template-hash"]
    old, new = {**ETCD, "pod-template-hash": "1"}, {**ETCD, "pod-template-hash": "2"}
    placed = [("a", new), ("b", old), ("b", old)]
    assert choose_node(spec, new, ["a", "b"], placed) == "b"


@pytest.mark.parametrize(
    ("expression", "found"),
    [
        ({"operator": "In", "values": ["etcd", "x"]}, True),
        ({"operator": "NotIn", "values": ["etcd"]}, False),
        ({"operator": "Exists"}, True),
        ({"operator": "DoesNotExist"}, False),
    ],
)
def test_selectors(expression, found):
    assert matches({"matchExpressions": [{"key": "app", **expression}]}, ETCD) is found


def test_no_selector_means_nothing_and_an_empty_one_everything():
    assert not matches(None, ETCD)
    assert matches({}, ETCD)
    with pytest.raises(ValueError, match="Gt"):
        matches({"matchExpressions": [{"key": "app", "operator": "Gt"}]}, ETCD)


def budget(**spec):
    return {"metadata": {"name": "etcd"}, "spec": {"selector": SELECT_ETCD, **spec}}


def members(*ready):
    return [Candidate(f"e-{n}", ETCD, yes) for n, yes in enumerate(ready)]


@pytest.mark.parametrize(
    ("spec", "ready", "allowed"),
    [
        ({"maxUnavailable": 1}, (True, True, True), True),
        ({"maxUnavailable": 1}, (True, False, True), False),
        ({"maxUnavailable": 0}, (True, True, True), False),
        ({"maxUnavailable": "50%"}, (True, False, True), True),
        ({"minAvailable": 2}, (True, True, True), True),
        ({"minAvailable": 3}, (True, True, True), False),
        ({"minAvailable": "67%"}, (True, True, True), False),
        ({"minAvailable": 2}, (False, True, True), True),
        ({"minAvailable": 2}, (False, False, True), False),
        ({"minAvailable": 2, "unhealthyPodEvictionPolicy": "AlwaysAllow"}, (False,) * 3, True),
    ],
)
def test_budgets(spec, ready, allowed):
    pods = members(*ready)
    assert may_evict(pods[0], pods, {"etcd": 3}, [budget(**spec)]) is allowed


def test_budgets_of_others_do_not_count():
    router = Candidate("r", ROUTER, ready=True)
    assert may_evict(router, [router], {"etcd": 3}, [budget(maxUnavailable=0)])


def test_who_terminates_is_not_healthy():
    pods = [*members(True, True), Candidate("e-2", ETCD, ready=True, terminating=True)]
    assert not may_evict(pods[0], pods, {"etcd": 3}, [budget(maxUnavailable=1)])


GPU = "nvidia.com/gpu"


def wanting(count, **selector):
    limits = {GPU: str(count), "memory": "1Gi"}
    return {"containers": [{"resources": {"limits": limits}}], "nodeSelector": selector}


def test_who_wants_devices_waits_for_them():
    nodes = [Node("a", {}, {GPU: 2}), Node("b", {}, {GPU: 1}), Node("c")]
    assert devices_of(wanting(2)) == {GPU: 2}
    assert nodes_for(wanting(1), nodes, []) == ["a", "b"]
    assert nodes_for(wanting(1), nodes, [("a", {GPU: 2})]) == ["b"]
    assert nodes_for(wanting(2), nodes, [("a", {GPU: 1})]) == []
    assert nodes_for({"containers": [{}]}, nodes, [("a", {GPU: 2})]) == ["a", "b", "c"]


def test_nodes_are_chosen_by_their_labels():
    nodes = [Node("a", {"product": "H100"}, {GPU: 1}), Node("b", {}, {GPU: 1})]
    assert nodes_for(wanting(1, product="H100"), nodes, []) == ["a"]
