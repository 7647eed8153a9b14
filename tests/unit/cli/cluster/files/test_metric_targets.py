"""The file that tells Prometheus where a cluster's metrics are."""

from baton.cli.cluster.local.files.metric_targets import target_groups
from baton.internal.v1 import cluster_pb2
from baton.internal.v1.cluster_pb2 import Instance


def test_each_instance_is_a_target_with_labels() -> None:
    instances = [
        Instance(id="router-0", role=cluster_pb2.ROLE_ROUTER, metrics_address="127.0.0.1:2"),
        Instance(
            id="decode-0", role=cluster_pb2.ROLE_DECODE, model="m", metrics_address="127.0.0.1:1"
        ),
        Instance(id="of an earlier release", role=cluster_pb2.ROLE_ROUTER),
    ]
    assert target_groups(instances, "blue") == [
        {
            "targets": ["127.0.0.1:1"],
            "labels": {"cluster": "blue", "instance": "decode-0", "role": "decode"},
        },
        {
            "targets": ["127.0.0.1:2"],
            "labels": {"cluster": "blue", "instance": "router-0", "role": "router"},
        },
    ]
