"""Published manifests: unpacked, and from git, they render as the checkout's, with other images."""

import copy
import subprocess
import sys
import tarfile
from pathlib import Path
from typing import Any

import pytest

from bench.harness import ROOT
from tests.k8s.manifests.render import K8S, RENDERINGS, Object, render, rendering, together

pytestmark = pytest.mark.xdist_group("manifests")
TAG, REGISTRY = "0.1.0-62147068", "registry.internal:5000/team"
OURS = {"localhost/baton", "registry.example.com/baton"}


def publish(target: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    script = Path(ROOT) / "scripts" / "publish_manifests.py"
    command = [sys.executable, script, target, *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)


@pytest.fixture(scope="module")
def archive(tmp_path_factory: pytest.TempPathFactory) -> Path:
    done = publish(tmp_path_factory.mktemp("published"), TAG, REGISTRY)
    assert done.returncode == 0, done.stderr
    return Path(done.stdout.strip())


@pytest.fixture(scope="module")
def unpacked(archive: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("unpacked")
    with tarfile.open(archive) as files:
        files.extractall(directory, filter="data")
    (top,) = directory.iterdir()
    assert top.name == f"baton-manifests-{TAG}"
    return top


def expected(objects: tuple[Object, ...]) -> list[Object]:
    """Return a checkout's rendering with the images of the registry."""
    changed: list[str] = []
    objects = copy.deepcopy(objects)
    _replace(objects, changed)
    assert changed
    return list(objects)


def _replace(node: Any, changed: list[str]) -> None:
    for below in node.values() if isinstance(node, dict) else node:
        if isinstance(below, dict | list):
            _replace(below, changed)
    if not isinstance(node, dict) or not isinstance(node.get("image"), str):
        return
    name, _, tag = node["image"].partition(":")
    registry, _, short = name.rpartition("/")
    if f"{registry}/baton" in OURS and short in ("baton", "baton-extras", "baton-etcd"):
        changed.append(node["image"])
        node["image"] = f"{REGISTRY}/{short}:{TAG}{tag.removeprefix('0.1.0')}"


def files_of(directory: Path) -> list[Path]:
    return sorted(path for path in directory.rglob("*") if path.is_file())


WITH_IMAGES = [
    name
    for name in RENDERINGS
    if any(image in path.read_text() for path in files_of(K8S / name) for image in OURS)
]


@pytest.mark.parametrize("name", WITH_IMAGES)
def test_it_renders_as_the_checkout(name: str, unpacked: Path) -> None:
    found = render(unpacked / "k8s" / name) if name.startswith("overlays/") else None
    found = found or together(name, k8s=unpacked / "k8s")
    assert list(found) == expected(rendering(name))


def test_every_file_of_the_manifests_is_in_it(unpacked: Path) -> None:
    found, wanted = (
        {path.relative_to(top) for path in files_of(top)} for top in (unpacked / "k8s", K8S)
    )
    assert found == wanted


def test_only_files_with_images_differ(unpacked: Path) -> None:
    """So that what has none need not be rendered: it renders as in the checkout."""
    for path in files_of(K8S):
        text = path.read_text()
        published = (unpacked / "k8s" / path.relative_to(K8S)).read_text()
        assert (published == text) == (not any(image in text for image in OURS)), path
        assert not any(image in published for image in OURS), path


def test_an_overlay_is_applied_from_git(unpacked: Path, tmp_path: Path) -> None:
    """As `kubectl apply -k URL?ref=TAG` reads it: of the tag, whatever came after."""
    repository = tmp_path / "repository"
    repository.mkdir()
    git = ["git", "-C", str(repository), "-c", "user.name=us", "-c", "user.email=us@example.com"]

    def run(*arguments: str) -> None:
        subprocess.run([*git, *arguments], check=True, capture_output=True, timeout=60)

    run("init", "--quiet")
    for source in sorted(path for path in unpacked.rglob("*") if path.is_file()):
        target = repository / source.relative_to(unpacked)
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(source.read_bytes())
    run("add", ".")
    run("commit", "--quiet", "-m", TAG)
    run("tag", TAG)
    run("rm", "--quiet", "-r", "k8s/overlays")
    run("commit", "--quiet", "-m", "later")
    found = render(f"file://{repository}//k8s/overlays/laptop?ref={TAG}")
    assert list(found) == expected(rendering("overlays/laptop"))


def test_equal_manifests_make_equal_files(archive: Path, tmp_path: Path) -> None:
    assert publish(tmp_path, TAG, REGISTRY).returncode == 0
    assert (tmp_path / archive.name).read_bytes() == archive.read_bytes()


@pytest.mark.parametrize(
    ("tag", "registry", "named"),
    [
        ("0.1.0+62147068", REGISTRY, "'0.1.0+62147068' is not a tag"),
        (TAG, "https://registry.internal", "'https://registry.internal' is not a registry"),
        (TAG, "registry.internal/team/", "'registry.internal/team/' is not a registry"),
    ],
)
def test_what_is_no_image_is_refused(tag: str, registry: str, named: str, tmp_path: Path) -> None:
    done = publish(tmp_path, tag, registry)
    assert done.returncode == 1
    assert named in done.stderr and "make manifests REGISTRY=" in done.stderr
    assert not list(tmp_path.iterdir())
