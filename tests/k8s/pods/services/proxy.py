"""A port of a Service: connections are passed on to a pod each, chosen at random.

Like kube-proxy it decides once for each connection: one that is open stays with its pod, whatever
becomes of the pod's readiness. Unlike it, a client whose pod cannot be reached is connected first
and reset then.
"""

import asyncio
import random
import socket
import struct
from collections.abc import Callable, Sequence

CONNECT_SECONDS = 3.0
RESET = struct.pack("ii", 1, 0)
"""SO_LINGER for a close that the other side sees as a reset."""


class ServicePort:
    """One address and port, and where its connections go.

    Args:
        address: where it listens.
        port: where it listens.
    """

    def __init__(self, address: str, port: int) -> None:
        self.targets: Sequence[tuple[str, int]] = ()
        self.refused = 0
        """Connections that found no pod, or one that could not be reached."""
        self.accepted = 0
        self._address = address
        self._port = port
        self._server: asyncio.Server | None = None
        self._open: set[_Side] = set()
        self._connecting: set[asyncio.Task[None]] = set()

    async def start(self) -> int:
        """Listen, and return the port.

        Raises:
            OSError: the address is not this machine's, or the port is taken.
        """
        loop = asyncio.get_running_loop()
        self._server = await loop.create_server(
            lambda: _Side(self._open, self._accept), self._address, self._port
        )
        return int(self._server.sockets[0].getsockname()[1])

    def close(self) -> None:
        """Listen no longer, and reset what is open."""
        if self._server is not None:
            self._server.close()
        for side in list(self._open):
            side.reset()
        for task in self._connecting:
            task.cancel()

    def _accept(self, client: "_Side") -> None:
        self.accepted += 1
        task = asyncio.get_running_loop().create_task(self._connect(client))
        self._connecting.add(task)
        task.add_done_callback(self._connecting.discard)

    async def _connect(self, client: "_Side") -> None:
        try:
            if not self.targets:
                raise ConnectionRefusedError("no endpoint")
            host, port = random.choice(self.targets)
            pod = _Side(self._open, other=client)
            async with asyncio.timeout(CONNECT_SECONDS):
                await asyncio.get_running_loop().create_connection(lambda: pod, host, port)
        except OSError:
            self.refused += 1
            client.reset()
            return
        client.pair(pod)


class _Side(asyncio.Protocol):
    """One of the two connections; what a client says is read when its pod is there."""

    def __init__(
        self,
        everyone: "set[_Side]",
        on_made: "Callable[[_Side], None] | None" = None,
        other: "_Side | None" = None,
    ) -> None:
        self.other = other
        self._on_made = on_made
        self._everyone = everyone
        self._transport: asyncio.Transport | None = None
        self._ended = False
        """The other end has said all it says."""
        self._lost = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        self._everyone.add(self)
        transport.get_extra_info("socket").setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if self._on_made is not None:
            # Not at once: asyncio of Python 3.11.2 begins to read after this, whatever it says.
            asyncio.get_running_loop().call_soon(transport.pause_reading)
            self._on_made(self)

    def pair(self, other: "_Side") -> None:
        """Begin to pass bytes on."""
        self.other = other
        if self._lost or self._transport is None:
            other.reset()
        elif not self._transport.is_closing():
            self._transport.resume_reading()

    def data_received(self, data: bytes) -> None:
        if self.other is not None and self.other._transport is not None:
            self.other._transport.write(data)

    def eof_received(self) -> bool:
        self._ended = True
        other = self.other
        if other is None or other._transport is None or other._ended:
            return False
        if not other._transport.is_closing():
            other._transport.write_eof()
        return True  # the other direction may go on

    def pause_writing(self) -> None:
        if self.other is not None and self.other._transport is not None:
            self.other._transport.pause_reading()

    def resume_writing(self) -> None:
        if self.other is not None and self.other._transport is not None:
            self.other._transport.resume_reading()

    def connection_lost(self, error: Exception | None) -> None:
        self._lost = True
        self._everyone.discard(self)
        if self.other is None:
            return
        if error is not None:
            self.other.reset()
        elif self.other._transport is not None:
            self.other._transport.close()

    def reset(self) -> None:
        """Close so that the other end sees a reset."""
        if self._transport is not None and not self._lost:
            raw = self._transport.get_extra_info("socket")
            raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
            self._transport.abort()
