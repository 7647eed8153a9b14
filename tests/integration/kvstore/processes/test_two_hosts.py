"""A store in a network of its own: nothing but a link between two network interfaces joins it."""

import os
import secrets
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from baton.cluster.etcd.local import free_port
from baton.internal.v1 import kvstore_pb2
from baton.process.parent import PARENT_ENV
from tests.support.engine.model import ROOT
from tests.support.stores import (
    EACH_PEER_TRANSPORT,
    MIB,
    block,
    connected,
    get,
    keys_of,
    put,
    running_store,
)

SIZE = 512 * 1024
COUNT = 12


@dataclass(frozen=True)
class Link:
    """Two ends of a cable: `near` is here, `far` in the namespace."""

    namespace: str
    near: str
    far: str
    near_ip: str
    far_ip: str


@pytest.fixture
def link() -> Iterator[Link]:
    tag = secrets.token_hex(3)
    subnet = f"10.{200 + secrets.randbelow(50)}.{secrets.randbelow(256)}"
    link = Link(f"baton-{tag}", f"bt{tag}n", f"bt{tag}f", f"{subnet}.1", f"{subnet}.2")
    try:
        ip("netns", "add", link.namespace)
    except (OSError, subprocess.CalledProcessError) as error:
        pytest.skip(f"network namespaces cannot be made here: {error}")
    try:
        ip("link", "add", link.near, "type", "veth", "peer", "name", link.far)
        ip("link", "set", link.far, "netns", link.namespace)
        ip("addr", "add", f"{link.near_ip}/24", "dev", link.near)
        ip("link", "set", link.near, "up")
        ip("-n", link.namespace, "addr", "add", f"{link.far_ip}/24", "dev", link.far)
        ip("-n", link.namespace, "link", "set", link.far, "up")
        ip("-n", link.namespace, "link", "set", "lo", "up")
        yield link
    finally:
        ip("netns", "delete", link.namespace)  # its end of the cable goes with it, and so the other


def ip(*arguments: str) -> None:
    subprocess.run(["ip", *arguments], check=True, capture_output=True)


@pytest.fixture
def far_store(link: Link, tmp_path: Path) -> Iterator[kvstore_pb2.KvSource]:
    """A store on the other host."""
    port = free_port()
    (tmp_path / "far").mkdir()
    env = {
        **os.environ,
        PARENT_ENV: str(os.getpid()),
        "PYTHONPATH": str(ROOT),
        "UCX_TLS": "tcp",
        "UCX_NET_DEVICES": link.far,
        "BATON_INSTANCE_ID": "far",
        "BATON_GRPC_HOST": link.far_ip,
        "BATON_GRPC_PORT": str(port),
        "BATON_ETCD_ENDPOINTS": "127.0.0.1:1",
        "BATON_STORE_ARENA_DIR": str(tmp_path / "far"),
        "BATON_STORE_ARENA_BYTES": str(16 * MIB),
    }
    serve = [sys.executable, "-m", "baton", "serve", "kvstore"]
    command = ["ip", "netns", "exec", link.namespace, *serve]
    with (tmp_path / "far.log").open("wb") as log:
        store = subprocess.Popen(command, env=env, cwd=ROOT, stdout=log, stderr=log)
    try:
        yield kvstore_pb2.KvSource(store_id="far", address=f"{link.far_ip}:{port}")
    finally:
        store.terminate()
        store.wait(15)


@pytest.mark.parametrize("transport", EACH_PEER_TRANSPORT)
async def test_objects_come_from_a_store_on_another_host(
    link: Link,
    far_store: kvstore_pb2.KvSource,
    tmp_path: Path,
    transport: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("UCX_TLS", "tcp")
    monkeypatch.setenv("UCX_NET_DEVICES", link.near)
    (tmp_path / "near").mkdir()
    async with (
        connected(far_store.address, "shm", seconds=20) as writer,
        running_store(tmp_path / "near", store_id="near", peer_transport=transport) as near,
        connected(near.address, "shm") as reader,
    ):
        assert await put(writer, keys_of(COUNT), SIZE) == COUNT
        found, missing = await get(reader, keys_of(COUNT), SIZE, 20, [far_store])
        assert (found, missing) == ({index: block(index, SIZE) for index in range(COUNT)}, set())
        assert near.store.moved_bytes["peer", transport] == COUNT * SIZE
        await near.at_baseline(5)
