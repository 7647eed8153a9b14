"""The same inputs over sockets, to a server with health and reflection."""

import asyncio
import gc
import os
import time
from contextlib import suppress
from io import StringIO
from random import Random
from typing import Any

import grpc
from grpc_health.v1 import health_pb2, health_pb2_grpc

from baton.rpc.server.server import Server
from baton.settings import GrpcSettings
from bench.harness.machine import rss_bytes
from bench.rpc.fuzz.inputs import Inputs, pieces
from bench.rpc.fuzz.sans_io import Broken

_AT_ONCE = 20
_CHECK_SECONDS = 5.0
_LINGER_SECONDS = 0.02
MAX_GROWTH = 64 << 20


class SocketFuzzer:
    """A server in this process, and clients that send it inputs.

    Args:
        log: receives the process's log lines of level error: any line is a failure.
    """

    def __init__(self, log: StringIO) -> None:
        self.inputs = self.closed = 0
        self.slowest = 0.0
        """Longest call of a well-behaved client, in seconds."""
        self._faults: list[str] = []
        self._log = log
        self._server = Server(GrpcSettings(reflection=True), "fuzz")
        self._base = 0

    async def __aenter__(self) -> "SocketFuzzer":
        asyncio.get_running_loop().set_exception_handler(self._on_fault)
        await self._server.start()
        self._server.set_ready(True)
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._server.drain(0)

    @property
    def growth(self) -> int:
        """Bytes by which the process grew since the first inputs."""
        gc.collect()
        return rss_bytes(os.getpid()) - self._base

    def _on_fault(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:  # noqa: ARG002
        self._faults.append(f"{context.get('message')}: {context.get('exception')!r}")

    async def round(self, seed: int) -> None:
        """Send inputs on some connections at once, then call as a well-behaved client.

        Raises:
            Broken: an exception escaped, the call got no response, or memory grows.
        """
        await asyncio.gather(*(self._one(seed + number) for number in range(_AT_ONCE)))
        self.inputs += _AT_ONCE
        began = time.monotonic()
        options = [("grpc.use_local_subchannel_pool", 1)]
        async with grpc.aio.insecure_channel(self._server.address, options) as channel:
            request = health_pb2.HealthCheckRequest()
            try:
                await health_pb2_grpc.HealthStub(channel).Check(request, timeout=_CHECK_SECONDS)
            except grpc.aio.AioRpcError as error:
                raise Broken(f"another client was not answered: {error.details()}") from error
        self.slowest = max(self.slowest, time.monotonic() - began)
        if self._faults or self._log.getvalue():
            raise Broken(f"not handled: {[*self._faults, self._log.getvalue()][0][-4000:]}")
        if not self._base:
            self._base = rss_bytes(os.getpid())
        if self.inputs % (50 * _AT_ONCE) == 0 and self.growth > MAX_GROWTH:
            raise Broken(f"memory grew by {self.growth >> 20} MiB")

    async def _one(self, seed: int) -> None:
        draw = Random(seed)
        data = Inputs(draw, client=True).make()
        host, port = self._server.address.rsplit(":", 1)
        reader, writer = await asyncio.open_connection(host, int(port))
        try:
            with suppress(OSError, RuntimeError):  # uvloop's, for a closed connection
                for piece in pieces(draw, data)[:200]:
                    writer.write(piece)
                    await asyncio.sleep(0)
                if draw.random() < 0.2:
                    writer.write_eof()
                with suppress(TimeoutError):
                    async with asyncio.timeout(_LINGER_SECONDS):
                        while await reader.read(1 << 16):
                            pass
                        self.closed += 1
        finally:
            writer.transport.abort()
