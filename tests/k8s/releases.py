"""Other versions of Baton in pods: images with another package, and templates as theirs were."""

import asyncio
import shutil
import subprocess
import sys
from copy import deepcopy
from functools import partial
from pathlib import Path

from bench.harness.releases import Release
from tests.k8s.manifests.render import Object
from tests.k8s.pods.containers.podman import Podman

BUILD_SECONDS = 300
SITE = "/opt/release"
PROBES = {"startupProbe": "liveness", "livenessProbe": "liveness", "readinessProbe": ""}
"""Services of grpc.health.v1 that say it where there is no port for operations."""


async def image_of(release: Release, base: str, podman: Podman, directory: Path) -> str:
    """Make an image of a version: a layer over another one, whose package stands before that's.

    Args:
        release: whose first path holds all others.
        base: image of the checkout's version.
        podman: of the run.
        directory: empty, and removed by the caller.
    """
    root, *_ = release.paths
    site = directory / "site"
    shutil.copytree(root, site, ignore=shutil.ignore_patterns("__pycache__"))
    # Processes cannot write bytecode there; valid whatever the times of the files in the layer are.
    compiled = [sys.executable, "-m", "compileall", "-q", "--invalidation-mode", "unchecked-hash"]
    run = partial(subprocess.run, check=True, timeout=BUILD_SECONDS)
    await asyncio.to_thread(run, [*compiled, site])
    paths = ":".join(f"{SITE}/{path.relative_to(root)}" for path in release.paths)
    layer = f"FROM {base}\nCOPY site {SITE}\nENV PYTHONPATH={paths} PYTHONSAFEPATH=1\n"
    (directory / "Containerfile").write_text(layer)
    image = f"localhost/{directory.name}:{release.name}"
    build = ("build", "--quiet", "--pull=never", "--tag", image, str(directory))
    await podman(*build, seconds=BUILD_SECONDS)
    return image


def template_of(template: Object, image: str, release: Release) -> Object:
    """Return the template of a Deployment's pods as a version has it.

    One that calls settings otherwise than the checkout is older than the port for operations and
    than several names of etcd.
    """
    made = deepcopy(template)
    spec = made["spec"]
    for container in (*spec.get("initContainers", ()), *spec["containers"]):
        container["image"] = image
        if not release.renamed:
            continue
        for variable in container["env"]:
            variable["name"] = release.renamed.get(variable["name"], variable["name"])
        container["env"] = [one for one in container["env"] if release.accepts(one["name"])]
        shared = {"BATON_OPS_HOST": "0.0.0.0", "BATON_ETCD_ENDPOINTS": "etcd:2379"}
        named = release.settings(shared)
        container["env"] += [{"name": name, "value": value} for name, value in named.items()]
        (port,) = (one for one in container["ports"] if one["name"].endswith("grpc"))
        for kind, service in PROBES.items():
            del container[kind]["httpGet"]
            container[kind]["grpc"] = {"port": port["containerPort"], "service": service}
    return made
