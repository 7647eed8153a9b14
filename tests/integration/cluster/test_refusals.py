"""Refusals are shared by all frontends, outlive them, and are taken back by deleting them."""

import asyncio
from contextlib import AsyncExitStack
from typing import Any

from baton.cluster import keys
from baton.cluster.etcd.client import Etcd
from baton.cluster.refusals import SharedRefusals
from tests.support.network.proxy import TcpProxy
from tests.support.wait import eventually

A, B = b"A" * 16, b"B" * 16


class Side:
    """What one process refuses."""

    def __init__(self, etcd: Etcd, cluster: str) -> None:
        self.refused: set[bytes] = set()
        self.shared = SharedRefusals(etcd, cluster, 60, self.refused.add, self.refused.discard)


async def test_they_are_told_kept_and_lifted(etcd_client: Any, cluster: str) -> None:
    async with AsyncExitStack() as stack:
        first, second = Side(etcd_client, cluster), Side(etcd_client, cluster)
        async with first.shared:
            await stack.enter_async_context(second.shared)
            first.shared.add(A)
            first.shared.add(B)
            await eventually(lambda: second.refused == first.refused == {A, B})
        third = Side(etcd_client, cluster)
        await stack.enter_async_context(third.shared)
        await eventually(lambda: third.refused == {A, B})
        await etcd_client.put(keys.refused(cluster) + "no digest", b"")
        (key, _), *_ = (await etcd_client.list(keys.refused(cluster) + A.hex()))[0]
        lease = await etcd_client.grant(2)
        await etcd_client.put(key, b"", lease)
        await etcd_client.revoke(lease)
        await eventually(lambda: second.refused == third.refused == {B})


async def test_what_is_added_while_etcd_is_away_is_told_afterwards(
    etcd_client: Any, cluster: str
) -> None:
    async with TcpProxy(etcd_client.endpoints[0]) as proxy:
        await proxy.cut()
        async with Etcd((proxy.address,), 1.0) as away:
            near, far = Side(away, cluster), Side(etcd_client, cluster)
            async with near.shared, far.shared:
                near.shared.add(A)
                await asyncio.sleep(0.1)
                assert not far.refused
                await proxy.mend()
                await eventually(lambda: near.refused == far.refused == {A})
