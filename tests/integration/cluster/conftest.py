"""An etcd per test, a member process, and a network between that can be cut."""

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from baton.cluster.etcd.local import LocalEtcd
from baton.host.ports import held_port
from tests.support.network.proxy import TcpProxy

MEMBER = Path(__file__).parent / "member.py"


@pytest.fixture
def port() -> Iterator[int]:
    """A port that nobody takes while the test's server is away."""
    with held_port() as port:
        yield port


@pytest.fixture
async def own_etcd(tmp_path: Path, port: int) -> AsyncIterator[LocalEtcd]:
    """An etcd that the test may kill."""
    async with LocalEtcd(tmp_path / "etcd", client_port=port, durable=False) as server:
        yield server


@pytest.fixture
def spawn_member(spawn_service):
    """Starts a process that only registers, with a lease of 2 s."""

    async def spawn(instance_id: str = ""):
        env = {"BATON_ETCD_LEASE_SECONDS": "2"}
        return await spawn_service("router", env, instance_id, arguments=[str(MEMBER)])

    return spawn


@pytest.fixture
async def proxy(etcd: LocalEtcd) -> AsyncIterator[TcpProxy]:
    """Stands between the test and the session's etcd."""
    async with TcpProxy(etcd.endpoints[0]) as proxy:
        yield proxy
