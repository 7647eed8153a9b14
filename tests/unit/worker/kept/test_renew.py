"""What etcd keeps of models without workers: renewed, and dropped, by the lease in its record."""

import pytest

from baton.cluster import keys
from baton.internal.v1.cluster_pb2 import KeptModel, ModelCard
from baton.worker.kept.renew import renew_kept


class LeaseEtcd:
    """One kept model."""

    def __init__(self) -> None:
        record = KeptModel(cards=[ModelCard(name="m")], lease=77)
        self.values = {"/baton/c/kept/m": keys.encode(record), "/baton/c/kept/bad": b"{"}
        self.renewed: list[int] = []

    async def get(self, key: str) -> bytes | None:
        return self.values.get(key)

    async def keep_alive(self, lease: int) -> int:
        self.renewed.append(lease)
        return 60


async def test_the_lease_in_the_record_is_renewed() -> None:
    etcd = LeaseEtcd()
    await renew_kept(etcd, "c", "m")  # type: ignore[arg-type]
    await renew_kept(etcd, "c", "unknown")  # type: ignore[arg-type]
    assert etcd.renewed == [77]
    with pytest.raises(ValueError, match="not a KeptModel"):
        await renew_kept(etcd, "c", "bad")  # type: ignore[arg-type]
