"""`baton plan`: what it prints and writes, and the sentences where it cannot."""

import json
from pathlib import Path

import pytest

from baton.cli.shared.errors import CommandError
from tests.support.command_line import invoke
from tests.support.models.sizes import LLAMA_8B, write_sizes

K8S = Path(__file__).resolve().parents[4] / "k8s"


def run(*words: object) -> str:
    done = invoke(["plan", *map(str, words)])
    if isinstance(done.exception, CommandError):
        raise done.exception
    assert done.exit_code == 0, done.output
    return done.output


@pytest.fixture
def model(tmp_path: Path) -> Path:
    return write_sizes(tmp_path / "llama", LLAMA_8B)


def test_it_prints_workers_memory_and_speed(model: Path) -> None:
    text = run(model, "--gpu", "h100", "--gpus", 8)
    assert "8 h100, 1 per worker" in text
    assert "15 GiB, 8.03 billion parameters" in text
    assert "128 KiB" in text
    assert "not measured" in text


def test_json_has_all_of_it(model: Path) -> None:
    found = json.loads(run(model, "--gpu", "l4", "--context", 8192, "--json"))
    assert found["plan"]["ranks"] == 1
    assert found["model"]["weight_bytes"] == 16_060_522_496
    assert found["gpu"]["source"] == "NVIDIA L4 data sheet"


def test_it_writes_an_overlay(model: Path, tmp_path: Path) -> None:
    target = tmp_path / "overlay"
    run(model, "--gpu", "h100", "--gpus", 16, "--tensor-parallel", 2, "--write", target,
        "--manifests", K8S)  # fmt: skip
    text = (target / "kustomization.yaml").read_text()
    for part in (
        "TENSOR_PARALLEL=2",
        "GPU_PRODUCT=NVIDIA-H100-80GB-HBM3",
        "components/model-volume",
    ):
        assert part in text


def test_a_model_that_was_downloaded_is_downloaded_again(model: Path, tmp_path: Path) -> None:
    record = {
        "format": "baton.model/1",
        "source": "hf://meta-llama/Llama-3.1-8B",
        "revision": "c0ffee",
        "files": [
            {
                "path": "config.json",
                "size": (model / "config.json").stat().st_size,
                "sha256": "0" * 64,
            }
        ],
    }
    (model / "baton-model.json").write_text(json.dumps(record))
    target = tmp_path / "overlay"
    run(model, "--gpu", "h100", "--write", target, "--manifests", K8S)
    text = (target / "kustomization.yaml").read_text()
    assert "MODEL_SOURCE=hf://meta-llama/Llama-3.1-8B@c0ffee" in text
    assert "components/model-pull" in text


BAD = {
    ("--gpu", "tpu"): "No GPU 'tpu' is known. Known are a10, ",
    ("--gpu", "l4", "--tensor-parallel", "1"): "KV has room for",
    ("--gpu", "l4", "--gpu-memory", "1"): "fits no number of l4",
    ("--gpu", "h100", "--context", "9999999"): "lower --context",
    ("--gpu", "mine", "--gpu-memory", "80", "--gpu-bandwidth", "3000", "--gpu-flops", "900",
     "--write", "x"): "set it with --gpu-product",
    ("--gpu", "h100", "--write", "/tmp"): "/tmp exists: choose another directory",
    ("--gpu", "h100", "--write", "x", "--namespace", "A"): "no name of a namespace",
}  # fmt: skip


@pytest.mark.parametrize("words", BAD, ids=" ".join)
def test_what_it_refuses(words: tuple[str, ...], model: Path) -> None:
    with pytest.raises(CommandError, match=BAD[words]):
        run(model, *words)


def test_a_model_that_is_half_copied(model: Path) -> None:
    weights = model / "model.safetensors"
    with weights.open("r+b") as file:
        file.truncate(weights.stat().st_size // 2)
    with pytest.raises(CommandError, match=r"incomplete \(it has \d+ of \d+ bytes\): download"):
        run(model, "--gpu", "h100")
