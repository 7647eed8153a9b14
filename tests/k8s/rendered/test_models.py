"""A second model: a directory that `baton models overlay` writes, next to the base's pool."""

from collections.abc import Callable
from pathlib import Path

import pytest
from rich.console import Console

from baton.cli.models.overlay import CacheKind, overlay
from baton.cli.shared.errors import CommandError
from tests.k8s.manifests.render import K8S, Object, render
from tests.k8s.manifests.rules import RULES
from tests.k8s.manifests.selectors import matches
from tests.k8s.manifests.view import Rendered, name_of
from tests.k8s.rendered.test_manifests import EXCEPTIONS

pytestmark = pytest.mark.xdist_group("manifests")

CLUSTER = ("cli", "network-policies", "mtls", "monitoring", "keys")
TOGETHER = """\
apiVersion: kustomize.config.k8s.io/v1beta1
kind: Kustomization
namespace: baton
resources: [{resources}]
components: [{components}]
"""
Write = Callable[..., Path]


@pytest.fixture
def write(tmp_path: Path) -> Write:
    """Write a pool for a model; returns its directory."""

    def run(
        name: str,
        source: str,
        *components: str,
        cache: CacheKind = "pod",
        served: str = "",
        manifests: Path | None = K8S,
    ) -> Path:
        directory = tmp_path / name
        overlay(
            name, source, directory, served, cache, components, "baton", manifests,
            Console(quiet=True),
        )  # fmt: skip
        return directory

    return run


def cluster(tmp_path: Path, *pools: Path, components: tuple[str, ...] = CLUSTER) -> Rendered:
    """Return the base with other pools, as an overlay of a cluster has them."""
    top = tmp_path / "top"
    top.mkdir()
    text = TOGETHER.format(
        resources=", ".join([relative(top, K8S / "base"), *(f"../{pool.name}" for pool in pools)]),
        components=", ".join(relative(top, K8S / "components" / one) for one in components),
    )
    (top / "kustomization.yaml").write_text(text)
    return Rendered(render(top))


def relative(directory: Path, target: Path) -> str:
    return "/".join([".."] * (len(directory.resolve().parts) - 1)) + str(target)


def broken(rendered: Rendered) -> dict[str, list[str]]:
    return {name: found for name, rule in RULES.items() if (found := list(rule(rendered)))}


@pytest.mark.parametrize("cache", ["pod", "node", "claim", "job"])
def test_several_models_keep_every_rule(cache: CacheKind, tmp_path: Path, write: Write) -> None:
    pools = [
        write("second", "hf://Qwen/Qwen3-0.6B@main", "autoscaling", cache=cache),
        write("third", "s3://models/llama", "vllm", "autoscaling", cache=cache),
    ]
    rendered = cluster(tmp_path, *pools)
    excused = EXCEPTIONS.get(f"components/model-cache-{cache}", {})
    found = broken(rendered)
    # A claim for all pods of a node's directory cannot be one: the namespace is the cluster's.
    assert not {rule: text for rule, text in found.items() if rule not in excused}
    names = {pod.name for pod in rendered.pods if pod.role in ("prefill", "decode")}
    assert names == {
        f"{role}{suffix}" for role in ("prefill", "decode") for suffix in ("", "-second", "-third")
    }


def test_pools_do_not_select_each_other(tmp_path: Path, write: Write) -> None:
    rendered = cluster(tmp_path, write("second", "hf://org/one"), write("third", "hf://org/two"))
    selecting = [*rendered.of("Deployment", "PodDisruptionBudget")]
    for one in selecting:
        selected = [pod.name for pod in rendered.selected(one["spec"]["selector"])]
        assert selected == [name_of(one)]


def test_a_pool_has_its_own_name_source_and_scalers(tmp_path: Path, write: Write) -> None:
    rendered = cluster(
        tmp_path, write("second", "hf://org/name@v1", "autoscaling"), components=("mtls",)
    )
    worker = next(
        one for one in rendered.containers if one.pod.name == "decode-second" and not one.init
    )
    given = worker.environment
    assert given["BATON_ENGINE_MODEL_NAME"] == "name"
    assert given["MODEL_SOURCE"] == "hf://org/name@v1"
    assert given["BATON_ETCD_CLUSTER"] == "baton", "what is the cluster's is shared"
    assert "BATON_TLS_CERT" in given
    scalers = {name_of(one): one["spec"] for one in rendered.of("ScaledObject")}
    assert set(scalers) == {"prefill-second", "decode-second"}
    for name, spec in scalers.items():
        assert spec["scaleTargetRef"]["name"] == name
        assert all('model=~"name"' in one["metadata"]["query"] for one in spec["triggers"])


