"""Endpoints of etcd, and the messages of its API."""

import pytest
from google.protobuf import descriptor_pool

from baton.cluster import etcd_messages
from baton.cluster.etcd import Etcd


@pytest.mark.parametrize(
    "endpoints",
    [
        ["127.0.0.1:2379"],
        ["10.0.0.1:2379", "10.0.0.2:2379", "10.0.0.3:2379"],
        ["[::1]:2379", "[::2]:2379"],
        ["etcd.baton.svc:2379"],
    ],
)
async def test_addresses_or_one_name_are_taken(endpoints):
    async with Etcd(endpoints) as etcd:
        assert etcd.endpoints == tuple(endpoints)


@pytest.mark.parametrize(
    "endpoints", [["a:1", "b:1"], ["10.0.0.1:1", "b:1"], ["1.1.1.1:1", "[::1]:1"]]
)
async def test_several_endpoints_must_be_addresses_of_one_kind(endpoints):
    with pytest.raises(ValueError, match="must all be"):
        Etcd(endpoints)


def test_messages_live_in_a_pool_of_their_own():
    request = etcd_messages.RangeRequest(key=b"a", range_end=b"b", limit=3)
    assert etcd_messages.RangeRequest.FromString(request.SerializeToString()) == request
    with pytest.raises(KeyError):
        descriptor_pool.Default().FindMessageTypeByName("etcdserverpb.RangeRequest")
