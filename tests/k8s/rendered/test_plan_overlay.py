"""The overlay that `baton plan` writes keeps every rule."""

from pathlib import Path

import pytest

from tests.k8s.manifests.render import K8S, render
from tests.k8s.manifests.rules import RULES
from tests.k8s.manifests.view import Rendered
from tests.support.command_line import invoke
from tests.support.models.sizes import LLAMA_8B, write_sizes

pytestmark = pytest.mark.xdist_group("manifests")


@pytest.mark.parametrize("claim", [False, True], ids=["gpu", "gpu-claim"])
def test_an_overlay_of_a_plan(claim: bool, tmp_path: Path) -> None:
    model, target = write_sizes(tmp_path / "llama", LLAMA_8B), tmp_path / "overlay"
    words = [str(model), "--gpu", "h100", "--gpus", "8", "--tensor-parallel", "2"]
    words += ["--write", str(target), "--manifests", str(K8S), *["--claim"] * claim]
    assert invoke(["plan", *words]).exit_code == 0
    rendered = Rendered(render(target))
    assert not [text for rule in RULES.values() for text in rule(rendered)]
    workers = [one for one in rendered.containers if one.process in ("prefill", "decode")]
    assert [one.environment["BATON_ENGINE_TENSOR_PARALLEL"] for one in workers] == ["2", "2"]
    for worker in workers:
        assert worker.pod.replicas == 2
        gpus = worker.spec["resources"]["limits"].get("nvidia.com/gpu")
        assert gpus == (None if claim else "2")
    counts = [
        request["exactly"]["count"]
        for one in rendered.of("ResourceClaimTemplate")
        for request in one["spec"]["spec"]["devices"]["requests"]
    ]
    assert counts == [2] * claim
