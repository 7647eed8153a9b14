"""The environment variables of a container."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from tests.k8s.manifests.quantity import whole

_REFERENCE = re.compile(r"\$(?:\$|\(([^()$]+)\))")
_BY_KEY = re.compile(r"metadata\.(labels|annotations)\['([^']+)'\]")


class ConfigError(Exception):
    """A container cannot be made as its pod says."""


@dataclass(frozen=True)
class PodFacts:
    """What a pod's fields can be asked for, when its containers start."""

    name: str
    namespace: str
    uid: str
    ip: str
    node: str
    host_ip: str
    labels: Mapping[str, str] = field(default_factory=dict)
    annotations: Mapping[str, str] = field(default_factory=dict)
    service_account: str = "default"

    def field(self, path: str) -> str:
        """Return what a `fieldRef` or a downward API volume says.

        Raises:
            ConfigError: there is no such field.
        """
        if by_key := _BY_KEY.fullmatch(path):
            found = self.labels if by_key[1] == "labels" else self.annotations
            return found.get(by_key[2], "")
        fields = {
            "metadata.name": self.name,
            "metadata.namespace": self.namespace,
            "metadata.uid": self.uid,
            "metadata.labels": _lines(self.labels),
            "metadata.annotations": _lines(self.annotations),
            "spec.nodeName": self.node,
            "spec.serviceAccountName": self.service_account,
            "status.podIP": self.ip,
            "status.podIPs": self.ip,
            "status.hostIP": self.host_ip,
            "status.hostIPs": self.host_ip,
        }
        if path not in fields:
            raise ConfigError(f"fieldRef: a pod has no field {path}")
        return fields[path]


@dataclass(frozen=True)
class Data:
    """The ConfigMaps and Secrets of a namespace, by name: texts by key, Secrets decoded."""

    config_maps: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    secrets: Mapping[str, Mapping[str, str]] = field(default_factory=dict)

    def read(self, kind: str, reference: Mapping[str, Any]) -> Mapping[str, str]:
        """Return what `reference` names; nothing if it is optional and there is none.

        Raises:
            ConfigError: it is not optional.
        """
        held = self.config_maps if kind == "ConfigMap" else self.secrets
        name = reference.get("name") or reference.get("secretName", "")
        if name not in held and not reference.get("optional"):
            raise ConfigError(f'{kind} "{name}" not found')
        return held.get(name, {})


def environment(
    container: Mapping[str, Any],
    facts: PodFacts,
    data: Data,
    service_links: Mapping[str, str] = {},
) -> dict[str, str]:
    """Return the variables of a container, as kubelet makes them.

    Those of Services come first, then `envFrom`, then `env`: the later one wins. A value of `env`
    may refer to what stands before it.

    Raises:
        ConfigError: something that it refers to is not there.
    """
    found = dict(service_links)
    for source in container.get("envFrom", ()):
        prefix = source.get("prefix", "")
        for key, kind in (("configMapRef", "ConfigMap"), ("secretRef", "Secret")):
            if key in source:
                values = data.read(kind, source[key])
                found.update({prefix + name: value for name, value in values.items()})
    for variable in container.get("env", ()):
        if "valueFrom" in variable:
            value = _value_from(variable["valueFrom"], container, facts, data)
        else:
            value = expand(variable.get("value", ""), found)
        if value is not None:
            found[variable["name"]] = value
    return found


def expand(text: str, known: Mapping[str, str]) -> str:
    """Replace `$(NAME)`; what is unknown stays as it is, and `$$` is a dollar."""

    def value(match: re.Match[str]) -> str:
        return "$" if match[1] is None else known.get(match[1], match[0])

    return _REFERENCE.sub(value, text)


def service_variables(services: Sequence[Mapping[str, Any]]) -> dict[str, str]:
    """Return the variables that pods get of each Service with an address of its own.

    Args:
        services: with `clusterIP` and every port's `port`.
    """
    found: dict[str, str] = {}
    for service in services:
        spec = service["spec"]
        address = spec["clusterIP"]
        name = _variable(service["metadata"]["name"])
        ports = spec["ports"]
        url = f"tcp://{address}:{ports[0]['port']}"
        found |= {f"{name}_SERVICE_HOST": address, f"{name}_PORT": url}
        found[f"{name}_SERVICE_PORT"] = str(ports[0]["port"])
        for port in ports:
            if port.get("name"):
                found[f"{name}_SERVICE_PORT_{_variable(port['name'])}"] = str(port["port"])
            of_port = f"{name}_PORT_{port['port']}_TCP"
            found[of_port] = f"tcp://{address}:{port['port']}"
            found[f"{of_port}_PROTO"] = "tcp"
            found[f"{of_port}_PORT"] = str(port["port"])
            found[f"{of_port}_ADDR"] = address
    return found


def _value_from(
    source: Mapping[str, Any], container: Mapping[str, Any], facts: PodFacts, data: Data
) -> str | None:
    if "fieldRef" in source:
        return facts.field(source["fieldRef"]["fieldPath"])
    if "resourceFieldRef" in source:
        return _resource(source["resourceFieldRef"], container)
    for key, kind in (("configMapKeyRef", "ConfigMap"), ("secretKeyRef", "Secret")):
        if key in source:
            reference = source[key]
            value = data.read(kind, reference).get(reference["key"])
            if value is None and not reference.get("optional"):
                raise ConfigError(f'no key {reference["key"]} in {kind} "{reference["name"]}"')
            return value
    raise ConfigError(f"valueFrom: {', '.join(source)} is unknown")


def _resource(reference: Mapping[str, Any], container: Mapping[str, Any]) -> str:
    kind, _, resource = reference["resource"].partition(".")
    held = container.get("resources", {}).get(kind, {})
    if resource not in held:
        raise ConfigError(f"resourceFieldRef: the container has no {kind}.{resource}")
    return str(whole(held[resource], reference.get("divisor") or 1))


def _lines(texts: Mapping[str, str]) -> str:
    return "\n".join(f'{key}="{value}"' for key, value in sorted(texts.items()))


def _variable(name: str) -> str:
    return name.upper().replace("-", "_")
