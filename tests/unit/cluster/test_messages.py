"""The messages of etcd's API."""

import pytest
from google.protobuf import descriptor_pool

from baton.cluster.etcd import messages as etcd_messages


def test_messages_live_in_a_pool_of_their_own():
    request = etcd_messages.RangeRequest(key=b"a", range_end=b"b", limit=3)
    assert etcd_messages.RangeRequest.FromString(request.SerializeToString()) == request
    with pytest.raises(KeyError):
        descriptor_pool.Default().FindMessageTypeByName("etcdserverpb.RangeRequest")
