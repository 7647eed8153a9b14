"""An etcd per test, a member process, and a network between that can be cut."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import pytest

from baton.cluster.local_etcd import LocalEtcd

MEMBER = Path(__file__).parent / "member.py"

Eventually = Callable[[Callable[[], object], float], Awaitable[float]]


@pytest.fixture
def eventually() -> Eventually:
    """`await eventually(condition, seconds)`: how long it took to hold; fails if it never does."""

    async def wait(condition: Callable[[], object], seconds: float) -> float:
        loop = asyncio.get_running_loop()
        began = loop.time()
        while not condition():
            assert loop.time() < began + seconds, f"not within {seconds} s"
            await asyncio.sleep(0.01)
        return loop.time() - began

    return wait


@pytest.fixture
async def own_etcd(tmp_path: Path) -> AsyncIterator[LocalEtcd]:
    """An etcd that the test may kill."""
    async with LocalEtcd(tmp_path / "etcd") as server:
        yield server


@pytest.fixture
def spawn_member(spawn_service):
    """Starts a process that only registers, with a lease of 2 s."""

    async def spawn(instance_id: str = ""):
        env = {"BATON_ETCD_LEASE_SECONDS": "2"}
        return await spawn_service("router", env, instance_id, arguments=[str(MEMBER)])

    return spawn


class Proxy:
    """A TCP proxy to one port that can be cut and mended."""

    def __init__(self, port: int) -> None:
        self._target = port
        self._server: asyncio.Server | None = None
        self._port = 0
        self._open: set[asyncio.StreamWriter] = set()

    @property
    def endpoint(self) -> str:
        return f"127.0.0.1:{self._port}"

    async def mend(self) -> None:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", self._port)
        self._port = self._server.sockets[0].getsockname()[1]

    async def cut(self) -> None:
        assert self._server is not None
        self._server.close()
        for writer in list(self._open):
            writer.transport.abort()
        await self._server.wait_closed()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        far_reader, far_writer = await asyncio.open_connection("127.0.0.1", self._target)
        self._open |= {writer, far_writer}
        pumps = [self._pump(reader, far_writer), self._pump(far_reader, writer)]
        await asyncio.gather(*pumps)
        self._open -= {writer, far_writer}

    async def _pump(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while data := await reader.read(65536):
                writer.write(data)
                await writer.drain()
        except ConnectionError:
            pass  # cut, or the other side left
        finally:
            writer.close()


@pytest.fixture
async def proxy(etcd: LocalEtcd) -> AsyncIterator[Proxy]:
    """Stands between the test and the session's etcd."""
    proxy = Proxy(int(etcd.endpoints[0].rpartition(":")[2]))
    await proxy.mend()
    yield proxy
    await proxy.cut()
