"""What Kustomize renders is valid, keeps every rule, and each rule notices a mistake."""

import pytest

import baton
from tests.k8s.manifests.render import K8S, RENDERINGS, rendering, together
from tests.k8s.manifests.rules import RULES
from tests.k8s.manifests.rules.baton import SECRETS_OF_PEOPLE
from tests.k8s.manifests.selectors import matches
from tests.k8s.manifests.view import Rendered
from tests.k8s.mutations import MUTATIONS, Mutation

# Every rendering is rendered once per test process.
pytestmark = pytest.mark.xdist_group("manifests")

EXCEPTIONS: dict[str, dict[str, str]] = {
    "overlays/laptop": {
        "there_are_several": "one node has no use for them",
    },
    "components/store-per-node": {
        "namespace_is_restricted": "workers and the node's store share its /dev/shm",
        "volumes_are_of_restricted_kinds": "the same",
    },
    "components/model-cache-node": {
        "namespace_is_restricted": "pods share a directory of the node",
        "volumes_are_of_restricted_kinds": "the same",
    },
}
"""Rules that one rendering does not keep, and why."""


@pytest.mark.parametrize("name", RENDERINGS)
def test_every_rule_is_kept(name: str) -> None:
    broken = _broken(Rendered(rendering(name)))
    excused = EXCEPTIONS.get(name, {})
    assert not [text for rule, found in broken.items() if rule not in excused for text in found]
    assert not set(excused) - set(broken), "an exception that nothing needs any more"


def test_teams_have_all_of_it_behind_policies() -> None:
    names = ("cli", "network-policies", "mtls", "keys", "usage", "request-log", "history")
    rendered = Rendered(together(*(f"components/{name}" for name in names)))
    assert not _broken(rendered)
    (frontend,) = (one for one in rendered.containers if one.process == "frontend")
    assert frontend.environment["BATON_AUTH_MODE"] == "keys"
    mounts = [mount["name"] for mount in frontend.mounts]
    assert sorted(mounts) == ["kafka", "spool", "state", "tls", "tmp"]
    ports = {
        port["port"]
        for one in rendered.of("NetworkPolicy")
        if matches(one["spec"]["podSelector"], frontend.pod.labels)
        for rule in one["spec"].get("egress", [])
        for port in rule["ports"]
    }
    assert ports == {53, 2379, 4317, 50051, 5432, 9092, 9093}


def test_a_frontend_with_a_volume_is_a_member_of_a_set() -> None:
    """The claim takes the place of the temporary volume, and the scaler scales the set."""
    names = ("usage", "autoscaling", "spool-volume")
    rendered = Rendered(together(*(f"components/{name}" for name in names)))
    assert not _broken(rendered)
    (frontend,) = (pod for pod in rendered.pods if pod.role == "frontend")
    assert frontend.workload["kind"] == "StatefulSet" and "spec" in frontend.volumes["spool"]
    scaler = rendered.named("ScaledObject", "frontend")
    assert scaler is not None
    assert scaler["spec"]["scaleTargetRef"]["kind"] == "StatefulSet"


def test_people_are_told_how_to_make_their_secrets() -> None:
    text = (K8S.parent / "docs" / "kubernetes.md").read_text()
    for name, keys in SECRETS_OF_PEOPLE.items():
        for key in keys:
            assert f"create secret generic {name} --from-literal={key}=" in text


@pytest.mark.parametrize("mutation", MUTATIONS, ids=str)
def test_a_mistake_is_noticed_by_its_rule_alone(mutation: Mutation) -> None:
    good = rendering(mutation.rendering)
    broken = _broken(Rendered(mutation.of(good)))
    for rule in EXCEPTIONS.get(mutation.rendering, {}):
        broken.pop(rule)
    assert set(broken) == {mutation.rule}, broken


def test_every_rule_has_a_mistake_that_it_notices() -> None:
    assert {mutation.rule for mutation in MUTATIONS} == set(RULES)


@pytest.mark.parametrize("name", ["overlays/cpu", "overlays/gpu"])
def test_overlays_for_others_have_certificates_and_policies(name: str) -> None:
    kinds = [one["kind"] for one in rendering(name)]
    assert kinds.count("Certificate") == 9, "one per role, etcd's, and the authority's"
    assert "NetworkPolicy" in kinds


@pytest.mark.parametrize("name", RENDERINGS)
def test_images_are_of_this_version(name: str) -> None:
    for container in Rendered(rendering(name)).containers:
        image, _, tag = container.spec["image"].rpartition(":")
        if "baton" in image:
            assert tag.partition("-")[0] == baton.__version__


def _broken(rendered: Rendered) -> dict[str, list[str]]:
    """Return what is wrong, by rule."""
    return {name: found for name, rule in RULES.items() if (found := list(rule(rendered)))}
