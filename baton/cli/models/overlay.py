"""`baton models overlay`: the manifests of one more model, for Kustomize."""

import json
import os
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Literal

from rich.console import Console

from baton.cli.shared.errors import EXIT_FAILED, CommandError
from baton.cli.shared.manifests import POOL, find_manifests
from baton.models.errors import PullError
from baton.models.sources.names import (
    FORMS,
    after_scheme,
    check_url,
    parse_bucket,
    parse_hub,
    scheme_of,
)

CacheKind = Literal["pod", "node", "claim", "job"]
_COMPONENT = {
    "pod": "model-pull",
    "node": "model-cache-node",
    "claim": "model-cache-claim",
    "job": "model-job",
}
"""The component that downloads into each kind of cache."""
MAX_NAME = 38
"""Letters: `prefill-NAME` leaves room for what Kubernetes adds to the names of pods."""
_NAME = re.compile(rf"[a-z]([-a-z0-9]{{0,{MAX_NAME - 2}}}[a-z0-9])?")
_LABEL = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")
_SERVED = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,95}(/[A-Za-z0-9._-]{1,96})?")
_CLAIM = re.compile(r"([a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?)(/[\w./-]+)?", re.ASCII)
_IMAGE = re.compile(
    r"[a-z0-9.-]+(:[0-9]+)?(/[a-z0-9._-]+)+(:[A-Za-z0-9_][\w.-]{0,127})?(@sha256:[0-9a-f]{64})?",
    re.ASCII,
)

_TEXT = """\
# The workers of {served}. List this directory under resources of the overlay of your cluster.
# Written by `baton models overlay`; change it as you like.
apiVersion: kustomize.config.k8s.io/v1beta1
kind: Kustomization
namespace: {namespace}
resources: [{pool}]
components:
{components}
nameSuffix: -{name}
labels:
  - pairs: {{baton.dev/model: {name}}}
    includeSelectors: true
configMapGenerator:
  - name: model
    behavior: merge
    literals:
{literals}
"""
_PATCHES = """\
patches:
"""
_NO_FRONTEND = """\
  # Frontends are the cluster's, and so is their scaler.
  - patch: |-
      $patch: delete
      apiVersion: keda.sh/v1alpha1
      kind: ScaledObject
      metadata: {name: frontend}
"""
_VOLUME = """\
  - target: {{kind: Deployment, name: (prefill|decode)}}
    patch: |-
      apiVersion: apps/v1
      kind: Deployment
      metadata: {{name: worker}}
      spec:
        template:
          spec:
            containers:
              - name: worker
                env:
                  - {{name: BATON_ENGINE_MODEL, value: {path}}}
                volumeMounts:
                  - {{name: model-files, mountPath: /models, readOnly: true}}
            volumes:
              - {volume}
"""


