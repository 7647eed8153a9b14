"""Write the manifests of a release: `python scripts/publish_manifests.py DIRECTORY TAG REGISTRY`.

`baton-manifests-TAG.tar.gz` has `k8s/` with the images of a registry, by a tag of version and
commit, such as those that `make image` built. Its files are plain Kustomize: for `kubectl apply -k`
of an unpacked directory, or of a repository of git into which it was put.
"""

import gzip
import re
import sys
import tarfile
from io import BytesIO
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
K8S = ROOT / "k8s"
SUFFIXES = (".yaml", ".json")
IMAGE = re.compile(r"(?:localhost|registry\.example\.com)/(baton(?:-extras|-etcd)?)\b")
VERSION = re.compile(r'^version = "(.+)"$', re.MULTILINE)
REGISTRY = re.compile(r"[a-z0-9.-]+(:[0-9]+)?(/[a-z0-9]+([._-]+[a-z0-9]+)*)*", re.ASCII)
TAG = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,127}", re.ASCII)


def with_images(text: str, version: str, tag: str, registry: str) -> str:
    """Return a manifest that names the images of a registry, where it names those of a checkout.

    Args:
        text: of a file below `k8s/`.
        version: tag of the checkout's images.
        tag: instead of it; what else an image contains, such as `-vllm`, stays its end.
        registry: host, and path if there is one, without a slash at the end.
    """
    lines = text.splitlines(keepends=True)
    version_alone = re.compile(rf"(?<![\w.]){re.escape(version)}(?![\w.])")
    return "".join(
        version_alone.sub(tag, IMAGE.sub(rf"{registry}/\1", line)) if IMAGE.search(line) else line
        for line in lines
    )


def publish(target: Path, tag: str, registry: str) -> Path:
    """Write the archive and return its path; equal manifests give equal bytes.

    Raises:
        ValueError: the tag or the registry is none.
    """
    for kind, form, value in (("tag", TAG, tag), ("registry", REGISTRY, registry)):
        if not form.fullmatch(value):
            raise ValueError(f"{value!r} is not a {kind} of images")
    found = VERSION.search((ROOT / "pyproject.toml").read_text())
    assert found is not None
    target.mkdir(parents=True, exist_ok=True)
    path = target / f"baton-manifests-{tag}.tar.gz"
    with (
        path.open("wb") as file,
        gzip.GzipFile("", "wb", fileobj=file, mtime=0) as packed,
        tarfile.open(fileobj=packed, mode="w") as archive,
    ):
        for source in sorted(one for one in K8S.rglob("*") if one.suffix in SUFFIXES):
            content = with_images(source.read_text(), found[1], tag, registry).encode()
            entry = tarfile.TarInfo(f"baton-manifests-{tag}/{source.relative_to(ROOT)}")
            entry.size = len(content)
            archive.addfile(entry, BytesIO(content))
    return path


if __name__ == "__main__":
    try:
        print(publish(Path(sys.argv[1]), *sys.argv[2:]))
    except ValueError as error:
        sys.exit(f"{error}: make manifests REGISTRY=registry.example.com/team TAG=0.1.0-62147068")
