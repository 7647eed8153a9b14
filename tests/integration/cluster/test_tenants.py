"""The secret that separates tenants' KV."""

import asyncio
import re
import shutil

import pytest

from baton.cluster import keys
from baton.cluster.etcd.client import Etcd, EtcdError
from baton.cluster.tenants import SALT_BYTES, CacheSalts
from baton.errors import BatonError, Reason
from baton.internal.v1.cluster_pb2 import TenantPolicy
from tests.support.wait import eventually


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


async def test_salts_outlive_the_data_of_etcd(own_etcd, tmp_path):
    recovered = asyncio.Event()
    async with Etcd(own_etcd.endpoints, timeout=1.0) as client:
        early = CacheSalts(client, "c")
        salts = {tenant: await early.get(tenant) for tenant in ("default", "other")}
        await own_etcd.kill()
        recovered.set()  # it is not back yet: that is tried again
        async with asyncio.TaskGroup() as group:
            keeping = group.create_task(early.keep(recovered))
            shutil.rmtree(tmp_path / "etcd")
            (tmp_path / "etcd").mkdir()
            await own_etcd.start()
            async with Etcd(own_etcd.endpoints) as other:  # the client's still backs off
                await eventually(lambda: stored_salt(other, "other"))
            assert await stored_salt(client, "default") == salts["default"]
            assert await CacheSalts(client, "c").get("other") == salts["other"]
            # Who was there before and draws another one first is followed.
            await client.put(
                keys.tenant("c", "default"), keys.encode(TenantPolicy(cache_salt=b"n" * SALT_BYTES))
            )
            recovered.set()

            async def followed() -> bool:
                return await early.get("default") == b"n" * SALT_BYTES

            await eventually(followed)
            keeping.cancel()


async def stored_salt(client: Etcd, tenant: str) -> bytes | None:
    stored = await client.get(keys.tenant("c", tenant))
    return None if stored is None else keys.decode(TenantPolicy, stored).cache_salt


@pytest.mark.parametrize("stored", [b"{", b"{}", b'{"cache_salt": "AAAA"}'])
async def test_policy_without_a_salt_is_refused(etcd_client, cluster, stored):
    await etcd_client.put(keys.tenant(cluster, "default"), stored)
    with pytest.raises(BatonError) as caught:
        await CacheSalts(etcd_client, cluster).get("default")
    assert caught.value.reason is Reason.UNAVAILABLE
    assert re.search(r"TenantPolicy|has no salt", str(caught.value.__cause__))
