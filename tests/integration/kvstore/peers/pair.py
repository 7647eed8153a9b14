"""Two stores that share no memory, and a client of each."""

from dataclasses import dataclass

from baton.kv.client.client import KvStoreClient
from baton.settings.transports import PEER_TRANSPORTS
from tests.support.stores import RunningStore

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
