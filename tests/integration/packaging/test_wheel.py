"""What the wheel and the sdist hold: all that runs, and nothing else."""

import subprocess
import tarfile
import zipfile
from configparser import ConfigParser
from email.message import Message
from email.parser import Parser
from pathlib import Path

import pytest
from packaging.requirements import Requirement

import baton

ROOT = Path(__file__).parents[3]
INFO = f"baton_serving-{baton.__version__}.dist-info"
BUNDLED = "baton/_bundled/"

# The wheel is built once per test process.
pytestmark = [pytest.mark.xdist_group("wheel"), pytest.mark.timeout(300)]


@pytest.fixture(scope="module")
def wheel(distributions: Path) -> zipfile.ZipFile:
    (path,) = distributions.glob("*.whl")
    return zipfile.ZipFile(path)


@pytest.fixture(scope="module")
def names(wheel: zipfile.ZipFile) -> set[str]:
    return set(wheel.namelist())


@pytest.fixture(scope="module")
def metadata(wheel: zipfile.ZipFile) -> Message:
    return Parser().parsestr(wheel.read(f"{INFO}/METADATA").decode())


def sources(*folders: str) -> set[str]:
    """Return the files of folders that are in the repository or not ignored."""
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard", *folders]
    listed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    return {name for name in listed.stdout.split() if (ROOT / name).exists()}


def test_only_baton_is_at_the_top(names: set[str]) -> None:
    assert {name.partition("/")[0] for name in names} == {"baton", INFO}


def test_everything_that_runs_is_there(names: set[str]) -> None:
    assert sources("baton") <= names
    assert {BUNDLED + name for name in sources("services")} <= names


def test_generated_code_and_types_are_there(names: set[str]) -> None:
    for name in ("v1/inference_pb2", "v1/inference_pb2_grpc", "internal/v1/worker_pb2"):
        assert {f"baton/{name}.py", f"baton/{name}.pyi"} <= names
    assert "baton/py.typed" in names


def test_the_demo_model_is_there_without_its_training(names: set[str]) -> None:
    folder = f"{BUNDLED}models/baton-tiny/"
    model = {name.removeprefix(folder) for name in names if name.startswith(f"{BUNDLED}models/")}
    assert {"config.json", "model.safetensors", "tokenizer.json"} <= model
    assert not [name for name in model if "/" in name]


def test_nothing_else_is_there(names: set[str]) -> None:
    made = {name for name in names if name.startswith(("baton/v1/", "baton/internal/", INFO))}
    ours = sources("baton") | {
        BUNDLED + name
        for name in sources("services", "simulator", "models")
        if not name.startswith("models/baton-tiny/train/")
    }
    assert names - made == ours | {"baton/_commit"}


def test_the_commit_is_noted(wheel: zipfile.ZipFile) -> None:
    describe = ["git", "rev-parse", "HEAD"]
    head = subprocess.run(describe, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    note = wheel.read("baton/_commit").decode().strip()
    assert head.startswith(note.removesuffix(".dirty"))
    assert len(note.removesuffix(".dirty")) >= 8


def test_the_licence_is_there(wheel: zipfile.ZipFile, metadata: Message) -> None:
    assert wheel.read(f"{INFO}/licenses/LICENSE") == (ROOT / "LICENSE").read_bytes()
    assert metadata["License-Expression"] == "Apache-2.0"


def test_the_base_is_what_a_client_needs(metadata: Message) -> None:
    required = [Requirement(text) for text in metadata.get_all("Requires-Dist", ())]
    base = [each for each in required if each.marker is None]
    assert {each.name for each in base} == {
        "googleapis-common-protos",
        "grpcio",
        "grpcio-status",
        "msgspec",
        "protobuf",
    }
    for each in base:  # a range, for the sake of what else is installed
        assert sorted(one.operator for one in each.specifier) == ["<", ">="]
    extras = set(metadata.get_all("Provides-Extra", ()))
    assert extras == {"cli", "server", "local", "nixl", "kafka", "models", "state", "vllm", "dev"}


def test_it_brings_the_command(wheel: zipfile.ZipFile) -> None:
    scripts = ConfigParser()
    scripts.read_string(wheel.read(f"{INFO}/entry_points.txt").decode())
    assert dict(scripts["console_scripts"]) == {"baton": "baton.__main__:main"}


def test_the_sdist_can_be_built_again_and_tested(distributions: Path) -> None:
    (path,) = distributions.glob("*.tar.gz")
    with tarfile.open(path) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    wanted = sources("baton", "services", "models", "protos", "scripts", "tests")
    wanted |= {"LICENSE", "Makefile", "constraints.txt", "pyproject.toml", "requirements-vllm.txt"}
    assert wanted <= names
    assert not [name for name in names if name.startswith(("baton/v1", "build/", ".venv"))]
