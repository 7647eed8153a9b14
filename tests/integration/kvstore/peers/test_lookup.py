"""Lookups that reach other stores, and cuts whose objects lie in several."""

import socket
from pathlib import Path

import pytest

from baton.errors import BatonError
from baton.host.ports import held_port
from baton.internal.v1 import kvstore_pb2 as pb
from baton.kv.client.client import KvStoreClient
from baton.kv.cuts import CutRules
from baton.kv.layout import GroupKind, KvGroup
from baton.worker.kv.cut_choice import CutChoice, choose_cut
from services.kvstore.api.admin import stat
from services.kvstore.peers import connection
from tests.support.stores import LAYOUT, connected, keys_of, put, running_store

SIZE = 4096
BLOCK_TOKENS = 16
RULES = CutRules((KvGroup(GroupKind.FULL, SIZE), KvGroup(GroupKind.WINDOW, SIZE, 33)), BLOCK_TOKENS)


async def put_group(client: KvStoreClient, keys: list[bytes], group: int) -> None:
    reservation = await client.reserve(keys, LAYOUT, SIZE, group=group)
    try:
        for index in reservation.slots:
            reservation.write(index, memoryview(bytes(SIZE)))
        assert await reservation.commit(sorted(reservation.slots)) == len(keys)
    finally:
        await reservation.aclose()


async def test_sources_are_asked_for_what_the_store_lacks(tmp_path: Path) -> None:
    for name in "abc":
        (tmp_path / name).mkdir()
    async with (
        running_store(tmp_path / "a", store_id="a") as a,
        running_store(tmp_path / "b", store_id="b") as b,
        running_store(tmp_path / "c", store_id="c") as c,
        connected(a.address, "shm") as at_a,
        connected(b.address, "shm") as at_b,
        connected(c.address, "shm") as at_c,
    ):
        keys = keys_of(6)
        await put(at_a, keys[:2], SIZE)
        await put(at_b, keys[1:3], SIZE)
        await put(at_c, keys[4:5], SIZE)
        everywhere = [a.source, b.source, c.source]
        assert await at_a.lookup(keys, LAYOUT) == [True, True, *4 * [False]]
        held = [True, True, True, False, True, False]
        assert await at_a.lookup(keys, LAYOUT, sources=everywhere) == held
        held[4] = False
        assert await at_a.lookup(keys, LAYOUT, sources=[b.source]) == held
        assert await at_a.lookup(keys, LAYOUT, 1, everywhere) == 6 * [False]  # another group
        assert stat(a.store).objects == 2  # nothing was fetched


async def test_a_source_that_cannot_be_asked_holds_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connection, "LOOKUP_SECONDS", 0.2)
    for name in "ab":
        (tmp_path / name).mkdir()
    with socket.create_server(("127.0.0.1", 0)) as silent, held_port() as gone:
        async with (
            running_store(tmp_path / "a", store_id="a") as a,
            running_store(tmp_path / "b", store_id="b") as b,
            connected(a.address, "shm") as at_a,
            connected(b.address, "shm") as at_b,
        ):
            keys = keys_of(3)
            await put(at_b, keys[1:], SIZE)
            sources = [
                pb.KvSource(store_id="silent", address=f"127.0.0.1:{silent.getsockname()[1]}"),
                pb.KvSource(store_id="gone", address=f"127.0.0.1:{gone}"),
            ]
            assert await at_a.lookup(keys, LAYOUT, sources=sources) == 3 * [False]
            monkeypatch.setattr(connection, "LOOKUP_SECONDS", 30)
            both = [sources[1], b.source]
            assert await at_a.lookup(keys, LAYOUT, sources=both) == [False, True, True]
            with pytest.raises(BatonError, match="must be at most 16"):
                await at_a.lookup(keys, LAYOUT, sources=17 * [b.source])


async def test_a_cut_may_lie_in_several_stores(tmp_path: Path) -> None:
    for name in "ab":
        (tmp_path / name).mkdir()
    async with (
        running_store(tmp_path / "a", store_id="a") as a,
        running_store(tmp_path / "b", store_id="b") as b,
        connected(a.address, "shm") as at_a,
        connected(b.address, "shm") as at_b,
    ):
        keys, limit = keys_of(9), 9 * BLOCK_TOKENS - 1
        await put_group(at_a, keys[:3], 0)
        await put_group(at_b, keys[3:], 0)
        await put_group(at_b, keys[4:7], 1)  # a window of 33 tokens: two blocks of 16 before a cut
        choices = {
            name: await choose_cut(at_a, LAYOUT, RULES, keys, limit, sources)
            for name, sources in {"alone": [], "both": [b.source]}.items()
        }
        assert choices == {
            "alone": CutChoice(0, 3 * BLOCK_TOKENS),
            "both": CutChoice(7 * BLOCK_TOKENS, 9 * BLOCK_TOKENS),
        }
        await put_group(at_a, keys[7:], 1)
        both = await choose_cut(at_a, LAYOUT, RULES, keys, limit, [b.source])
        assert both.cut_tokens == limit