def test_monitors_choose_by_labels(tmp_path: Path, write: Write) -> None:
    rendered = cluster(tmp_path, write("second", "hf://org/name"), components=("monitoring",))
    (monitor,) = rendered.of("PodMonitor")
    chosen = {pod.name for pod in rendered.selected(monitor["spec"]["selector"])}
    assert {"prefill", "prefill-second", "decode", "decode-second"} <= chosen
    assert "baton.dev/model" in monitor["spec"]["podTargetLabels"]
    models = {pod.name: pod.labels.get("baton.dev/model") for pod in rendered.pods}
    assert models["prefill"] == "default"
    assert models["prefill-second"] == "second"


@pytest.mark.parametrize(
    ("source", "volume", "path"),
    [
        (
            "pvc://weights/llama/v2",
            {"persistentVolumeClaim": {"claimName": "weights", "readOnly": True}},
            "/models/llama/v2",
        ),
        (
            "oci://ghcr.io/org/llama:v2",
            {"image": {"reference": "ghcr.io/org/llama:v2", "pullPolicy": "IfNotPresent"}},
            "/models",
        ),
    ],
)
def test_volumes_are_mounted_and_not_downloaded(
    source: str, volume: Object, path: str, tmp_path: Path, write: Write
) -> None:
    rendered = cluster(tmp_path, write("second", source))
    found = broken(rendered)
    if source.startswith("pvc"):  # a claim of theirs, which no rendering has
        assert set(found) == {"references_exist"}
    else:
        assert not found
    (worker,) = (one for one in rendered.containers if one.name == "prefill-second/worker")
    assert worker.environment["BATON_ENGINE_MODEL"] == path
    assert worker.pod.volumes["model-files"] == {"name": "model-files", **volume}
    assert not any("models" in c.spec.get("command", []) for c in worker.pod.containers)


def test_only_downloads_reach_the_web(tmp_path: Path, write: Write) -> None:
    rendered = cluster(tmp_path, write("second", "hf://org/name", cache="job"))
    (policy,) = (one for one in rendered.of("NetworkPolicy") if name_of(one) == "model-sources")
    selector = policy["spec"]["podSelector"]
    assert [pod.name for pod in rendered.pods if matches(selector, pod.labels)] == [
        "model-pull-second"
    ]


BAD = {
    ("Upper", "hf://org/name"): "no name of a pool",
    ("x" * 39, "hf://org/name"): "at most 38 small letters",
    ("-x", "hf://org/name"): "no name of a pool",
    ("second", "hf://org"): "",
    ("second", "hf://a/b/c"): "not hf://ORGANIZATION/NAME",
    ("second", "s3://"): "not s3://BUCKET/PREFIX",
    ("second", "https://user:word@host/x"): "has a password",
    ("second", "https://host/x?token=1"): "has a password",
    ("second", "/mnt/model"): "cannot be reached from pods: use hf://",
    ("second", "file:///mnt/model"): "cannot be reached from pods",
    ("second", "pvc://claim/../x"): "not pvc://CLAIM/PATH",
    ("second", "pvc://Claim/x"): "not pvc://CLAIM/PATH",
    ("second", "pvc://claim/a b"): "not pvc://CLAIM/PATH",
    ("second", "oci://image}, x: {y"): "not oci://REGISTRY/IMAGE",
    ("second", 'oci://host/image:1"x'): "not oci://REGISTRY/IMAGE",
}


@pytest.mark.parametrize(("name", "source"), BAD)
def test_arguments_that_cannot_be_used(name: str, source: str, write: Write) -> None:
    if not BAD[name, source]:
        write(name, source)
        return
    with pytest.raises(CommandError, match=BAD[name, source]):
        write(name, source)


def test_directories_that_cannot_be_used(tmp_path: Path, write: Write) -> None:
    write("second", "hf://org/name")
    with pytest.raises(CommandError, match="second exists: choose another"):
        write("second", "hf://org/name")
    with pytest.raises(CommandError, match=r"No directory above .* set --manifests"):
        write("third", "hf://org/name", manifests=None)
    with pytest.raises(CommandError, match="'a b' is no name of a component"):
        write("third", "hf://org/name", "a b")
    with pytest.raises(CommandError, match=r"'\.\./x' is no name of a component"):
        write("third", "hf://org/name", "../x")
    with pytest.raises(CommandError, match="has no components/none: check --component"):
        write("third", "hf://org/name", "none")
    with pytest.raises(CommandError, match="'a b' is no name of a model"):
        write("third", "hf://org/name", served="a b")
