"""TCP proxies between a client and a server that fail as networks do."""

import asyncio
import random
import socket
from contextlib import closing, suppress
from typing import Self

MARK_BYTES = 24


class TcpProxy:
    """Forwards TCP to one address until the context exits. It owns the connections.

    Args:
        target: `host:port` of the server.
    """

    def __init__(self, target: str) -> None:
        host, _, port = target.rpartition(":")
        self._target = host, int(port)
        self._listener: socket.socket | None = None
        self._port = 0
        self.muted = False
        """Whether nothing is forwarded."""
        self._flowing = asyncio.Event()
        self._flowing.set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._accepted: set[socket.socket] = set()
        """Connections that no task owns yet."""

    async def __aenter__(self) -> Self:
        await self.mend()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.cut()

    @property
    def address(self) -> str:
        """The address to connect to instead of the server's; constant."""
        return f"127.0.0.1:{self._port}"

    def mute(self) -> None:
        """Forward nothing any more, without closing connections."""
        self.muted = True

    def hold(self) -> None:
        """Keep received bytes until `release`."""
        self._flowing.clear()

    def release(self) -> None:
        """Forward the kept bytes, and all later ones."""
        self._flowing.set()

    async def cut(self) -> None:
        """Break every connection and refuse new ones."""
        if self._listener is None:
            return
        asyncio.get_running_loop().remove_reader(self._listener)
        self._listener.close()
        self._listener = None
        tasks = set(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        for accepted in self._accepted:
            accepted.close()
        await asyncio.sleep(0)  # transports close in the loop's next turn

    async def mend(self) -> None:
        """Listen at the same address again."""
        self._listener = socket.create_server(("127.0.0.1", self._port))
        self._listener.setblocking(False)
        self._port = self._listener.getsockname()[1]
        # Not asyncio's server: when closed, it loses connections that it has just accepted.
        asyncio.get_running_loop().add_reader(self._listener, self._accept, self._listener)

    def change(self, data: bytes) -> bytes:
        """Return the bytes to forward for received ones. Override it."""
        return data

    def _accept(self, listener: socket.socket) -> None:
        accepted, _ = listener.accept()
        accepted.setblocking(False)
        self._accepted.add(accepted)
        task = asyncio.create_task(self._carry(accepted))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _carry(self, accepted: socket.socket) -> None:
        reader, writer = await asyncio.open_connection(sock=accepted)
        self._accepted.discard(accepted)
        with closing(writer), suppress(OSError):  # the server crashed, or the client left
            there, back = await asyncio.open_connection(*self._target)
            with closing(back):
                await asyncio.gather(self._pump(reader, back), self._pump(there, writer))

    async def _pump(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(1 << 18):
            await self._flowing.wait()
            if not self.muted:
                writer.write(self.change(data))
                await writer.drain()
        writer.close()


class FlippingProxy(TcpProxy):
    """Flips one bit in each mark that it finds in the forwarded bytes.

    Args:
        target: `host:port` of the server.
        draw: chooses the bits.
    """

    def __init__(self, target: str, draw: random.Random) -> None:
        super().__init__(target)
        self.marks: dict[bytes, int] = {}
        """The marks to look for, with the object that contains each."""
        self.flipped: set[int] = set()
        self._draw = draw

    def change(self, data: bytes) -> bytes:
        for mark in list(self.marks):
            at = data.find(mark)
            if at >= 0:
                bit = self._draw.randrange(8 * MARK_BYTES)
                changed = bytearray(data)
                changed[at + bit // 8] ^= 1 << bit % 8
                data = bytes(changed)
                self.flipped.add(self.marks.pop(mark))
        return data
