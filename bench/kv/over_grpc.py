"""A store over gRPC, compared with bare streams of the same number of bytes.

As a program it serves the bare streams: it sends and receives messages of random bytes, and does
nothing with them.
"""

import asyncio
import secrets
import statistics
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import grpc
import uvloop

from baton.process.allocator import keep_freed_memory
from baton.rpc.channels import OPTIONS, open_channel
from bench.kv.batches import LANES, attached, get_all, names, put_all
from bench.kv.sizes import COUNT, MIB

MESSAGE_BYTES = MIB
Rates = dict[str, tuple[float, float]]


def messages(size: int) -> list[bytes]:
    """Return the bytes of one batch in messages."""
    return [secrets.token_bytes(MESSAGE_BYTES) for _ in range(COUNT * size // MESSAGE_BYTES)]


class BareStreams:
    """grpc.aio streams of messages of 1 MiB, one in each direction."""

    def __init__(self, channel: grpc.aio.Channel, size: int) -> None:
        untyped: Any = channel
        self._up = untyped.stream_stream("/Bare/Up")()
        self._down = untyped.stream_stream("/Bare/Down")()
        self._size = size
        self._messages = messages(size)

    async def put(self, count: int) -> None:
        """Send this many messages, and wait until the last has arrived."""
        for number in range(count):
            await self._up.write(self._messages[number % len(self._messages)])
        await self._up.write(b"end")
        await self._up.read()

    async def get(self, count: int) -> None:
        """Read this many messages."""
        await self._down.write(f"{self._size} {count}".encode())
        for _ in range(count):
            await self._down.read()

    def close(self) -> None:
        """Cancel both."""
        self._up.cancel()
        self._down.cancel()


async def put_and_get(
    address: str, bare_address: str, size: int, rounds: int, arena_bytes: int
) -> Rates:
    """Return GB/s of the store and of bare streams that take turns with it: median, best.

    A round has an eighth of what the arena holds, or `LANES` batches if that is more. Entries with
    a slash are the store's rate divided by the bare stream's.
    """
    sources = [memoryview(secrets.token_bytes(size)) for _ in range(COUNT)]
    targets = [memoryview(bytearray(size)) for _ in range(COUNT)]
    batches = max(LANES, arena_bytes // 8 // (COUNT * size))
    total = batches * COUNT * size
    seen: dict[str, list[float]] = {}
    async with (
        attached(address) as local,  # waits for the arena's memory, and fills it
        attached(address, "grpc") as client,
        open_channel(bare_address) as channel,
    ):
        await asyncio.wait_for(channel.channel_ready(), 20)
        await put_all(local, names(-(-arena_bytes // (COUNT * size))), sources, arena_bytes)
        bare = BareStreams(channel, size)
        keys: list[list[bytes]] = []
        turns: dict[str, Callable[[], Awaitable[None]]] = {
            "bare put": lambda: bare.put(total // MESSAGE_BYTES),
            "put": lambda: put_all(client, keys, sources, arena_bytes),
            "bare get": lambda: bare.get(total // MESSAGE_BYTES),
            "get": lambda: get_all(client, keys, targets, LANES),
            "get 1": lambda: get_all(client, keys, targets, 1),
        }
        try:
            for number in range(rounds + 1):
                keys = names(batches)
                for name, turn in turns.items():
                    began = time.perf_counter()
                    await turn()
                    if number:  # the first one warms up
                        rate = total / (time.perf_counter() - began) / 1e9
                        seen.setdefault(name, []).append(rate)
        finally:
            bare.close()
    rates = {name: (statistics.median(each), max(each)) for name, each in seen.items()}
    for name in ("put", "get", "get 1"):
        beside = rates["bare " + name.removesuffix(" 1")]
        rates[f"{name}/bare"] = (rates[name][0] / beside[0], rates[name][1] / beside[1])
    return rates


async def serve_bare(port: str) -> None:
    """Serve bare streams until the process is terminated."""
    kept: dict[int, list[bytes]] = {}

    async def down(requests: AsyncIterator[bytes], context: Any) -> None:
        async for wanted in requests:
            size, count = map(int, wanted.split())
            if size not in kept:
                kept.clear()
                kept[size] = messages(size)
            for number in range(count):
                await context.write(kept[size][number % len(kept[size])])

    async def up(requests: AsyncIterator[bytes], context: Any) -> None:
        async for data in requests:
            if len(data) < MESSAGE_BYTES:
                await context.write(b".")

    untyped: Any = grpc
    methods = {
        "Down": untyped.stream_stream_rpc_method_handler(down),
        "Up": untyped.stream_stream_rpc_method_handler(up),
    }
    server = grpc.aio.server(options=OPTIONS)
    server.add_generic_rpc_handlers((untyped.method_handlers_generic_handler("Bare", methods),))
    server.add_insecure_port(f"127.0.0.1:{port}")
    await server.start()
    await server.wait_for_termination()


if __name__ == "__main__":
    keep_freed_memory()  # as every process of Baton does
    uvloop.run(serve_bare(sys.argv[1]))
