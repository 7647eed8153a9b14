"""Environment variables as kubelet makes them."""

import pytest

from tests.k8s.manifests.quantity import quantity, whole
from tests.k8s.pods.objects.environment import (
    ConfigError,
    Data,
    PodFacts,
    environment,
    expand,
    service_variables,
)

FACTS = PodFacts(
    name="decode-1",
    namespace="baton",
    uid="u1",
    ip="10.1.0.7",
    node="node-b",
    host_ip="10.1.0.1",
    labels={"app.kubernetes.io/name": "decode"},
)
DATA = Data({"settings": {"LOG": "json", "PORT": "1"}}, {"keys": {"token": "s3"}})


def field(path):
    return {"valueFrom": {"fieldRef": {"fieldPath": path}}}


def test_values_refer_to_what_stands_before_them():
    env = [
        {"name": "POD_NAME", **field("metadata.name")},
        {"name": "ID", "value": "$(POD_NAME)-kv"},
        {"name": "EARLY", "value": "$(LATE)"},
        {"name": "LATE", "value": "x"},
        {"name": "ESCAPED", "value": "$$(POD_NAME) $$"},
    ]
    found = environment({"env": env}, FACTS, DATA)
    assert found["ID"] == "decode-1-kv"
    assert found["EARLY"] == "$(LATE)"
    assert found["ESCAPED"] == "$(POD_NAME) $"


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("status.podIP", "10.1.0.7"),
        ("status.hostIP", "10.1.0.1"),
        ("spec.nodeName", "node-b"),
        ("metadata.namespace", "baton"),
        ("metadata.labels['app.kubernetes.io/name']", "decode"),
        ("metadata.annotations['none']", ""),
        ("metadata.labels", 'app.kubernetes.io/name="decode"'),
    ],
)
def test_fields_of_the_pod(path, value):
    assert environment({"env": [{"name": "V", **field(path)}]}, FACTS, DATA) == {"V": value}


def test_env_wins_over_env_from_and_that_over_service_links():
    container = {
        "envFrom": [{"configMapRef": {"name": "settings"}}, {"secretRef": {"name": "keys"}}],
        "env": [{"name": "PORT", "value": "$(PORT)2"}],
    }
    found = environment(container, FACTS, DATA, {"LOG": "of a Service", "OTHER": "y"})
    assert found == {"LOG": "json", "PORT": "12", "token": "s3", "OTHER": "y"}


def test_prefixes_and_keys():
    key = {"secretKeyRef": {"name": "keys", "key": "token"}}
    none = {"configMapKeyRef": {"name": "none", "key": "k", "optional": True}}
    container = {
        "envFrom": [{"prefix": "P_", "configMapRef": {"name": "settings"}}],
        "env": [{"name": "TOKEN", "valueFrom": key}, {"name": "NONE", "valueFrom": none}],
    }
    found = environment(container, FACTS, DATA)
    assert found == {"P_LOG": "json", "P_PORT": "1", "TOKEN": "s3"}


def test_resources_in_the_divisors_unit():
    container = {"resources": {"limits": {"memory": "1Gi", "cpu": "1500m"}}}
    for resource, divisor, value in (
        ("limits.memory", "1Mi", "1024"),
        ("limits.memory", "", None),
        ("limits.cpu", "1", "2"),
    ):
        reference = {"resource": resource}
        if value is not None:
            reference["divisor"] = divisor
        env = [{"name": "V", "valueFrom": {"resourceFieldRef": reference}}]
        assert environment({**container, "env": env}, FACTS, DATA)["V"] == (value or str(2**30))


@pytest.mark.parametrize(
    ("container", "message"),
    [
        ({"envFrom": [{"configMapRef": {"name": "none"}}]}, 'ConfigMap "none" not found'),
        ({"env": [{"name": "V", **field("status.phase")}]}, "no field status.phase"),
        (
            {"env": [{"name": "V", "valueFrom": {"secretKeyRef": {"name": "keys", "key": "k"}}}]},
            'no key k in Secret "keys"',
        ),
        (
            {"env": [{"name": "V", "valueFrom": {"resourceFieldRef": {"resource": "limits.cpu"}}}]},
            "no limits.cpu",
        ),
    ],
)
def test_what_is_not_there_is_an_error(container, message):
    with pytest.raises(ConfigError, match=message):
        environment(container, FACTS, DATA)


def test_a_service_named_as_the_settings_begin_looks_like_one_of_them():
    ports = [{"name": "client", "port": 2379}, {"port": 2380}]
    etcd = {"metadata": {"name": "baton-etcd"}, "spec": {"clusterIP": "10.2.0.5", "ports": ports}}
    found = service_variables([etcd])
    assert found["BATON_ETCD_SERVICE_HOST"] == "10.2.0.5"
    assert found["BATON_ETCD_SERVICE_PORT_CLIENT"] == "2379"
    assert found["BATON_ETCD_PORT"] == "tcp://10.2.0.5:2379"
    assert found["BATON_ETCD_PORT_2380_TCP_ADDR"] == "10.2.0.5"


def test_what_is_unknown_stays():
    assert expand("$(NONE) $(A)$(A) $A", {"A": "1"}) == "$(NONE) 11 $A"


@pytest.mark.parametrize(
    ("text", "value"), [("250m", 0.25), ("1Gi", 2**30), ("1.5k", 1500), (2, 2), ("100u", 1e-4)]
)
def test_quantities(text, value):
    assert float(quantity(text)) == value


@pytest.mark.parametrize("text", ["", "1Gib", "one", "-1", "1 Gi"])
def test_no_quantities(text):
    with pytest.raises(ValueError, match="is no quantity"):
        quantity(text)


def test_units_are_rounded_up():
    assert whole("1001m") == 2
    assert whole("1025Mi", "1Gi") == 2
