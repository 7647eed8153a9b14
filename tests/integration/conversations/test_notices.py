"""What waits at one frontend is known at all of them: until it is stored, nothing continues it."""

import asyncio
import time
from contextlib import AsyncExitStack
from functools import partial
from pathlib import Path

import pytest

from baton.cluster import keys
from baton.cluster.etcd.client import Etcd
from baton.conversations.ids import CONVERSATION, text_of
from baton.conversations.pending import notices as module
from baton.conversations.pending.notices import PendingNotices
from baton.conversations.store import ConversationStore
from baton.errors import BatonError, Reason
from baton.postgres.local.server import LocalPostgres
from tests.integration.conversations.test_away import is_open
from tests.integration.conversations.test_pending import (
    OURS,
    is_stored,
    name,
    opened,
    turn,
    with_months,
)
from tests.support.network.proxy import TcpProxy
from tests.support.wait import eventually

NEEDED, OTHER = "a" * 32, "b" * 32


async def is_read(store: ConversationStore, conversation: str, version: int) -> bool:
    try:
        found = await store.managed.get(OURS, conversation)
    except BatonError as error:
        assert error.reason is Reason.UNAVAILABLE
        return False
    assert found.version == version
    return True


async def test_a_conversation_waits_everywhere_for_the_turn_that_ended(
    own_postgres: LocalPostgres, etcd_client: Etcd, cluster: str, tmp_path: Path
) -> None:
    url = await with_months(own_postgres)
    async with AsyncExitStack() as stack:
        elsewhere = PendingNotices(etcd_client, cluster)
        there = await stack.enter_async_context(opened(url, tmp_path / "b", elsewhere))
        async with opened(url, tmp_path / "a", PendingNotices(etcd_client, cluster)) as here:
            await eventually(lambda: is_open(here))
            now = int(time.time() * 1000)
            managed = await here.managed.create(OURS, "{}", lambda _: [], 0, now)
            conversation = text_of(CONVERSATION, managed.id)
            last = turn(1, managed.end)
            await own_postgres.kill()
            await here.keep(OURS, last)
        await own_postgres.start()
        await eventually(lambda: is_open(there))
        # Where it was kept, nobody runs any more: at any place, nothing goes on without it.
        for read in (
            there.managed.get(OURS, conversation),
            there.path(OURS, name(last.id)),
            there.managed.delete(OURS, conversation),
        ):
            with pytest.raises(BatonError) as caught:
                await read
            assert caught.value.reason is Reason.UNAVAILABLE
        async with opened(url, tmp_path / "a", PendingNotices(etcd_client, cluster)):
            await eventually(partial(is_stored, there, last.id))
            await eventually(partial(is_read, there, conversation, managed.version + 1))
    assert await etcd_client.count(keys.pending(cluster)) == 0


async def test_notices_are_told_renewed_and_taken_back(
    etcd_client: Etcd, cluster: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_RENEW_SECONDS", 0.05)
    async with (
        PendingNotices(etcd_client, cluster) as one,
        PendingNotices(etcd_client, cluster) as two,
    ):
        await one.add("1", [NEEDED])
        await one.add("2", [NEEDED, OTHER])
        await eventually(lambda: two.knows(NEEDED) and two.knows(OTHER))
        assert not one.knows(NEEDED)
        async with PendingNotices(etcd_client, cluster) as three:
            await eventually(lambda: three.knows(NEEDED))
        one.remove("1", [NEEDED])
        one.remove("2", [OTHER])
        await eventually(lambda: not two.knows(OTHER))
        assert two.knows(NEEDED)
        # An etcd that lost its leases is told again.
        lease = one._lease
        await etcd_client.revoke(lease)
        await eventually(lambda: one._lease not in (0, lease))
        await eventually(lambda: two.knows(NEEDED))
        waiting = asyncio.create_task(two.wait_changed())
        one.remove("2", [NEEDED])
        await waiting
        assert not two.knows(NEEDED)


async def test_an_end_does_not_wait_for_an_etcd_that_is_away(
    etcd_client: Etcd, cluster: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "WRITE_SECONDS", 0.1)
    monkeypatch.setattr(module, "_RENEW_SECONDS", 0.1)
    async with TcpProxy(etcd_client.endpoints[0]) as proxy:
        await proxy.cut()
        async with (
            Etcd((proxy.address,), 1.0) as away,
            PendingNotices(away, cluster) as near,
            PendingNotices(etcd_client, cluster) as far,
        ):
            await near.add("1", [NEEDED])
            near.remove("2", [OTHER])
            assert not far.knows(NEEDED)
            await proxy.mend()
            await eventually(lambda: far.knows(NEEDED))
