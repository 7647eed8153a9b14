"""Stores evict the KV of a deleted tenant from memory and disk, and overwrite it there."""

import time
from pathlib import Path
from typing import Any

from baton.cluster.etcd.client import Etcd
from baton.cluster.forgotten import ForgottenTenant, mark_forgotten
from baton.internal.v1 import kvstore_pb2
from baton.internal.v1.kvstore_pb2_grpc import KvStoreServiceStub
from baton.rpc.channels import open_channel
from tests.integration.kvstore.disk.objects import SIZE
from tests.integration.kvstore.test_tenant_quotas import MIB, put
from tests.support.services.service import LocalServices
from tests.support.stores import block, connected
from tests.support.wait import eventually

GONE, STAYS = "marker-of-acme-4711", "marker-of-other-0815"
COUNT = 24
"""Blocks of each tenant: more than the memory has space for."""


def found(disk: Path, tenant: str, first: int) -> set[object]:
    """Return what the disk tier's file has of a tenant: its id, and the numbers of its blocks."""
    data = disk.read_bytes()
    blocks = {n for n in range(first, first + COUNT) if block(n, SIZE)[:512] in data}
    return blocks | ({tenant} if tenant.encode() in data else set())


async def test_nothing_of_a_deleted_tenant_stays(
    etcd_client: Etcd, cluster: str, start_service: LocalServices, tmp_path: Path
) -> None:
    disk = tmp_path / "disk"
    settings = {
        "store.arena_bytes": 2 * MIB,
        "store.disk_bytes": 16 * MIB,
        "store.disk_path": disk,
    }
    service = await start_service("kvstore", settings)
    async with connected(service.address, "shm") as client:
        stub: Any = KvStoreServiceStub(channel := open_channel(service.address))

        async def tiers(tenant: str) -> list[int]:
            stat = await stub.Stat(kvstore_pb2.StatRequest())
            return [one.tier for one in stat.tenants if one.tenant == tenant and one.used_bytes]

        async def nothing() -> bool:
            return not await tiers(GONE) and not found(disk, GONE, 1000)

        async def on_disk() -> bool:
            """Write all blocks again that the disk was too slow for; return whether it has some."""
            for at in range(0, COUNT, 4):
                for tenant, first in ((GONE, 1000), (STAYS, 2000)):
                    await put(client, first + at, 4, tenant, first + at)
            return len(found(disk, GONE, 1000)) > 1 and len(found(disk, STAYS, 2000)) > 1

        try:
            await eventually(on_disk)
            assert len(await tiers(GONE)) == 2
            kept = found(disk, STAYS, 2000)
            mark = ForgottenTenant(int(time.time() * 1000), usage=True)
            await mark_forgotten(etcd_client, cluster, GONE, mark)
            await eventually(nothing)
            assert kept <= found(disk, STAYS, 2000)
        finally:
            await channel.close(None)
