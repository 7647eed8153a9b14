"""An etcd that the test may wipe, and records in it."""

import shutil
from collections.abc import AsyncIterator, Awaitable, Callable
from functools import partial
from pathlib import Path

import pytest

from baton.backup.sealing import KeyDerivation
from baton.cluster import keys
from baton.cluster.etcd.client import Etcd
from baton.cluster.etcd.local import LocalEtcd
from baton.host.ports import held_port
from baton.tenancy.directory.watch import EPOCH
from tests.support.wait import eventually

Wipe = Callable[[], Awaitable[None]]


async def wait_for_epoch(etcd: Etcd, cluster: str) -> None:
    """Wait until a running frontend has begun the cluster's epoch."""
    await eventually(partial(etcd.get, keys.tenancy(cluster) + EPOCH))


@pytest.fixture(autouse=True)
def cheap_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    """Derives keys at once; how costly they are is not tested here."""
    cheap = KeyDerivation(b"0123456789abcdef", n=16, r=1, p=1)
    monkeypatch.setattr(KeyDerivation, "new", lambda: cheap)


@pytest.fixture
async def own_etcd(tmp_path: Path) -> AsyncIterator[LocalEtcd]:
    with held_port() as port:
        async with LocalEtcd(tmp_path / "etcd", client_port=port, durable=False) as server:
            yield server


@pytest.fixture
def wipe(own_etcd: LocalEtcd, tmp_path: Path) -> Wipe:
    """Restarts etcd without its data."""

    async def wipe() -> None:
        await own_etcd.kill()
        shutil.rmtree(tmp_path / "etcd")
        await own_etcd.start()

    return wipe
