"""Mooncake Store over TCP: master, segment and client are separate processes.

Objects are copied from and to registered memory, as its users do. Its master grants every reader a
lease, and a get that takes longer than its lease returns nothing (LEASE_EXPIRED). The lease is the
default of 10 s. Objects that were read are removed by force, since a normal removal spares leased
objects.

As a program it is the process that holds the data, until its standard input ends.
"""

import ctypes
import mmap
import subprocess
import sys
import time
from pathlib import Path

from mooncake.store import MooncakeDistributedStore

from bench.kv.peers.base import Peer, content, environment, free_port, new_keys
from bench.kv.sizes import COUNT, GIB, MIB, SIZES

SEGMENT_BYTES = 2 * GIB
_ADDRESS = ("127.0.0.1", "P2PHANDSHAKE")


class Mooncake(Peer):
    """A separate Mooncake Store."""

    def __init__(self, root: Path) -> None:
        port = free_port()
        path = Path(sys.executable).parent / "mooncake_master"
        self._master = subprocess.Popen(
            [str(path), f"--rpc_port={port}", f"--metrics_port={free_port()}"],
            env=environment(root),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        time.sleep(2)
        master = f"127.0.0.1:{port}"
        self._holder = subprocess.Popen(
            [sys.executable, "-m", "bench.kv.peers.mooncake_store", master],
            env=environment(root),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        assert self._holder.stdout is not None
        if (code := self._holder.stdout.readline().strip()) != "0":
            raise SystemExit(f"mooncake's segment answered {code!r}")
        self._client = MooncakeDistributedStore()
        # No segment here: the other process holds all data.
        if code := self._client.setup(*_ADDRESS, 0, 16 * MIB, "tcp", "", master):
            raise SystemExit(f"mooncake's client answered {code}")
        self._size = max(SIZES.values())
        self._memories = [_touched(COUNT * self._size) for _ in range(2)]
        self._sources, self._targets = (
            ctypes.addressof(ctypes.c_char.from_buffer(memory)) for memory in self._memories
        )
        for address in (self._sources, self._targets):
            assert self._client.register_buffer(address, COUNT * self._size) == 0
        self._warm()

    def _warm(self) -> None:
        """Touch as much of the segment's memory as can be held at once."""
        batches = [new_keys() for _ in range(int(SEGMENT_BYTES * 0.85) // (COUNT * self._size))]
        for keys in batches:
            self.put(keys)
        for keys in batches:
            self.remove(keys)

    def prepare(self, size: int) -> None:
        self._size = size
        self._memories[0][: COUNT * size] = content(size)

    def _pieces(self, memory: int) -> tuple[list[int], list[int]]:
        return [memory + index * self._size for index in range(COUNT)], [self._size] * COUNT

    def put(self, keys: list[str]) -> None:
        codes = self._client.batch_put_from(keys, *self._pieces(self._sources))
        assert not any(codes), set(codes)

    def get(self, keys: list[str]) -> None:
        sizes = self._client.batch_get_into(keys, *self._pieces(self._targets))
        assert all(size == self._size for size in sizes), set(sizes)

    def check(self, keys: list[str]) -> None:
        total = COUNT * self._size
        self._memories[1][:total] = bytes(total)
        self.get(keys)
        assert self._memories[1][:total] == self._memories[0][:total]

    def remove(self, keys: list[str]) -> None:
        codes = self._client.batch_remove(keys, True)
        assert not any(codes), set(codes)

    def exist(self, keys: list[str]) -> None:
        assert all(one == 1 for one in self._client.batch_is_exist(keys))

    def close(self) -> None:
        self._client.close()
        assert self._holder.stdin is not None
        self._holder.stdin.close()
        for process in (self._holder, self._master):
            process.terminate()
            process.wait()


def _touched(size: int) -> mmap.mmap:
    memory = mmap.mmap(-1, size)
    for at in range(0, size, mmap.PAGESIZE):
        memory[at] = 1
    return memory


def hold(master: str) -> None:
    """Hold the data until standard input ends."""
    client = MooncakeDistributedStore()
    code = client.setup(*_ADDRESS, SEGMENT_BYTES, 16 * MIB, "tcp", "", master)
    print(code, flush=True)
    sys.stdin.read()
    client.close()


if __name__ == "__main__":
    hold(sys.argv[1])
