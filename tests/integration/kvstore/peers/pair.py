"""Two stores that share no memory, and a client of each."""

from dataclasses import dataclass
from typing import Any

from baton.internal.v1 import kvstore_pb2 as pb
from baton.internal.v1.kvstore_pb2_grpc import KvStoreServiceStub
from baton.kv.client.client import KvStoreClient
from baton.rpc.channels import open_channel
from baton.transports import PEER_TRANSPORTS
from tests.support.stores import (
    LAYOUT,
    RunningStore,
)

SIZE = 64 * 1024


@dataclass
class Pair:
    """Two stores that share no memory, and a client of each."""

    a: RunningStore
    b: RunningStore
    at_a: KvStoreClient
    at_b: KvStoreClient
    transport: str

    def assert_moved(self, size: int) -> None:
        """So much came to B, all of it by the transport that is under test."""
        moved = self.b.store.moved_bytes
        came = {by: moved["peer", by] for by in PEER_TRANSPORTS if moved["peer", by]}
        assert came == ({self.transport: size} if size else {})
        assert not any(self.b.store.peer_failures.values())


async def prefetch(
    pair: Pair,
    keys: list[bytes],
    sources: list[pb.KvSource],
    others: dict[str, Any] | None = None,
    timeout: float = 6,
) -> pb.PrefetchResponse:
    fields = {"layout_id": LAYOUT, "keys": b"".join(keys), "sources": sources} | (others or {})
    channel = open_channel(pair.b.address)
    try:
        stub = KvStoreServiceStub(channel)
        return await stub.Prefetch(pb.PrefetchRequest(**fields), timeout=timeout)
    finally:
        await channel.close(None)
