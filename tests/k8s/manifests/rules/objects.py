"""Objects as such: their shape, names and labels."""

import json
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import jsonschema
from jsonschema.exceptions import best_match
from jsonschema.protocols import Validator
from kubernetes_validate.utils import schema_contents
from referencing import Registry, Resource

from tests.k8s.manifests.rules.registry import rule
from tests.k8s.manifests.view import OTHER_POOLS, Rendered, title, walk

KUBERNETES = "1.37"
SCHEMAS = Path(__file__).resolve().parents[2] / "schemas"
"""A file per kind that is not Kubernetes' own: Kind.json, with the fields that are used here."""
OWN = frozenset(path.stem for path in SCHEMAS.glob("*.json"))
_STRICT = f"kubernetes-json-schema/v{KUBERNETES}.0-local-strict"
CLUSTER_SCOPED = {"Namespace", "PriorityClass"}
_LABEL = re.compile(r"^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$")
_SUBDOMAIN = re.compile(r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$")
_NAME = re.compile(r"^([A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?)?$")
_LABEL_MAPS = ("labels", "matchLabels", "selector", "nodeSelector")
_STRICT_NAMES = {"Service", "Namespace"}


@rule
def schema_knows_it(rendered: Rendered) -> Iterator[str]:
    for one in rendered.objects:
        if problem := _problem(json.dumps(one, sort_keys=True)):
            yield f"{title(one)}: {problem}"


@cache
def _problem(text: str) -> str:
    """Return what the schema of an object's kind says against it; kinds without one are refused."""
    one = json.loads(text)
    kind, version = one["kind"], one["apiVersion"]
    try:
        validator = _own_validator(kind) if kind in OWN else _validator(kind, version)
    except FileNotFoundError:
        return f"nobody knows {kind} of {version}"
    error = best_match(validator.iter_errors(one))
    return f"{'.'.join(map(str, error.path))}: {error.message}" if error else ""


@cache
def _own_validator(kind: str) -> Validator:
    schema = json.loads((SCHEMAS / f"{kind}.json").read_text())
    checked = jsonschema.validators.validator_for(schema)
    checked.check_schema(schema)
    validator: Validator = checked(schema)
    return validator


@cache
def _validator(kind: str, version: str) -> Validator:
    """As `kubernetes_validate.validate` makes one, strictly, for every object anew.

    Raises:
        FileNotFoundError: Kubernetes has no such kind in this version of its API.
    """
    group = re.sub(r"^([^./]*)(?:\.[^/]*)?/", r"\1-", version)
    schema = schema_contents(f"{_STRICT}/{kind.lower()}-{group}.json", KUBERNETES)
    resource: Resource[Any] = Resource.from_contents(schema)
    return jsonschema.Draft202012Validator(schema, registry=resource @ _definitions())


@cache
def _definitions() -> Registry[Any]:
    definitions: Resource[Any] = Resource.from_contents(
        schema_contents(f"{_STRICT}/_definitions.json", KUBERNETES)
    )
    return definitions @ Registry()


@rule
def names_are_allowed(rendered: Rendered) -> Iterator[str]:
    for one in rendered.objects:
        name = one["metadata"].get("name", "")
        pattern = _LABEL if one["kind"] in _STRICT_NAMES else _SUBDOMAIN
        if not pattern.match(name) or len(name) > 253:
            yield f"{title(one)} may not be called so"
    for container in rendered.containers:
        if not _LABEL.match(container.spec.get("name", "")):
            yield f"{container.name}: a container may not be called so"
    for service in rendered.of("Service"):
        for port in service["spec"].get("ports", []):
            if not _LABEL.match(port.get("name", "x")):
                yield f"{title(service)}: a port may not be called so"
    for pod in rendered.pods:
        # What controllers add to it is in the names and labels of pods.
        if len(pod.name) > 63 - len("-0123456789-01234"):
            yield f"{pod.name} leaves no room for its pods' names"
        for name in pod.volumes:
            if not _LABEL.match(name):
                yield f"{pod.name}: a volume may not be called {name!r}"


@rule
def nothing_is_there_twice(rendered: Rendered) -> Iterator[str]:
    seen: set[tuple[str, str]] = set()
    for one in rendered.objects:
        key = (one["kind"], one["metadata"].get("name", ""))
        if key in seen:
            yield f"{title(one)} is there twice"
        seen.add(key)
    for pod in rendered.pods:
        names = [container.spec.get("name") for container in pod.containers]
        if len(names) != len(set(names)):
            yield f"{pod.name} has containers of one name"
        volumes = [volume.get("name") for volume in pod.spec.get("volumes", [])]
        if len(volumes) != len(set(volumes)):
            yield f"{pod.name} has volumes of one name"


@rule
def labels_are_allowed(rendered: Rendered) -> Iterator[str]:
    for one in rendered.objects:
        for path, value in walk(one):
            if not isinstance(value, dict) or path[-1:] == ():
                continue
            if path[-1] in _LABEL_MAPS and not {"matchLabels", "matchExpressions"} & set(value):
                for key, text in value.items():
                    if not _label_key(key) or not _NAME.match(str(text)):
                        yield f"{title(one)}: {key}: {text} is no label"
            if path[-1] == "annotations":
                for key in value:
                    if not _label_key(key):
                        yield f"{title(one)}: {key} is no annotation"


def _label_key(key: str) -> bool:
    prefix, slash, name = key.rpartition("/")
    named = bool(name) and bool(_NAME.match(name))
    return named and (not slash or (bool(_SUBDOMAIN.match(prefix)) and len(prefix) <= 253))


@rule
def all_is_in_the_namespace(rendered: Rendered) -> Iterator[str]:
    names = [one["metadata"]["name"] for one in rendered.of("Namespace")]
    if len(names) != 1:
        yield f"there are {len(names)} namespaces"
    for one in rendered.objects:
        namespace = one["metadata"].get("namespace")
        if namespace != (None if one["kind"] in CLUSTER_SCOPED else names[0]):
            yield f"{title(one)} is in namespace {namespace}"


@rule
def labels_say_whose_it_is(rendered: Rendered) -> Iterator[str]:
    for pod in rendered.pods:
        # Policies and monitors choose by these.
        whole, name = "baton", pod.name
        if pod.workload["kind"] == "Job":
            # Not of the cluster, so that its policies let a Job reach nothing inside.
            whole = "baton-models"
        if (model := pod.labels.get("baton.dev/model", "default")) != "default":
            name = pod.name.removesuffix(f"-{model}")
            name = next((label for label, role in OTHER_POOLS.items() if role == name), name)
        for key, value in (("part-of", whole), ("name", name)):
            if pod.labels.get(f"app.kubernetes.io/{key}") != value:
                yield f"the pods of {pod.name} are not labelled {key}: {value}"
