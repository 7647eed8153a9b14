"""The secret that separates tenants' KV."""

import asyncio
import re

import pytest

from baton.cluster import keys
from baton.cluster.etcd import Etcd, EtcdError
from baton.cluster.tenants import SALT_BYTES, CacheSalts
from baton.errors import BatonError, Reason


async def test_everybody_gets_the_same_salt_of_a_tenant(etcd, cluster):
    clients = [Etcd(etcd.endpoints) for _ in range(4)]
    salts = await asyncio.gather(
        *(CacheSalts(c, cluster).get("default") for c in clients for _ in "ab")
    )
    other = await CacheSalts(clients[0], cluster).get("other")
    for client in clients:
        await client.__aexit__(None, None, None)
    assert len(set(salts)) == 1
    assert len(salts[0]) == SALT_BYTES
    assert other != salts[0]


async def test_salt_once_known_is_known_while_etcd_is_away(own_etcd):
    async with Etcd(own_etcd.endpoints, timeout=1.0) as client:
        salts = CacheSalts(client, "c")
        salt = await salts.get("default")
        await own_etcd.kill()
        assert await salts.get("default") == salt
        with pytest.raises(BatonError) as caught:
            await salts.get("other")
        assert (caught.value.reason, caught.value.retry_after) == (Reason.UNAVAILABLE, 1.0)
        assert isinstance(caught.value.__cause__, EtcdError)


@pytest.mark.parametrize("stored", [b"{", b"{}", b'{"cache_salt": "AAAA"}'])
async def test_policy_without_a_salt_is_refused(etcd_client, cluster, stored):
    await etcd_client.put(keys.tenant(cluster, "default"), stored)
    with pytest.raises(BatonError) as caught:
        await CacheSalts(etcd_client, cluster).get("default")
    assert caught.value.reason is Reason.UNAVAILABLE
    assert re.search(r"TenantPolicy|has no salt", str(caught.value.__cause__))
