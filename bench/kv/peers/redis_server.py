"""redis-server and redis-py with hiredis; one MSET or MGET per batch, no persistence."""

import subprocess
import time
from pathlib import Path

import redis

from bench.kv.peers.base import Peer, content, environment, free_port


class Redis(Peer):
    """A separate Redis."""

    def __init__(self, root: Path) -> None:
        port = free_port()
        program = str(root / "usr/bin/redis-server")
        command = [program, "--port", str(port), "--save", "", "--bind", "127.0.0.1"]
        self._process = subprocess.Popen(command, env=environment(root), stdout=subprocess.DEVNULL)
        self._client = redis.Redis(port=port)
        self._objects: list[bytes] = []
        for _ in range(100):
            try:
                self._client.ping()
                break
            except redis.exceptions.ConnectionError:
                time.sleep(0.1)

    def prepare(self, size: int) -> None:
        data = content(size)
        self._objects = [data[at : at + size] for at in range(0, len(data), size)]

    def put(self, keys: list[str]) -> None:
        self._client.mset(dict(zip(keys, self._objects, strict=True)))

    def get(self, keys: list[str]) -> None:
        size = len(self._objects[0])
        assert all(len(one) == size for one in self._client.mget(keys))

    def check(self, keys: list[str]) -> None:
        assert self._client.mget(keys) == self._objects

    def remove(self, keys: list[str]) -> None:
        self._client.delete(*keys)

    def exist(self, keys: list[str]) -> None:
        pipe = self._client.pipeline(transaction=False)
        for key in keys:
            pipe.exists(key)
        assert all(pipe.execute())

    def close(self) -> None:
        self._process.terminate()
        self._process.wait()