def overlay(
    name: str,
    source: str,
    directory: Path,
    served: str,
    cache: CacheKind,
    components: Sequence[str],
    namespace: str,
    manifests: Path | None,
    console: Console,
) -> None:
    """Write a directory with the manifests of one more model, and print what to do with it.

    Args:
        name: of the pool: its label and the suffix of its objects.
        source: of the model: as for `baton models pull`, `pvc://CLAIM/PATH`, or `oci://IMAGE`.
        directory: is created.
        served: name by which clients request the model; empty: the source's.
        cache: where downloads go.
        components: further ones of the manifests, by name.
        namespace: of the cluster.
        manifests: the directory `k8s` of Baton; None: the nearest above `directory`.
        console: for what to do next.

    Raises:
        CommandError: an argument cannot be used, or the directory exists or cannot be written.
    """
    if not _NAME.fullmatch(name):
        raise CommandError(
            f"{name!r} is no name of a pool: use at most {MAX_NAME} small letters, digits and "
            "hyphens, beginning with a letter."
        )
    volume = _volume(source)
    served = served or _served(source)
    if not _SERVED.fullmatch(served):
        raise CommandError(f"{served!r} is no name of a model: set --served-name.")
    for what, value in (("namespace", namespace), *(("component", one) for one in components)):
        if not _LABEL.fullmatch(value):
            raise CommandError(f"{value!r} is no name of a {what}: check --{what}.")
    if directory.exists():
        raise CommandError(f"{directory} exists: choose another directory, or remove it.")
    root = find_manifests(directory, manifests)
    used = [*components] if volume else [_COMPONENT[cache], *components]
    paths = ["parts/another-model", *(f"components/{one}" for one in dict.fromkeys(used))]
    for path in paths:
        if not (root / path).is_dir():
            raise CommandError(f"{root} has no {path}: check --component and --manifests.")
    literals = {"BATON_ENGINE_MODEL_NAME": served, "SCALED_MODEL": served}
    if not volume:
        literals = {"MODEL_SOURCE": source, **literals}
    up = os.path.relpath(root.resolve(), directory.resolve())
    text = _TEXT.format(
        served=served,
        namespace=namespace,
        pool=json.dumps(f"{up}/{POOL}"),
        components="\n".join(f"  - {json.dumps(f'{up}/{path}')}" for path in paths),
        name=name,
        literals="\n".join(
            f"      - {json.dumps(f'{key}={value}')}" for key, value in literals.items()
        ),
    )
    patches = volume + (_NO_FRONTEND if "autoscaling" in components else "")
    try:
        directory.mkdir(parents=True)
        (directory / "kustomization.yaml").write_text(text + (_PATCHES + patches) * bool(patches))
    except OSError as error:
        raise CommandError(
            f"{directory} cannot be written: {error.strerror}.", EXIT_FAILED
        ) from error
    console.print(
        f"{directory} has the pool {name}, which serves {served}. List it under resources of your "
        "cluster's overlay. If scalers follow the need, set SCALED_MODEL in the ConfigMap model of "
        "the other pools to their models.",
        highlight=False,
        markup=False,
    )


def _served(source: str) -> str:
    """Return the last part of a source's path, without revision and tag."""
    last = after_scheme(source).rstrip("/").rpartition("/")[2]
    return last.partition("@")[0].partition(":")[0]


def _volume(source: str) -> str:
    """Return a patch that mounts a source; empty: it is downloaded.

    Raises:
        CommandError: it is neither mounted nor downloaded.
    """
    scheme = scheme_of(source)
    try:
        if scheme == "hf":
            parse_hub(source)
        elif scheme == "s3":
            parse_bucket(source)
        elif scheme in ("https", "http"):
            check_url(source, "SOURCE")
        elif scheme in ("pvc", "oci"):
            return _mounted(scheme, after_scheme(source))
        else:
            raise PullError(
                f"{source!r} cannot be reached from pods: use {FORMS.rpartition(', or ')[0]}, "
                "pvc://CLAIM/PATH, or oci://IMAGE."
            )
    except PullError as error:
        raise CommandError(str(error)) from error
    return ""


def _mounted(scheme: str, place: str) -> str:
    if scheme == "pvc":
        match = _CLAIM.fullmatch(place)
        if match is None or ".." in place:
            raise PullError(f"'pvc://{place}' is not pvc://CLAIM/PATH.")
        path = f"/models{(match[3] or '').rstrip('/')}"
        claim = f"persistentVolumeClaim: {{claimName: {match[1]}, readOnly: true}}"
        return _VOLUME.format(path=path, volume=f"{{name: model-files, {claim}}}")
    if _IMAGE.fullmatch(place) is None:
        raise PullError(f"'oci://{place}' is not oci://REGISTRY/IMAGE:TAG or …@sha256:DIGEST.")
    image = f"image: {{reference: {json.dumps(place)}, pullPolicy: IfNotPresent}}"
    return _VOLUME.format(path="/models", volume=f"{{name: model-files, {image}}}")
