"""A tenant's quota follows its record: what it holds beyond it is evicted within a second."""

from pathlib import Path
from typing import Any

from baton.cluster import keys
from baton.cluster.etcd.client import Etcd
from baton.internal.v1 import kvstore_pb2
from baton.internal.v1.kvstore_pb2_grpc import KvStoreServiceStub
from baton.rpc.channels import open_channel
from baton.tenancy.admin.tenants import Administration
from baton.tenancy.records.tenants import Tier
from tests.integration.kvstore.disk.objects import SIZE
from tests.support.clock import within
from tests.support.services.service import LocalServices
from tests.support.stores import LAYOUT, block, connected, keys_of
from tests.support.wait import eventually

MIB = 1 << 20


async def put(client: Any, first: int, count: int, tenant: str, content: int = 0) -> int:
    """Write objects, the bytes of blocks from `content` on; return how many the store took."""
    wanted = keys_of(first + count, tenant)[first:]
    reservation = await client.reserve(wanted, LAYOUT, SIZE, tenant=tenant)
    try:
        for index, view in reservation.slots.items():
            view[:] = block(content + index, SIZE)
        taken: int = await reservation.commit(sorted(reservation.slots))
    finally:
        await reservation.aclose()
    return taken


async def test_quotas_follow_the_records(
    etcd_client: Etcd, cluster: str, start_service: LocalServices, tmp_path: Path
) -> None:
    settings = {
        "store.arena_bytes": 16 * MIB,
        "store.disk_bytes": 16 * MIB,
        "store.disk_path": tmp_path / "disk",
        "store.tenant_bytes": {"big": 8 * MIB},
    }
    service = await start_service("kvstore", settings)
    admin = Administration(etcd_client, cluster)
    await admin.create_tenant("big", Tier.PRO)
    await admin.create_tenant("other", Tier.PRO)
    async with connected(service.address, "shm") as client:
        stub: Any = KvStoreServiceStub(channel := open_channel(service.address))

        async def held(tenant: str) -> list[int]:
            """Bytes of a tenant in each tier that has any."""
            stat = await stub.Stat(kvstore_pb2.StatRequest())
            return [one.used_bytes for one in stat.tenants if one.tenant == tenant]

        async def within_quota(most: int) -> bool:
            tiers = await held("big")
            return bool(tiers) and max(tiers) <= most

        try:
            assert await put(client, 0, 32, "other") == 32
            for first in range(0, 96, 32):
                await put(client, first, 32, "big")
            await eventually(lambda: within_quota(6 * MIB))
            assert max(await held("big")) > 2 * MIB
            before = await held("other")
            await admin.update_tenant("big", kv_bytes=MIB)
            async with within(1):
                await eventually(lambda: within_quota(MIB))
            assert await held("other") == before
            await put(client, 96, 32, "big")
            assert await within_quota(MIB)
            # No quota of its own any more: the store's setting holds.
            await admin.update_tenant("big", kv_bytes=0)

            async def more() -> bool:
                await put(client, 200, 32, "big")
                return max(await held("big")) >= 2 * MIB

            await eventually(more)
            # An unreadable record changes nothing.
            await etcd_client.put(f"{keys.tenants(cluster)}big", b'{"kv_bytes": 5}')
            await eventually(lambda: within_quota(8 * MIB))
        finally:
            await channel.close(None)
