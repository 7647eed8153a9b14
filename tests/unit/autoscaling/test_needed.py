"""The largest number that routers published within 30 s."""

from baton.autoscaling.needed import NeededReplicas

TEXT = """\
# HELP baton_needed_replicas Replicas.
# TYPE baton_needed_replicas gauge
baton_needed_replicas{role="decode",model="org/m"} %d.0
baton_needed_replicas{role="prefill",model="org/m"} 7.0
# TYPE baton_needed_replicas_reason gauge
baton_needed_replicas_reason{role="decode",model="org/m",reason="kv"} 1.0
up 1
"""


def test_the_largest_of_all_routers_counts_for_30_seconds() -> None:
    needed = NeededReplicas()
    assert needed.needed("decode", "org/m", 0.0) is None
    needed.take("r0", TEXT % 3, 100.0)
    needed.take("r1", TEXT % 2, 120.0)
    assert needed.needed("decode", "org/m", 120.0) == 3
    assert needed.needed("prefill", "org/m", 120.0) == 7
    assert needed.needed("decode", "other", 120.0) is None
    needed.take("r0", "", 121.0)
    assert needed.needed("decode", "org/m", 129.0) == 3, "a router that hangs for a moment"
    assert needed.needed("decode", "org/m", 131.0) == 2
    assert needed.needed("decode", "org/m", 151.0) is None


def test_zero_is_a_number() -> None:
    needed = NeededReplicas()
    needed.take("r0", TEXT % 0, 0.0)
    assert needed.needed("decode", "org/m", 1.0) == 0
