"""A proxy that damages what it forwards."""

import asyncio
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

MARK_BYTES = 24


@dataclass
class FlippingProxy:
    """Forwards TCP, and flips one bit of each mark that it finds in what it forwards."""

    draw: random.Random
    marks: dict[bytes, int] = field(default_factory=dict)
    """To look for, with which object each is in."""
    flipped: set[int] = field(default_factory=set)

    def change(self, data: bytes) -> bytes:
        for mark in list(self.marks):
            at = data.find(mark)
            if at >= 0:
                bit = self.draw.randrange(8 * MARK_BYTES)
                changed = bytearray(data)
                changed[at + bit // 8] ^= 1 << bit % 8
                data = bytes(changed)
                self.flipped.add(self.marks.pop(mark))
        return data

    @asynccontextmanager
    async def before(self, address: str) -> AsyncIterator[str]:
        """Stand before a server; answers the proxy's own address."""
        host, _, port = address.rpartition(":")
        tasks: set[asyncio.Task[None]] = set()

        async def pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            try:
                while data := await reader.read(1 << 18):
                    writer.write(self.change(data))
                    await writer.drain()
            except ConnectionError:
                pass
            finally:
                writer.close()

        async def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            there, back = await asyncio.open_connection(host, int(port))
            for one in (pump(reader, back), pump(there, writer)):
                tasks.add(asyncio.create_task(one))

        server = await asyncio.start_server(accept, "127.0.0.1", 0)
        try:
            yield f"127.0.0.1:{server.sockets[0].getsockname()[1]}"
        finally:
            server.close()
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            await server.wait_closed()
