"""The secret that separates tenants' KV."""

import asyncio

import pytest

from baton.cluster import keys
from baton.cluster.etcd import Etcd, EtcdError
from baton.cluster.tenants import SALT_BYTES, tenant_salt


async def test_everybody_gets_the_same_salt_of_a_tenant(etcd, cluster):
    clients = [Etcd(etcd.endpoints) for _ in range(4)]
    salts = await asyncio.gather(
        *(tenant_salt(c, cluster, "default") for c in clients for _ in "ab")
    )
    other = await tenant_salt(clients[0], cluster, "other")
    for client in clients:
        await client.__aexit__(None, None, None)
    assert len(set(salts)) == 1
    assert len(salts[0]) == SALT_BYTES
    assert other != salts[0]


async def test_salt_once_known_is_known_while_etcd_is_away(own_etcd):
    async with Etcd(own_etcd.endpoints, timeout=1.0) as client:
        salt = await tenant_salt(client, "c", "default")
        await own_etcd.kill()
        assert await tenant_salt(client, "c", "default") == salt
        with pytest.raises(EtcdError):
            await tenant_salt(client, "c", "other")


@pytest.mark.parametrize("stored", [b"{", b"{}", b'{"cache_salt": "AAAA"}'])
async def test_policy_without_a_salt_is_refused(etcd_client, cluster, stored):
    await etcd_client.put(keys.tenant(cluster, "default"), stored)
    with pytest.raises(ValueError, match=r"TenantPolicy|has no salt"):
        await tenant_salt(etcd_client, cluster, "default")
