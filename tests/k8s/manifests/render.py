"""What Kustomize makes of a directory: of overlays, and of each component alone over the base."""

import os
import subprocess
import sys
import tempfile
from functools import cache
from pathlib import Path
from typing import Any

import yaml

Object = dict[str, Any]

K8S = Path(__file__).resolve().parents[3] / "k8s"
OVERLAYS = Path(__file__).resolve().parents[1] / "overlays"
"""Of tests alone."""
RENDERINGS = tuple(
    f"{kind}/{path.name}"
    for kind in ("overlays", "components")
    for path in sorted((K8S / kind).iterdir())
)
"""Every overlay, and every component."""
RENDER_SECONDS = 100
_ENVIRONMENT = {**os.environ, "GOGC": "off", "GOMAXPROCS": "1"}
"""It ends before what it allocates is much: collecting it costs a quarter of the CPU."""
_TOGETHER = """\
apiVersion: kustomize.config.k8s.io/v1beta1
kind: Kustomization
namespace: {namespace}
transformers: [{up}/parts/namespace]
resources: [{up}/base]
components: [{components}]
"""


@cache
def rendering(name: str) -> tuple[Object, ...]:
    """Return the objects of one of RENDERINGS, or of components joined by `+`.

    Nobody may change them: copy first.
    """
    if name.startswith("overlays/"):
        return render(K8S / name)
    return together(*name.split("+"))


@cache
def together(*components: str, namespace: str = "baton", k8s: Path = K8S) -> tuple[Object, ...]:
    """Return the objects of the base with these components, in their order, in a namespace."""
    with tempfile.TemporaryDirectory() as directory:
        up = os.path.relpath(k8s, Path(directory).resolve())
        paths = ", ".join(f"{up}/{component}" for component in components)
        text = _TOGETHER.format(up=up, components=paths, namespace=namespace)
        (Path(directory) / "kustomization.yaml").write_text(text)
        return render(Path(directory))


def render(directory: Path | str) -> tuple[Object, ...]:
    """Return the objects that `kubectl kustomize` makes of a directory or a URL: no warning."""
    kubectl = Path(sys.executable).with_name("kubectl")
    done = subprocess.run(
        [kubectl, "kustomize", directory],
        capture_output=True,
        text=True,
        env=_ENVIRONMENT,
        timeout=RENDER_SECONDS,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert not done.stderr, f"kustomize warns: {done.stderr}"
    return tuple(yaml.load_all(done.stdout, yaml.CSafeLoader))
